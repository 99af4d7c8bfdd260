"""Data with open transactions moves from Kafka to Barnabas and back, and the transactions are completed there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from barnabas.java.find import Java
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.wire.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from interop.harness.jars import KAFKA_3_9, Jars
from interop.harness.kafka import SETTINGS, KafkaCluster
from interop.harness.tools import Tools
from interop.harness.zookeeper import ZooKeeper
from interop.scenarios.group_requests import committed
from interop.scenarios.requests import ask, create, new_topic
from interop.scenarios.runner import Ours, RealKafka, Runner
from interop.scenarios.step import Await, Step
from interop.scenarios.transaction_requests import (
    Producer,
    add_offsets,
    added,
    describe_transactions,
    end,
    ended,
    in_state,
    init,
    read_committed,
    started,
    txn_commit,
    write,
)
from support.broker import BrokerProcess

TOPIC, GROUP = "moved", "movers"
ADOPT = {"barnabas.adopt.logs": "true"}
AT = {TOPIC: (0,)}
P, Q, R = (Producer(name=f"move-{each}", since=f"init {each}") for each in "pqr")
NEXT = P.after("init p again")
"""The same producer, after its first transaction."""


def ready(group: str) -> tuple[Step, ...]:
    """Both coordinators are there. Kafka creates their topics, from existing logs if there are any."""
    find = FindCoordinatorRequest(coordinator_keys=(P.name,), key_type=CoordinatorType.TRANSACTION)
    find_group = FindCoordinatorRequest(coordinator_keys=(group,))
    return (
        *(
            Step(
                name=f"find {kind}",
                action=Await(request=request, path="coordinators.1.error_code", value="NONE"),
            )
            for kind, request in (("transactions", find), ("groups", find_group))
        ),
        Step(
            name="groups are loaded",
            action=Await(request=committed(group), path=f"groups.{group}.error_code", value="NONE"),
        ),
    )


def has_offset(offset: int) -> Step:
    return Step(
        name=f"offset {offset}",
        action=Await(
            request=committed(GROUP),
            path=f"groups.{GROUP}.topics.{TOPIC}.partitions.0.committed_offset",
            value=offset,
        ),
    )


IN_KAFKA: tuple[Step, ...] = (
    ask("create", create(new_topic(TOPIC))),
    *ready(GROUP),
    *(started(each.since, init(each.name)) for each in (P, Q, R)),
    *(added(f"add {each.name}", each, AT) for each in (P, Q, R)),
    ask("write p", write(P, TOPIC, 0, b"p1")),
    ask("add group", add_offsets(P, GROUP)),
    ask("commit offset", txn_commit(P, GROUP, {TOPIC: {0: 5}})),
    ask("write q", write(Q, TOPIC, 0, b"q1")),
    *ended("abort q", Q, commit=False),
    ask("write r", write(R, TOPIC, 0, b"r1")),
    read_committed("open", TOPIC),
)
IN_OURS: tuple[Step, ...] = (
    *ready(GROUP),
    in_state("p is open", P.name, "Ongoing"),
    in_state("r is open", R.name, "Ongoing"),
    read_committed("adopted", TOPIC),
    ask("repeat p", write(P, TOPIC, 0, b"p1")),
    ask("write p again", write(P, TOPIC, 1, b"p2")),
    *ended("commit p", P, commit=True),
    has_offset(5),
    ask("commit an unknown outcome", end(Q, commit=True)),
    *ended("abort r", R, commit=False),
    read_committed("completed", TOPIC),
    started("init a new id", init("move-s")),
    started(NEXT.since, init(P.name)),
    added("add p again", NEXT, AT),
    ask("write the next", write(NEXT, TOPIC, 0, b"p3")),
    ask("add group again", add_offsets(NEXT, GROUP)),
    ask("commit the next offset", txn_commit(NEXT, GROUP, {TOPIC: {0: 9}})),
    read_committed("open again", TOPIC),
)
IN_KAFKA_AGAIN: tuple[Step, ...] = (
    ask("create again", create(new_topic(TOPIC))),
    *ready(GROUP),
    in_state("p is open again", P.name, "Ongoing"),
    ask("all of them", describe_transactions(P.name, Q.name, R.name)),
    read_committed("back", TOPIC),
    ask("write the last", write(NEXT, TOPIC, 1, b"p4")),
    *ended("commit the next", NEXT, commit=True),
    has_offset(9),
    read_committed("done", TOPIC),
    started("init once more", init(P.name)),
)


def play(broker: RealKafka | Ours, script: Iterable[Step], before: Runner | None = None) -> Runner:
    """Play a script, which may use the responses that an earlier one has got."""
    runner = Runner(broker)
    if before is not None:
        runner.answers.update(before.answers)
    runner.run(script)
    return runner


def stable(runner: Runner, when: str) -> tuple[int, int, list[int]]:
    """The last stable offset, the high watermark, and the first offsets of the aborted transactions."""
    found: Any = runner.answers[f"{when}: read committed"].responses[0].partitions[0]
    aborted = [each.first_offset for each in found.aborted_transactions]
    return found.last_stable_offset, found.high_watermark, aborted


def test_open_transactions_move_to_barnabas_and_back(
    tmp_path: Path, java: Java, kafka_jars: Jars, zookeeper: ZooKeeper
) -> None:
    with KafkaCluster(
        tmp_path / "first", java=java, jars=kafka_jars, zookeeper=zookeeper
    ) as cluster:
        (kafka,) = cluster.brokers
        first = play(RealKafka(kafka), IN_KAFKA)
        assert stable(first, "open") == (0, 4, [])
        kafka.stop()
        shutil.copytree(kafka.log_dir, tmp_path / "data" / "broker-1")
    (tmp_path / "data" / "broker-1" / "meta.properties").unlink()

    with BrokerProcess(tmp_path / "data", {**SETTINGS, **ADOPT}) as broker:
        second = play(Ours(broker), IN_OURS, first)
        assert stable(second, "adopted") == (0, 4, [])
        assert codes(second, "repeat p", "write p again") == [0, 0]
        assert stable(second, "completed") == (7, 7, [1, 3])
        assert stable(second, "open again") == (7, 8, [1, 3])
        # Kafka's ids are in a block of 1000.
        assert second.answers["init a new id"].producer_id == 1000
        broker.stop()
        target = tmp_path / "second" / "broker-1" / "logs"
        shutil.copytree(broker.log_dir, target)
    dump_transactions(
        target, Tools(release=KAFKA_3_9, java=java, jars=kafka_jars, scratch=tmp_path)
    )

    (target / "meta.properties").unlink()
    for path in target.glob("*/partition.metadata"):
        path.unlink()
    with KafkaCluster(
        tmp_path / "second", java=java, jars=kafka_jars, zookeeper=zookeeper
    ) as cluster:
        third = play(RealKafka(cluster.brokers[0]), IN_KAFKA_AGAIN, second)
    assert stable(third, "back") == (7, 8, [1, 3])
    assert codes(third, "write the last") == [0]
    assert stable(third, "done") == (10, 10, [1, 3])
    before, after = third.answers[NEXT.since], third.answers["init once more"]
    assert after.producer_id == before.producer_id == third.answers[P.since].producer_id
    assert after.producer_epoch == before.producer_epoch + 1


def codes(runner: Runner, *steps: str) -> list[int]:
    found = [runner.answers[step].responses[0].partition_responses[0] for step in steps]
    return [each.error_code for each in found]


def dump_transactions(log_dir: Path, tools: Tools) -> None:
    """kafka-dump-log decodes our markers, transaction index, producer snapshots and both topics of coordinators."""

    def dump(pattern: str, *options: str) -> str:
        files = [str(path) for path in sorted(log_dir.glob(pattern)) if path.stat().st_size]
        outcome = tools.succeed("kafka-dump-log", *options, "--files", ",".join(files))
        assert "isvalid: false" not in outcome.stdout and not outcome.stderr, outcome
        return outcome.stdout

    text = dump(f"{TOPIC}-0/*.log", "--deep-iteration")
    markers = re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", text)
    assert [kind for kind, _ in markers] == ["ABORT", "COMMIT", "ABORT"]
    text = dump(f"{TOPIC}-0/*.txnindex")
    aborted = re.findall(r"firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", text)
    assert aborted == [("1", "2", "0"), ("3", "6", "7")]
    text = dump(f"{TOPIC}-0/*.snapshot")
    assert text.count("producerEpoch: 1") == 1
    assert (
        "currentTxnFirstOffset: Some(7)" in text or "currentTxnFirstOffset: OptionalLong[7]" in text
    )
    text = dump(f"{TRANSACTION_STATE}-*/*.log", "--transaction-log-decoder")
    assert "transactionalId=move-p" in text
    assert re.search(r"transactionalId=move-p.*state=Ongoing.*partitions=\[moved-0", text)
    assert "state=CompleteCommit" in text and "state=CompleteAbort" in text
    text = dump(f"{CONSUMER_OFFSETS}-*/*.log", "--offsets-decoder")
    assert '"group":"movers"' in text and "endTxnMarker: COMMIT" in text
