"""Keys and values of `__consumer_offsets`, in Kafka's format.

    key versions 0, 1    group, topic, partition    value versions 0-4    offset, leader epoch, metadata, timestamp
    key version 2        group                      value versions 0-4    generation, protocol, leader, members

Keys and values start with a two-byte version. The version of a key determines its type. The fields are encoded as in a
protocol message without a header. A null value is a tombstone: it deletes the key.

Barnabas writes the newest versions that every Kafka broker since 2.3 can read: key versions 1 and 2, value version 3.
A commit of an old client with its own retention time gets value version 1, the only one with an expiry timestamp.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, NamedTuple, TypeVar

from barnabas.errors import RemoteWireError
from barnabas.model import NO_TIMESTAMP
from barnabas.wire.codec import (
    VERSION,
    Blob,
    Int32,
    Int64,
    Since,
    Until,
    compile_struct,
    encode_versioned,
)

CONTROL_KEY = struct.Struct(">hh")
COMMIT_MARKER = 1

OFFSET_KEY_VERSIONS = range(2)
WRITTEN_OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
VALUE_VERSIONS = range(5)
WRITTEN_VALUE_VERSION = 3
VALUE_VERSION_WITH_EXPIRY = 1
FLEXIBLE_SINCE = 4

KeyValue = tuple[bytes, bytes | None]
S = TypeVar("S")

Bytes = Annotated[bytes, Blob()]
"""Decoded as a view of the record. `read_group` copies the bytes, so that the record can be freed."""


class OffsetCommitKey(NamedTuple):
    group_id: str
    topic: str
    partition: Int32


class GroupMetadataKey(NamedTuple):
    group_id: str


class OffsetCommitValue(NamedTuple):
    """Committed offset of one partition. `expire_timestamp` is -1 except in commits of old clients."""

    offset: Int64
    leader_epoch: Annotated[Int32, Since(3)] = -1
    metadata: str = ""
    commit_timestamp: Int64 = -1
    expire_timestamp: Annotated[Int64, Since(1), Until(1)] = NO_TIMESTAMP


class MemberSnapshot(NamedTuple):
    member_id: str
    group_instance_id: Annotated[str | None, Since(3)] = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    session_timeout_ms: Int32 = -1
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(NamedTuple):
    """A group after a rebalance, in the state that it entered at `current_state_timestamp` (ms)."""

    protocol_type: str
    generation: Int32
    protocol: str | None = None
    leader: str | None = None
    current_state_timestamp: Annotated[Int64, Since(2)] = -1
    members: tuple[MemberSnapshot, ...] = ()


# ---- writing


def offset_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> KeyValue:
    version = (
        WRITTEN_VALUE_VERSION
        if value.expire_timestamp == NO_TIMESTAMP
        else VALUE_VERSION_WITH_EXPIRY
    )
    return offset_key(group_id, topic, partition), encode_versioned(value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> KeyValue:
    return offset_key(group_id, topic, partition), None


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return encode_versioned(OffsetCommitKey(group_id, topic, partition), WRITTEN_OFFSET_KEY_VERSION)


def group_metadata_record(group_id: str, value: GroupMetadataValue) -> KeyValue:
    return group_key(group_id), encode_versioned(value, WRITTEN_VALUE_VERSION)


def group_tombstone(group_id: str) -> KeyValue:
    return group_key(group_id), None


def group_key(group_id: str) -> bytes:
    return encode_versioned(GroupMetadataKey(group_id), GROUP_KEY_VERSION)


# ---- reading


def read_key(key: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """Decode a key. Return None for an unknown version, which a newer broker may write. Raises RemoteWireError."""
    version = read_version(key)
    if version in OFFSET_KEY_VERSIONS:
        return decode_fields(OffsetCommitKey, version, key)
    if version == GROUP_KEY_VERSION:
        return decode_fields(GroupMetadataKey, version, key)
    return None


def read_offset(value: bytes) -> OffsetCommitValue:
    return decode_fields(OffsetCommitValue, read_value_version(value), value)


def read_group(value: bytes) -> GroupMetadataValue:
    version = read_value_version(value)
    group = decode_fields(GroupMetadataValue, version, value)
    members = tuple(
        member._replace(
            # Version 0 has one timeout for session and rebalance.
            rebalance_timeout_ms=member.rebalance_timeout_ms
            if version > 0
            else member.session_timeout_ms,
            subscription=bytes(member.subscription),
            assignment=bytes(member.assignment),
        )
        for member in group.members
    )
    return group._replace(members=members)


def is_commit_marker(key: bytes) -> bool:
    """Return whether the key of a control record commits its transaction. Raises RemoteWireError if it is too short."""
    if len(key) < CONTROL_KEY.size:
        raise RemoteWireError(
            f"control record key has {len(key)} bytes, expected at least {CONTROL_KEY.size}"
        )
    return bool(CONTROL_KEY.unpack_from(key)[1] == COMMIT_MARKER)


def decode_fields(cls: type[S], version: int, data: bytes) -> S:
    layout: Any = cls
    try:
        codec = compile_struct(layout, version, version >= FLEXIBLE_SINCE)
        value: S = codec.read(memoryview(data), VERSION.size)[0]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RemoteWireError(f"{cls.__name__} v{version}: {error}") from error
    return value


def read_version(data: bytes) -> int:
    if len(data) < VERSION.size:
        raise RemoteWireError(f"{len(data)} bytes, expected at least a two-byte version")
    return int(VERSION.unpack_from(data)[0])


def read_value_version(value: bytes) -> int:
    version = read_version(value)
    if version not in VALUE_VERSIONS:
        raise RemoteWireError(
            f"unknown value version {version}, supported are 0 to {VALUE_VERSIONS[-1]}"
        )
    return version
