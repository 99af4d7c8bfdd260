"""kafka-consumer-groups over our groups: it shows them, sets them back, and deletes what it is told to."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer

from interop.harness.tools import Outcome, Tools
from tests.broker_process import BrokerProcess
from tests.compatibility.raw import Raw

RECORDS = 10


@pytest.fixture
def group(ours: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """Has read four of ten records of a topic of its own name, and is not there any more."""
    name = f"group-{abs(hash(request.node.nodeid))}"
    with Raw(ours.bootstrap_servers) as raw:
        raw.create_topic(name)
    producer = Producer({"bootstrap.servers": ours.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(name, b"%d" % number)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": ours.bootstrap_servers,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([name])
    read = consumer.consume(4, timeout=60)
    assert len(read) == 4
    consumer.commit(message=read[-1], asynchronous=False)
    consumer.close()
    return name


def test_a_group_is_shown_set_back_and_deleted(
    tools: Tools, ours: BrokerProcess, group: str
) -> None:
    def groups(*arguments: str) -> Outcome:
        return tools.succeed(
            "kafka-consumer-groups", "--bootstrap-server", ours.bootstrap_servers, *arguments
        )

    assert group in groups("--list").lines
    (shown,) = [row for row in rows(groups("--describe", "--group", group)) if row[1:2] == [group]]
    assert shown[2:6] == ["0", "4", "10", "6"], "partition, committed, end, lag"
    (state,) = [
        row for row in rows(groups("--describe", "--group", group, "--state")) if group in row
    ]
    assert "Empty" in state
    choice = ("--reset-offsets", "--group", group, "--topic", group)
    (back,) = [row for row in rows(groups(*choice, "--to-earliest", "--execute")) if group in row]
    assert back[-4:] == [group, group, "0", "0"], "3.9 writes it behind the head"
    groups("--delete-offsets", "--group", group, "--topic", group)
    assert group not in groups("--list").lines, "its last offset was all it had"


def rows(outcome: Outcome) -> list[list[str]]:
    return [line.split() for line in outcome.lines]
