"""Kafka's group tools of 3.9 and 4: their output for our groups equals that for Kafka's."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.errors import ErrorCode
from barnabas.java.process import JavaProcess
from barnabas.wire.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from barnabas.wire.messages.join_group import JoinGroupRequestProtocol
from barnabas.wire.messages.offset_commit import OffsetCommitResponse
from interop.harness.kafka import KafkaBroker
from interop.harness.resident_tools import ResidentTools
from interop.harness.tools import Outcome, Tools
from interop.scenarios.group_requests import LONG_MS, commit
from support.broker import BrokerProcess
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of
from tests.compatibility.raw_member import RawMember, wait_for_coordinator

NUMBERS = count()
TIMESTAMP = 1_700_000_000_000
SECONDS = 60.0
RECORDS = {0: 10, 1: 4}
# Random parts: member ids and ports; and Java's stack traces.
MEMBER = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PORT = re.compile(r"127\.0\.0\.1:\d{5}")
TRACE = re.compile(r"at |\.\.\. ")

WHILE_IT_READS = """
--list
--list --state
--list --state Stable
--list --state empty,dead
--list --type
--list --type consumer
--list --state stable --type classic
--describe --group G
--describe --group G --offsets --verbose
--describe --group G --members
--describe --group G --members --verbose
--describe --group G --state
--describe --group nobody
--describe --group nobody --members
--describe --group nobody --state
--describe --all-groups --state
--reset-offsets --group G --topic T --to-earliest --execute
--delete --group G
--delete-offsets --group G --topic T
--delete-offsets --group G --topic unread
""".strip().splitlines()

WHEN_IT_IS_EMPTY = """
--list --state Empty
--describe --group G
--describe --group G --members
--describe --group G --state
--reset-offsets --group G --topic T --to-earliest
--reset-offsets --group G --topic T --to-earliest --dry-run
--reset-offsets --group G --all-topics --to-latest --execute
--describe --group G
--reset-offsets --group G --topic T:0 --to-offset 3 --execute
--reset-offsets --group G --topic T:0,1 --to-offset 99 --dry-run
--reset-offsets --group G --topic T --to-current --dry-run
--reset-offsets --group G --topic T --shift-by -2 --execute
--reset-offsets --group G --topic T --shift-by 100 --dry-run
--reset-offsets --group G --topic T --shift-by -100 --dry-run
--reset-offsets --group G --topic T --to-datetime 2023-11-14T22:13:24.000Z --execute
--reset-offsets --group G --topic T --to-datetime 2033-11-14T22:13:24.000Z --dry-run
--reset-offsets --group G --topic T --by-duration P9000D --dry-run
--reset-offsets --group G --topic T --by-duration PT1M --dry-run
--reset-offsets --group G --topic T --to-offset 2 --export --dry-run
--reset-offsets --group G --from-file FILE --execute
--reset-offsets --group G --topic nowhere --to-earliest --dry-run
--describe --group G --offsets
--reset-offsets --group G-new --topic T --to-latest --execute
--describe --group G-new
--delete-offsets --group G --topic T:0 --topic nowhere
--describe --group G
--delete-offsets --group nobody --topic T
--delete --group G --group nobody
--delete --group G-new
--list
""".strip().splitlines()


@pytest.fixture(scope="module")
def resident(tools: Tools) -> Iterator[ResidentTools]:
    with ResidentTools(tools) as running:
        yield running


class ToolOutput(NamedTuple):
    line: str
    stdout: list[str]
    stderr: list[str]


class Side:
    """One broker, with a topic and a group of two members."""

    def __init__(self, servers: str, name: str, tools: ResidentTools, scratch: Path) -> None:
        self.servers = servers
        self.name = name
        self.topic = f"{name}-topic"
        self.tools = tools
        self.file = scratch / "offsets.csv"
        self.file.write_text(f"{self.topic},0,1\n{self.topic},1,99\n")

    def words(self, line: str) -> list[str]:
        """The words of a command line; G is the group, T the topic."""
        found = []
        for word in line.split():
            known = {"FILE": str(self.file)}.get(word, word)
            known = re.sub(r"^G(?=$|-new$)", self.name, known)
            found.append(re.sub(r"^T(?=$|:)", self.topic, known))
        return found

    def output(self, line: str) -> ToolOutput:
        """The unique lines of its output, sorted, without other groups of the broker."""
        outcome = self.tools.run(
            "kafka-consumer-groups", "--bootstrap-server", self.servers, *self.words(line)
        )
        return ToolOutput(line, self.lines(outcome.stdout, line), self.lines(outcome.stderr, line))

    def lines(self, text: str, command: str) -> list[str]:
        of_all = "--list" in command or "--all-groups" in command
        shown = PORT.sub("HOST:PORT", MEMBER.sub("-ID", text.replace(str(self.file), "FILE")))
        resident = {
            line.strip()
            for line in shown.splitlines()
            if not of_all or self.name in line or line.startswith(("GROUP ", "Error"))
        }
        return sorted(line for line in resident if line and not TRACE.match(line))

    def run_all(self) -> list[ToolOutput]:
        """Run all lines in order; returns their output."""
        subscribed = encode_subscription(ConsumerSubscription((self.topic,)))
        options = {
            "protocols": (JoinGroupRequestProtocol("range", subscribed),),
            "session_ms": LONG_MS,
            "rebalance_ms": LONG_MS,
        }
        with Raw(self.servers) as raw:
            make_topic(raw, self.topic)
            wait_for_coordinator(raw, self.name)
        with (
            RawMember(self.servers, self.name, instance="first") as first,
            RawMember(self.servers, self.name) as second,
        ):
            eventually(
                lambda: first.join(**options).error_code == ErrorCode.NONE,
                "the coordinator has loaded its groups",
                SECONDS,
            )
            begun = second.begin_join_with_id(**options)
            eventually(
                lambda: first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS,
                "the first member learns of the rebalance",
                SECONDS,
            )
            first.join(**options)
            second.end_join(begun)
            share = encode_assignment(ConsumerAssignment((TopicPartitions(self.topic, (0,)),)))
            first.sync(
                {first.member_id: share, second.member_id: encode_assignment(ConsumerAssignment())}
            )
            second.sync()
            wanted = commit(
                self.name,
                {self.topic: {0: 5, 1: 3}},
                generation=first.generation,
                member=first.member_id,
                instance="first",
            )
            first.raw.ask(wanted, OffsetCommitResponse)
            found = [self.output(line) for line in WHILE_IT_READS]
            assert (first.leave(), second.leave()) == (ErrorCode.NONE, ErrorCode.NONE)
        return found + [self.output(line) for line in WHEN_IT_IS_EMPTY]


def make_topic(raw: Raw, topic: str) -> None:
    raw.create_topic(topic, partitions=len(RECORDS), configs={"retention.ms": "-1"})
    for partition, records in RECORDS.items():
        for number in range(records):
            batch = batch_of(b"%d" % number, timestamp=TIMESTAMP + 1000 * number)
            raw.produce(topic, batch, partition=partition)


def test_kafka_consumer_groups_output_matches_kafka(
    resident: ResidentTools, ours: BrokerProcess, kafka: KafkaBroker, tmp_path: Path
) -> None:
    name = f"life-{next(NUMBERS)}"
    of_kafka = Side(kafka.bootstrap_servers, name, resident, tmp_path).run_all()
    of_ours = Side(ours.bootstrap_servers, name, resident, tmp_path).run_all()
    for expected, output in zip(of_kafka, of_ours, strict=True):
        assert output == expected
    everything = "\n".join(text for output in of_ours for text in output.stdout)
    for fact in (
        rf"{name} +{name}-topic +0 +5 +10 +5 +first-ID +/127.0.0.1 +raw",
        rf"{name} +HOST:PORT +\(1\) +range +Stable +2",
        rf"{name} +Empty",
        rf"{name} +{name}-topic +0 +1 +10 +9 ",
        rf"Deletion of requested consumer groups \('{name}-new'\) was successful",
    ):
        assert re.search(fact, everything), f"{fact} is not in:\n{everything}"


# ---- readers


@pytest.fixture
def topic(ours: BrokerProcess) -> str:
    name = f"read-{next(NUMBERS)}"
    with Raw(ours.bootstrap_servers) as raw:
        make_topic(raw, name)
    return name


def test_kafka_console_consumer_resumes_from_committed_offsets(
    tools: Tools, ours: BrokerProcess, topic: str
) -> None:
    def consume(*more: str) -> Outcome:
        return tools.succeed(
            "kafka-console-consumer",
            *("--bootstrap-server", ours.bootstrap_servers, "--topic", topic),
            *("--group", topic, "--from-beginning", "--timeout-ms", "15000", *more),
        )

    all_of_them = sorted(f"{number}" for records in RECORDS.values() for number in range(records))
    first = consume("--max-messages", "9")
    rest = consume("--max-messages", "5")
    assert sorted(first.lines + rest.lines) == all_of_them
    assert "Processed a total of 5 messages" in rest.stderr


def test_kafka_consumer_perf_test_reads_every_record(
    resident: ResidentTools, ours: BrokerProcess, topic: str
) -> None:
    read = resident.run(
        "kafka-consumer-perf-test",
        *("--bootstrap-server", ours.bootstrap_servers, "--topic", topic),
        *("--messages", str(sum(RECORDS.values())), "--group", topic, "--timeout", "30000"),
    )
    head, output = [line.split(", ") for line in read.stdout.splitlines()[-2:]]
    assert dict(zip(head, output, strict=True))["data.consumed.in.nMsg"] == "14", read


def test_kafka_verifiable_consumers_share_records(
    tools: Tools, ours: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Each prints its events as JSON lines."""
    where = ("--bootstrap-server", ours.bootstrap_servers, "--topic", topic)
    group = ("--group-id", topic, "--reset-policy", "earliest")
    with ExitStack() as stack:
        readers = []
        for number in range(2):
            log = tmp_path / f"reader-{number}.log"
            command = tools.command("kafka-verifiable-consumer", *where, *group)
            readers.append(JavaProcess(f"reader {number}", command, directory=tmp_path, log=log))
            stack.callback(readers[-1].kill)

        def events(reader: JavaProcess, name: str) -> list[dict[str, object]]:
            *whole, _ = reader.log().split("\n")  # the last line may be incomplete
            lines = [json.loads(line) for line in whole if line[:1] == "{"]
            return [line for line in lines if line["name"] == name]

        def share(reader: JavaProcess) -> int:
            given = events(reader, "partitions_assigned")
            partitions = given[-1]["partitions"] if given else ()
            assert isinstance(partitions, (list, tuple))
            return len(partitions)

        eventually(
            lambda: [share(reader) for reader in readers] == [1, 1],
            "each reads one partition",
            SECONDS,
        )
        written = tools.succeed(
            "kafka-verifiable-producer", *where, "--max-messages", "20", "--throughput", "-1"
        )
        ends = [json.loads(line) for line in written.lines]
        assert [(end["sent"], end["acked"]) for end in ends if end["name"] == "tool_data"] == [
            (20, 20)
        ]

        def consumed() -> int:
            return sum(
                int(str(event["count"]))
                for reader in readers
                for event in events(reader, "records_consumed")
            )

        everything = sum(RECORDS.values()) + 20
        eventually(lambda: consumed() >= everything, "all is consumed", SECONDS)
        for reader in readers:
            assert reader.stop() in (0, 128 + signal.SIGTERM)
            assert all(event["success"] for event in events(reader, "offsets_committed"))
        assert consumed() == everything
