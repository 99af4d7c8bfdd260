"""Decoder of Fetch requests: partitions are rows of fixed width, unpacked in one call."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas.errors import RemoteWireError
from barnabas.model import ZERO_ID
from barnabas.wire.codec import (
    ReadStep,
    build_struct_layout,
    decode,
    make_builder,
    make_tags_reader,
)
from barnabas.wire.messages.fetch import (
    NOT_A_REPLICA,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from barnabas.wire.primitives import read_count, read_uuid, skip_tags, string_codec

new_tuple: Final[Callable[..., Any]] = tuple.__new__

read_plain_string = string_codec(flexible=False, nullable=False).read
read_compact_string = string_codec(flexible=True, nullable=False).read

FETCH_HEAD_FIELDS: Final = [
    "replica_id",
    "max_wait_ms",
    "min_bytes",
    "max_bytes",
    "isolation_level",
    "session_id",
    "session_epoch",
]
build_fetch_request = make_builder(
    FetchRequest,
    [
        *FETCH_HEAD_FIELDS,
        "topics",
        "forgotten_topics_data",
        "rack_id",
        "cluster_id",
        "replica_state",
    ],
)


class FetchShape(NamedTuple):
    """Layout of a version: the numbers before the topics (`head`), and those of one partition (`row`)."""

    head: struct.Struct
    before: tuple[int, ...]
    """Defaults of the head fields that this version lacks at the beginning."""
    after: tuple[int, ...]
    """Defaults of the head fields that this version lacks at the end."""
    row: struct.Struct
    build_partitions: Callable[[Any], list[FetchPartition]]
    """Builds the partitions from unpacked rows. Skips rows with tags."""
    read_tags: ReadStep


@cache
def fetch_shape(version: int) -> FetchShape:
    layout = build_struct_layout(FetchRequest, version, flexible=True)
    head = [field.codec.letter for field in layout.plain if field.name in FETCH_HEAD_FIELDS]
    first, *others = FETCH_HEAD_FIELDS
    row, build_partitions = partition_rows(version)
    return FetchShape(
        head=struct.Struct(">" + "".join(head)),
        before=tuple(layout.absent[name] for name in (first,) if name in layout.absent),
        after=tuple(layout.absent[name] for name in others if name in layout.absent),
        row=struct.Struct(row),
        build_partitions=build_partitions,
        read_tags=make_tags_reader(layout.tagged),
    )


def partition_rows(version: int) -> tuple[str, Callable[[Any], list[FetchPartition]]]:
    """Return the struct format of a row, and `FetchShape.build_partitions`."""
    make, none = new_tuple, ZERO_ID
    if version >= 12:
        return ">iiqiqiB", lambda rows: [
            make(FetchPartition, (index, epoch, offset, fetched, start, size, none))
            for index, epoch, offset, fetched, start, size, tags in rows
            if not tags
        ]
    if version >= 9:
        return ">iiqqi", lambda rows: [
            make(FetchPartition, (index, epoch, offset, -1, start, size, none))
            for index, epoch, offset, start, size in rows
        ]
    if version >= 5:
        return ">iqqi", lambda rows: [
            make(FetchPartition, (index, -1, offset, -1, start, size, none))
            for index, offset, start, size in rows
        ]
    return ">iqi", lambda rows: [
        make(FetchPartition, (index, -1, offset, -1, -1, size, none))
        for index, offset, size in rows
    ]


def decode_fetch(version: int, data: memoryview, at: int = 0) -> FetchRequest:
    if version not in FetchRequest.VERSIONS:
        raise RemoteWireError(f"FetchRequest has no version {version}")
    try:
        return read_fetch(version, data, at) or decode(FetchRequest, version, data, at)
    except (struct.error, IndexError) as error:
        raise RemoteWireError(f"FetchRequest v{version} ends too early") from error
    except UnicodeDecodeError as error:
        raise RemoteWireError(f"FetchRequest v{version}: not UTF-8") from error


def read_fetch(version: int, data: memoryview, at: int) -> FetchRequest | None:
    """Decode a request. Returns None if a partition has tags: rows then have different sizes."""
    shape = fetch_shape(version)
    flexible = version >= 12
    topic_min_bytes = 18 if version >= 13 else 3 if flexible else 6
    row = shape.row
    values = [*shape.before, *shape.head.unpack_from(data, at), *shape.after]
    count, at = read_count(data, at + shape.head.size, flexible, topic_min_bytes)
    topics = []
    for _ in range(count):
        topic, topic_id, at = read_fetch_topic(version, data, at)
        rows, at = read_count(data, at, flexible, row.size)
        end = at + rows * row.size
        partitions = shape.build_partitions(row.iter_unpack(data[at:end]))
        if len(partitions) != rows:
            return None
        at = skip_tags(data, end) if flexible else end
        topics.append(new_tuple(FetchTopic, (topic, topic_id, tuple(partitions))))
    forgotten: tuple[ForgottenTopic, ...] = ()
    rack_id: str | None = ""
    if version >= 7:
        forgotten, at = read_forgotten(version, data, at, topic_min_bytes)
    if version >= 11:
        rack_id, at = (read_compact_string if flexible else read_plain_string)(data, at)
    values += (tuple(topics), forgotten, rack_id)
    if flexible:
        at = shape.read_tags(data, at, values)
    if version < 15:
        values += (NOT_A_REPLICA,) if flexible else (None, NOT_A_REPLICA)
    request: FetchRequest = build_fetch_request(values)
    return request


def read_fetch_topic(version: int, data: memoryview, at: int) -> tuple[str, UUID, int]:
    if version >= 13:
        topic_id, at = read_uuid(data, at)
        return "", topic_id, at
    topic, at = (read_compact_string if version >= 12 else read_plain_string)(data, at)
    return topic, ZERO_ID, at


def read_forgotten(
    version: int, data: memoryview, at: int, topic_min_bytes: int
) -> tuple[tuple[ForgottenTopic, ...], int]:
    flexible = version >= 12
    count, at = read_count(data, at, flexible, topic_min_bytes)
    forgotten = []
    for _ in range(count):
        topic, topic_id, at = read_fetch_topic(version, data, at)
        partitions, at = read_count(data, at, flexible, 4)
        indexes = struct.unpack_from(f">{partitions}i", data, at)
        at += 4 * partitions
        if flexible:
            at = skip_tags(data, at)
        forgotten.append(ForgottenTopic(topic, topic_id, indexes))
    return tuple(forgotten), at
