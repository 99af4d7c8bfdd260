"""Attacks that need more than one generated request: data that enlarges responses, several connections, batches.

Each takes a `Tally` to send with and the broker's entities. It returns when all its requests have ended.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from itertools import repeat

from barnabas.batch.compression import Compression
from barnabas.batch.records import Record, build_batch, seal_batch
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.adversary.broker import MB
from tests.adversary.generator import FILL, LARGE, Send, Writer
from tests.adversary.hints import BATCH, EMPTY_GROUP, TOPIC, Entities
from tests.adversary.measure import GROWTH_BYTES_MAX, Tally, remaining
from tests.adversary.schema import Path, api_named
from tests.faults.raw_client import produce_frame
from tests.raw_connection import frame

Amplifier = Callable[[Tally, Entities], None]

SMALL_REQUEST = 20_000
UNPACKED_BYTES = 15 * MB
BOMBS = {
    Compression.ZSTD: 100,
    Compression.GZIP: 100,
    Compression.LZ4: 100,
    Compression.SNAPPY: 15,
}
"""Batches in one request, by codec. Snappy packs 20 to 1 at most, so that few of these batches fill a request."""
MANY_RECORDS = 190_000
SESSIONS = 20
UNREAD = 12
"""Answers of 9.5 MB each, together more than the 64 MB that a broker keeps for clients that do not read."""
HALF, ANNOUNCED = 500, 2000
CONTROL_REQUEST_BYTES = 8 * MB
NOW_MS = 1_700_000_000_000


# ---- one name, many times


def repeat_name(
    tally: Tally,
    entities: Entities,
    *,
    api: str,
    version: int,
    path: Path,
    size: int = SMALL_REQUEST,
) -> None:
    tally.exchange(Send(filled_request(entities, api, version, path, size)))


def filled_request(entities: Entities, api: str, version: int, path: Path, size: int) -> bytes:
    return Writer(
        api_named(api), version, entities, size=size, counts={path: FILL}, wildcards=True
    ).frame()


def commit_below_slashes(tally: Tally, entities: Entities) -> None:
    """Groups that are deep paths in the registry, where version 0 keeps offsets."""
    for number in range(3):
        name = f"{EMPTY_GROUP}-{number}" + "/a" * 5000
        writer = Writer(api_named("OffsetCommit"), 0, entities, overrides={("group_id",): name})
        tally.exchange(Send(writer.frame()))


def large_control_request(tally: Tally, entities: Entities, *, api: str, path: Path) -> None:
    """Requests of the controller may be larger than others, and any client can send them."""
    version = api_named(api).versions[-1]
    tally.exchange(Send(filled_request(entities, api, version, path, CONTROL_REQUEST_BYTES)))


# ---- fetches


def fetch_request(
    partitions: tuple[FetchPartition, ...], *, wait_ms: int = 0, min_bytes: int = 1, epoch: int = -1
) -> bytes:
    """Version 12 names its topic."""
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        session_epoch=epoch,
        topics=(FetchTopic(topic=TOPIC, partitions=partitions),),
    )
    return frame(request, 12)


def fetch_waits_for_one_partition(tally: Tally, entities: Entities) -> None:
    """Every record that is produced wakes a fetch that names its partition 25,000 times."""
    wanted = FetchPartition(5, fetch_offset=0, partition_max_bytes=MB)
    waiting = fetch_request((wanted,) * 25_000, wait_ms=3000, min_bytes=1 << 30)
    produce = produce_frame(TOPIC, 5, [b"value"], acks=1)
    with tally.connect() as fetcher, tally.connect() as producer:
        tally.send(fetcher, waiting)
        for _ in range(20):
            tally.send(producer, produce)
            tally.receive(producer)
        tally.receive(fetcher)


def fetch_sessions_of_unknown_partitions(tally: Tally, entities: Entities) -> None:
    """Sessions that remember partitions which do not exist, on many connections."""
    unknown = tuple(FetchPartition(100_000 + at, partition_max_bytes=1) for at in range(25_000))
    opening = fetch_request(unknown, epoch=0)
    with ExitStack() as stack:
        for _ in range(SESSIONS):
            connection = stack.enter_context(tally.connect())
            tally.send(connection, opening)
            tally.receive(connection)


# ---- batches


def produce_request(batches: list[bytes]) -> bytes:
    partitions = tuple(PartitionProduceData(at, batch) for at, batch in enumerate(batches))
    request = ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=(TopicProduceData(TOPIC, partitions),)
    )
    return frame(request, 9)


@cache
def bomb(codec: Compression) -> bytes:
    record = Record(0, NOW_MS, None, bytes(UNPACKED_BYTES))
    return build_batch([record], compression=codec)


def produce_bombs(tally: Tally, _: Entities, *, codec: Compression) -> None:
    tally.exchange(Send(produce_request(list(repeat(bomb(codec), BOMBS[codec])))))


def produce_many_small_batches(tally: Tally, entities: Entities) -> None:
    number = 8 * MB // (len(BATCH) + 5)
    tally.exchange(Send(produce_request([BATCH] * min(number, 80_000))))


@cache
def crowded_batch() -> bytes:
    """Records of six or seven bytes, without keys and values."""
    body = bytearray()
    for at in range(MANY_RECORDS):
        delta = bytearray()
        rest = at << 1
        while rest > 0x7F:
            delta.append(rest & 0x7F | 0x80)
            rest >>= 7
        delta.append(rest)
        record = b"\x00\x00" + delta + b"\x01\x01\x00"
        body += struct.pack("B", len(record) << 1) + record
    return seal_batch(
        body,
        count=MANY_RECORDS,
        last_offset_delta=MANY_RECORDS - 1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        attributes=0,
    )


def produce_crowded_batch(tally: Tally, _: Entities) -> None:
    tally.exchange(Send(produce_request([crowded_batch()])))


# ---- many connections


def unread_answers(tally: Tally, entities: Entities) -> None:
    """Large answers to clients that do not read them."""
    request = filled_request(entities, "DescribeGroups", 5, ("groups",), 1140)
    with ExitStack() as stack:
        lazy = [stack.enter_context(tally.connect()) for _ in range(UNREAD)]
        for connection in lazy:
            tally.send(connection, request)
        for connection in lazy:
            connection.settimeout(remaining(tally.deadline))
            tally.largest_bytes = max(tally.largest_bytes, announced_size(connection))


def announced_size(connection: socket.socket) -> int:
    """The size of the answer that has begun to come; 0 if the broker closed the connection instead."""
    try:
        data = connection.recv(4)
    except ConnectionError:
        return 0
    return int.from_bytes(data) if len(data) == 4 else 0


def half_requests(tally: Tally, entities: Entities) -> None:
    """The largest requests but for their last byte, on many connections."""
    whole = filled_request(entities, "Metadata", 12, ("topics",), LARGE)
    with ExitStack() as stack:
        for _ in range(HALF):
            tally.send(stack.enter_context(tally.connect()), whole[:-1])
        with tally.connect() as other:
            tally.send(other, filled_request(entities, "Metadata", 12, ("topics",), 1100))
            tally.receive(other)


def announced_requests(tally: Tally, entities: Entities) -> None:
    """The first bytes of large requests, on so many connections that most of them wait for memory."""
    first = filled_request(entities, "Metadata", 12, ("topics",), LARGE)[:100]
    with ExitStack() as stack:
        for _ in range(ANNOUNCED):
            tally.send(stack.enter_context(tally.connect()), first)
        with tally.connect() as other:
            tally.send(other, filled_request(entities, "Metadata", 12, ("topics",), 1100))
            tally.receive(other)


AMPLIFIERS: dict[str, Amplifier] = {
    "OffsetFetch v8 of one group": partial(
        repeat_name, api="OffsetFetch", version=8, path=("groups",)
    ),
    "DescribeGroups of one group": partial(
        repeat_name, api="DescribeGroups", version=5, path=("groups",)
    ),
    "Metadata of one topic": partial(repeat_name, api="Metadata", version=12, path=("topics",)),
    "DescribeConfigs of one topic": partial(
        repeat_name, api="DescribeConfigs", version=4, path=("resources",)
    ),
    "DescribeProducers of one partition": partial(
        repeat_name, api="DescribeProducers", version=0, path=("topics", "partition_indexes")
    ),
    "DescribeTopicPartitions of one topic": partial(
        repeat_name, api="DescribeTopicPartitions", version=0, path=("topics",)
    ),
    "FindCoordinator of 120,000 keys": partial(
        repeat_name, api="FindCoordinator", version=6, path=("coordinator_keys",), size=LARGE
    ),
    "OffsetCommit v0 of slashed groups": commit_below_slashes,
    "LeaderAndIsr of 8 MiB": partial(
        large_control_request, api="LeaderAndIsr", path=("topic_states", "partition_states")
    ),
    "UpdateMetadata of 8 MiB": partial(
        large_control_request, api="UpdateMetadata", path=("topic_states", "partition_states")
    ),
    "StopReplica of 8 MiB": partial(
        large_control_request, api="StopReplica", path=("topic_states", "partition_states")
    ),
    "Fetch that waits for one partition": fetch_waits_for_one_partition,
    "Fetch sessions of unknown partitions": fetch_sessions_of_unknown_partitions,
    "Produce of zstd bombs": partial(produce_bombs, codec=Compression.ZSTD),
    "Produce of gzip bombs": partial(produce_bombs, codec=Compression.GZIP),
    "Produce of lz4 bombs": partial(produce_bombs, codec=Compression.LZ4),
    "Produce of snappy bombs": partial(produce_bombs, codec=Compression.SNAPPY),
    "Produce of small batches": produce_many_small_batches,
    "Produce of 190,000 records": produce_crowded_batch,
    "unread answers": unread_answers,
    "half requests": half_requests,
    "announced requests": announced_requests,
}


MANY_CONNECTIONS = (
    "Fetch sessions of unknown partitions",
    "unread answers",
    "half requests",
    "announced requests",
)
"""These may take as much memory as a broker under siege: see `siege.RSS_BYTES_MAX`."""


def growth_max(name: str) -> int:
    return 320 * MB if name in MANY_CONNECTIONS else GROWTH_BYTES_MAX


def against(amplifier: Amplifier, entities: Entities) -> Callable[[Tally], None]:
    """The amplifier as an attack on a broker with these entities."""
    return lambda tally: amplifier(tally, entities)
