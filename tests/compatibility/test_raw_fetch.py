"""Fetch in every version: size limits, wait times and errors."""

from collections.abc import Callable
from time import monotonic
from uuid import uuid4

import pytest

from barnabas.batch.compression import Compression
from barnabas.errors import ErrorCode
from barnabas.wire.apis import APIS
from barnabas.wire.messages.fetch import FetchResponse
from tests.compatibility.raw import (
    Raw,
    batch_of,
    fetch_request,
    partitions_of,
    values_in,
)

NewTopic = Callable[..., str]
VERSIONS = APIS[1].versions
FIRST_WITH_BATCHES = 4
FIRST_WITH_IDS = 13


@pytest.mark.parametrize("version", VERSIONS[FIRST_WITH_BATCHES:])
def test_every_version_since_4_reads_batches(raw: Raw, topic: str, version: int) -> None:
    raw.produce(topic, batch_of(b"a", b"b"))
    topic_id = raw.topic_id(topic)
    request = fetch_request(topic, {0: 0}, topic_id=topic_id)
    answer = raw.ask(request, FetchResponse, version)
    assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, 0)
    (found,) = answer.responses
    if version < FIRST_WITH_IDS:
        assert found.topic == topic
    else:
        assert found.topic_id == topic_id
    (partition,) = found.partitions
    assert (partition.error_code, partition.high_watermark) == (ErrorCode.NONE, 2)
    assert partition.last_stable_offset == 2
    if version >= 5:
        assert partition.log_start_offset == 0
    assert partition.aborted_transactions is None
    assert values_in(partition) == [b"a", b"b"]


@pytest.mark.parametrize("version", VERSIONS[:FIRST_WITH_BATCHES])
def test_fetch_before_v4_is_unsupported_for_batches(raw: Raw, topic: str, version: int) -> None:
    empty = raw.fetch(topic, 0, version=version)
    assert (empty.error_code, empty.high_watermark) == (ErrorCode.NONE, 0)
    raw.produce(topic, batch_of(b"a"))
    refused = raw.fetch(topic, 0, version=version)
    assert refused.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_read_committed_reads_everything(raw: Raw, topic: str) -> None:
    raw.produce(topic, batch_of(b"a", b"b"))
    found = raw.fetch(topic, 0, isolation_level=1)
    assert values_in(found) == [b"a", b"b"]
    assert found.last_stable_offset == 2
    assert found.aborted_transactions == ()


def test_fetch_inside_batch_returns_whole_batch(raw: Raw, topic: str) -> None:
    raw.produce(topic, batch_of(b"a"))
    raw.produce(topic, batch_of(b"b", b"c", b"d"))
    assert values_in(raw.fetch(topic, 2)) == [b"b", b"c", b"d"]


# ---- errors


@pytest.mark.parametrize("offset", [-1, 3, 2**62])
def test_fetch_outside_log_is_out_of_range(raw: Raw, topic: str, offset: int) -> None:
    raw.produce(topic, batch_of(b"a", b"b"))
    found = raw.fetch(topic, offset)
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (found.high_watermark, values_in(found)) == (-1, [])


def test_fetch_at_log_end_returns_nothing(raw: Raw, topic: str) -> None:
    raw.produce(topic, batch_of(b"a", b"b"))
    found = raw.fetch(topic, 2)
    assert (found.error_code, found.high_watermark, values_in(found)) == (0, 2, [])


def test_fetch_of_unknown_partition_returns_error(raw: Raw, topic: str) -> None:
    assert raw.fetch("nowhere", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = raw.ask(fetch_request(topic, {5: 0}), FetchResponse, 12)
    assert partitions_of(answer)[5].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_fetch_of_unknown_topic_id_returns_error(raw: Raw) -> None:
    answer = raw.ask(fetch_request("", {0: 0}, topic_id=uuid4()), FetchResponse, 13)
    assert answer.error_code == ErrorCode.NONE
    assert partitions_of(answer)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_fetch_with_newer_leader_epoch_is_rejected(raw: Raw, topic: str) -> None:
    raw.produce(topic, batch_of(b"a"))
    assert raw.fetch(topic, 0, current_leader_epoch=0).error_code == ErrorCode.NONE
    newer = raw.fetch(topic, 0, current_leader_epoch=1)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_zstd_topic_requires_fetch_v10(raw: Raw, new_topic: NewTopic) -> None:
    topic = new_topic(**{"compression.type": "zstd"})
    raw.produce(topic, batch_of(b"a" * 500, compression=Compression.ZSTD))
    refused = raw.fetch(topic, 0, version=9)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert values_in(raw.fetch(topic, 0, version=10)) == [b"a" * 500]


# ---- size limits


def test_first_batch_may_exceed_every_limit(raw: Raw, topic: str) -> None:
    raw.produce(topic, batch_of(b"a" * 5000))
    raw.produce(topic, batch_of(b"b" * 5000))
    found = raw.fetch(topic, 0, max_bytes=1, partition_max_bytes=1)
    assert values_in(found) == [b"a" * 5000]


def test_partition_max_bytes_limits_each_partition(raw: Raw, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        for value in (b"a", b"b", b"c"):
            raw.produce(topic, batch_of(value * 1000), partition=partition)
    request = fetch_request(topic, {0: 0, 1: 0}, partition_max_bytes=2500)
    found = partitions_of(raw.ask(request, FetchResponse, 12))
    for partition in (0, 1):
        assert len(found[partition].records or b"") <= 2500
        assert values_in(found[partition]) == [b"a" * 1000, b"b" * 1000]


def test_max_bytes_is_used_up_in_request_order(raw: Raw, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    for partition in range(3):
        raw.produce(topic, batch_of(b"x" * 1000), partition=partition)
    request = fetch_request(topic, {2: 0, 0: 0, 1: 0}, max_bytes=2500)
    found = partitions_of(raw.ask(request, FetchResponse, 12))
    assert values_in(found[2]) == values_in(found[0]) == [b"x" * 1000]
    # The remaining bytes do not hold a batch, and only the first batch may exceed the limit.
    assert not found[1].records
    assert (found[1].error_code, found[1].high_watermark) == (0, 1)


def test_fetch_returns_one_segment_per_response(raw: Raw, new_topic: NewTopic) -> None:
    topic = new_topic(**{"segment.bytes": "3000"})
    for number in range(12):
        raw.produce(topic, batch_of(f"{number}".encode() + bytes(700)))
    found: list[bytes] = []
    while len(found) < 12:
        part = values_in(raw.fetch(topic, len(found)))
        assert part
        found += [value.rstrip(b"\0") for value in part if value is not None]
    assert found == [f"{number}".encode() for number in range(12)]


# ---- wait times


def test_fetch_waits_for_data(raw: Raw, servers: str, topic: str) -> None:
    with Raw(servers) as reader:
        began = monotonic()
        begun = reader.begin(fetch_request(topic, {0: 0}, max_wait_ms=15_000), 12)
        raw.produce(topic, batch_of(b"at last"))
        answer = reader.answer(FetchResponse, *begun)
        assert values_in(partitions_of(answer)[0]) == [b"at last"]
        assert monotonic() - began < 10


def test_fetch_waits_for_min_bytes(raw: Raw, servers: str, topic: str) -> None:
    batch = batch_of(b"x" * 100)
    with Raw(servers) as reader:
        request = fetch_request(topic, {0: 0}, max_wait_ms=15_000, min_bytes=3 * len(batch))
        begun = reader.begin(request, 12)
        for _ in range(3):
            raw.produce(topic, batch)
        answer = reader.answer(FetchResponse, *begun)
        assert values_in(partitions_of(answer)[0]) == [b"x" * 100] * 3


def test_fetch_returns_available_data_after_max_wait(raw: Raw, topic: str) -> None:
    raw.produce(topic, batch_of(b"a"))
    began = monotonic()
    found = raw.fetch(topic, 0, max_wait_ms=200, min_bytes=10_000)
    assert monotonic() - began >= 0.2
    assert values_in(found) == [b"a"]


def test_fetch_error_returns_at_once(raw: Raw) -> None:
    began = monotonic()
    found = raw.fetch("nowhere", 0, max_wait_ms=15_000)
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert monotonic() - began < 10


LONG_WAIT_MS = 20_000
SOON_SECONDS = 10


def test_fetch_does_not_wait_beyond_max_bytes(raw: Raw, topic: str) -> None:
    raw.produce(topic, batch_of(b"x" * 2000))
    began = monotonic()
    found = raw.fetch(topic, 0, max_bytes=1000, min_bytes=100_000, max_wait_ms=LONG_WAIT_MS)
    assert len(values_in(found)) == 1
    assert monotonic() - began < SOON_SECONDS


def test_fetch_does_not_wait_at_end_of_closed_segment(raw: Raw, new_topic: NewTopic) -> None:
    topic = new_topic(**{"segment.bytes": "3000"})
    for _ in range(4):
        raw.produce(topic, batch_of(b"x" * 2000))
    began = monotonic()
    found = raw.fetch(topic, 0, min_bytes=100_000, max_wait_ms=LONG_WAIT_MS)
    assert len(values_in(found)) == 1
    assert monotonic() - began < SOON_SECONDS
