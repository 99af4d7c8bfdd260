"""kcat, run from the command line."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas import LocalCluster
from support.waiting import eventually
from tests import tools
from tests.compatibility.files import Files
from tests.compatibility.optional import require
from tests.compatibility.raw import TIMESTAMP, Raw, batch_of
from tests.compatibility.sample import BIG_VALUE, CODECS, TOO_BIG_VALUE

SECONDS = 30
TO_THE_END = ("-e", "-X", "fetch.wait.max.ms=10")
"""kcat detects the end of a partition when a fetch times out without data."""


@pytest.fixture(autouse=True)
def require_kcat() -> None:
    require(tools.have_kcat(), "kcat")


def kcat(
    servers: str, *arguments: str, stdin: bytes = b"", fails: bool = False
) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        ["kcat", "-b", servers, *arguments],
        input=stdin,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stderr.decode()
    return done


def consume(servers: str, topic: str, *arguments: str) -> list[Any]:
    """Consume partition 0 to its end; returns kcat's JSON records."""
    begin = () if "-o" in arguments else ("-o", "beginning")
    more = ("-C", "-t", topic, "-p", "0", *TO_THE_END, "-q", "-J", *begin, *arguments)
    return [json.loads(line) for line in kcat(servers, *more).stdout.splitlines()]


@pytest.mark.parametrize("codec", CODECS)
def test_lines_round_trip_with_codec(servers: str, topic: str, files: Files, codec: str) -> None:
    lines = [f"key{number}:value {number} {'x' * 100}" for number in range(200)]
    options = () if codec == "none" else ("-z", codec)
    kcat(servers, "-P", "-t", topic, "-K:", *options, stdin="\n".join(lines).encode())
    found = consume(servers, topic)
    assert [f"{record['key']}:{record['payload']}" for record in found] == lines
    assert [record["offset"] for record in found] == list(range(200))
    assert files.codecs(topic) == {codec}


def test_headers_tombstones_and_timestamps_round_trip(
    servers: str, topic: str, files: Files
) -> None:
    options = ("-K:", "-Z", "-H", "trace=1", "-H", "trace=2")
    kcat(servers, "-P", "-t", topic, *options, stdin=b"gone:\nkept:value\n")
    (gone, kept) = consume(servers, topic)
    assert (gone["key"], gone["payload"], kept["payload"]) == ("gone", None, "value")
    assert gone["headers"] == ["trace", "1", "trace", "2"]
    stored = [record for batch in files.batches(topic) for record in batch.records]
    assert [gone["ts"], kept["ts"]] == [record.timestamp for record in stored]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_produce_with_every_acks_setting(servers: str, topic: str, acks: str) -> None:
    kcat(servers, "-P", "-t", topic, "-X", f"acks={acks}", stdin=b"a\nb\n")
    with Raw(servers) as raw:  # with acks=0 records may still be in flight
        eventually(lambda: raw.list_offset(topic, -1).offset == 2, "both have arrived")
    assert [record["payload"] for record in consume(servers, topic)] == ["a", "b"]


def test_idempotent_producer_sets_batch_sequences(servers: str, topic: str, files: Files) -> None:
    options = ("-X", "enable.idempotence=true", "-X", "batch.num.messages=10")
    kcat(servers, "-P", "-t", topic, *options, stdin=b"\n".join([b"x"] * 100))
    headers = [batch.header for batch in files.batches(topic)]
    assert headers[0].producer_id >= 0
    assert [header.base_sequence for header in headers] == [h.base_offset for h in headers]


def test_file_above_max_message_bytes_is_rejected(
    servers: str, topic: str, files: Files, tmp_path: Path
) -> None:
    big, too_big = tmp_path / "big", tmp_path / "too-big"
    big.write_bytes(BIG_VALUE)
    too_big.write_bytes(TOO_BIG_VALUE)
    produce = ("-P", "-t", topic, "-X", "message.max.bytes=2000000")
    kcat(servers, *produce, str(big))
    assert files.values(topic) == [BIG_VALUE]
    assert kcat(servers, "-C", "-t", topic, *TO_THE_END, "-q", "-D", "").stdout == BIG_VALUE
    refused = kcat(servers, *produce, str(too_big), fails=True)
    assert b"Message size too large" in refused.stderr


def test_lines_are_spread_over_partitions(servers: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=12)
    lines = [f"{number}:{number}" for number in range(300)]
    kcat(servers, "-P", "-t", topic, "-K:", stdin="\n".join(lines).encode())
    found = kcat(servers, "-C", "-t", topic, *TO_THE_END, "-q", "-f", "%p %k\n").stdout.decode()
    pairs = [line.split() for line in found.splitlines()]
    assert {int(key) for _, key in pairs} == set(range(300))
    assert {int(partition) for partition, _ in pairs} == set(range(12))


@pytest.fixture
def five_records(servers: str, topic: str) -> str:
    """A topic with values 0 to 4, one second apart."""
    with Raw(servers) as raw:
        for number in range(5):
            raw.produce(topic, batch_of(b"%d" % number, timestamp=TIMESTAMP + 1000 * number))
    return topic


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("beginning", "01234"),
        ("3", "34"),
        ("-2", "34"),
        ("end", ""),
        (f"s@{TIMESTAMP + 1500}", "234"),
        ("77", ""),
    ],
)
def test_consume_from_given_offset(
    servers: str, five_records: str, offset: str, expected: str
) -> None:
    found = consume(servers, five_records, "-o", offset)
    assert "".join(record["payload"] for record in found) == expected


def test_out_of_range_offset_is_reset(servers: str, five_records: str) -> None:
    found = consume(servers, five_records, "-o", "77", "-X", "auto.offset.reset=earliest")
    assert [record["payload"] for record in found] == ["0", "1", "2", "3", "4"]


def test_read_committed_reads_everything(servers: str, five_records: str) -> None:
    assert len(consume(servers, five_records, "-X", "isolation.level=read_committed")) == 5


def test_offsets_for_times(servers: str, five_records: str) -> None:
    def at(timestamp: int) -> str:
        return kcat(servers, "-Q", "-t", f"{five_records}:0:{timestamp}").stdout.decode().strip()

    assert at(TIMESTAMP + 1500) == f"{five_records} [0] offset 2"
    assert at(-1) == f"{five_records} [0] offset 5"
    assert at(-2) == f"{five_records} [0] offset 0"


def test_list_metadata(servers: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    found = json.loads(kcat(servers, "-L", "-J", "-t", topic).stdout)
    assert found["brokers"] == [{"id": 1, "name": servers}]
    assert found["controllerid"] == 1
    (listed,) = found["topics"]
    assert listed["topic"] == topic
    assert [(entry["partition"], entry["leader"]) for entry in listed["partitions"]] == [
        (0, 1),
        (1, 1),
        (2, 1),
    ]


def test_producing_to_unknown_topic_creates_it(servers: str) -> None:
    kcat(servers, "-P", "-t", "created-by-kcat", stdin=b"hello\n")
    assert [record["payload"] for record in consume(servers, "created-by-kcat")] == ["hello"]


def test_unknown_topic_is_not_created_when_auto_creation_is_off() -> None:
    with LocalCluster(settings={"auto.create.topics.enable": "false"}) as strict:
        options = ("-X", "topic.metadata.propagation.max.ms=100", "-X", "message.timeout.ms=20000")
        refused = kcat(
            strict.bootstrap_servers, "-P", "-t", "nowhere", *options, stdin=b"a\n", fails=True
        )
    assert b"Unknown topic" in refused.stderr or b"Unknown partition" in refused.stderr
