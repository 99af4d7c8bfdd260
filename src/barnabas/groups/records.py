"""What stands in `__consumer_offsets`: keys and values in Kafka's format, so that either's tools read the other's.

    key    version 0, 1  group, topic, partition      value  0-4  offset, leader epoch, note, when it was committed
    key    version 2     group                        value  0-4  generation, protocol, leader, members

Both begin with their version as two bytes. The version of a key says what it is a key of; the fields of a version are
those of a message of the protocol, without a header. A value of null is a tombstone: the key has nothing any more.

Written are the newest versions that brokers of every release since 2.3 can read: key 1 and 2, value 3. A commit of an
old client that says itself how long it is to be kept has value 1, the only one with a place for that.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, NamedTuple, TypeVar

from barnabas.errors import RemoteWireError
from barnabas.wire.codec import Blob, Int32, Int64, Since, Until, compiled, encode_struct

VERSION = struct.Struct(">h")
CONTROL_KEY = struct.Struct(">hh")
COMMIT_MARKER = 1

OFFSET_KEYS = range(2)
OFFSET_KEY_WRITTEN = 1
GROUP_KEY = 2
VALUES = range(5)
VALUE_WRITTEN = 3
VALUE_WITH_EXPIRY = 1
FLEXIBLE_SINCE = 4

NEVER = -1

KeyValue = tuple[bytes, bytes | None]
S = TypeVar("S")

Bytes = Annotated[bytes, Blob()]
"""A copy of its own: what is read lives as long as the group."""


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: Int32


class GroupKey(NamedTuple):
    group_id: str


class CommittedOffset(NamedTuple):
    """Where a group goes on in one partition. `expire_timestamp` is -1 but for commits of old clients."""

    offset: Int64
    leader_epoch: Annotated[Int32, Since(3)] = -1
    metadata: str = ""
    commit_timestamp: Int64 = -1
    expire_timestamp: Annotated[Int64, Since(1), Until(1)] = NEVER


class MemberSnapshot(NamedTuple):
    member_id: str
    group_instance_id: Annotated[str | None, Since(3)] = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    session_timeout_ms: Int32 = -1
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadata(NamedTuple):
    """The value as it is written; `GroupSnapshot` is what the rest of the code knows."""

    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Annotated[Int64, Since(2)] = -1
    members: tuple[MemberSnapshot, ...] = ()


class GroupSnapshot(NamedTuple):
    """A group at the end of a rebalance, or without members since `current_state_timestamp`."""

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None = None
    leader: str | None = None
    current_state_timestamp: int = -1
    members: tuple[MemberSnapshot, ...] = ()


# ---- writing


def offset_record(group_id: str, topic: str, partition: int, value: CommittedOffset) -> KeyValue:
    version = VALUE_WRITTEN if value.expire_timestamp == NEVER else VALUE_WITH_EXPIRY
    return offset_key(group_id, topic, partition), versioned(version, value)


def offset_tombstone(group_id: str, topic: str, partition: int) -> KeyValue:
    return offset_key(group_id, topic, partition), None


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return versioned(OFFSET_KEY_WRITTEN, OffsetKey(group_id, topic, partition))


def group_metadata_record(snapshot: GroupSnapshot) -> KeyValue:
    value = GroupMetadata(*snapshot[1:])
    return group_key(snapshot.group_id), versioned(VALUE_WRITTEN, value)


def group_tombstone(group_id: str) -> KeyValue:
    return group_key(group_id), None


def group_key(group_id: str) -> bytes:
    return versioned(GROUP_KEY, GroupKey(group_id))


def versioned(version: int, fields: NamedTuple) -> bytes:
    return VERSION.pack(version) + b"".join(encode_struct(fields, version, flexible=False))


# ---- reading


def read_key(key: bytes) -> OffsetKey | GroupKey | None:
    """None for a version of which nothing is known: a newer broker may have written it, and it is passed over."""
    version = version_of(key)
    if version in OFFSET_KEYS:
        return read_fields(OffsetKey, version, key)
    if version == GROUP_KEY:
        return read_fields(GroupKey, version, key)
    return None


def read_offset(value: bytes) -> CommittedOffset:
    return read_fields(CommittedOffset, value_version(value), value)


def read_group(group_id: str, value: bytes) -> GroupSnapshot:
    version = value_version(value)
    read = read_fields(GroupMetadata, version, value)
    members = tuple(
        member._replace(
            # The oldest version has one timeout for both.
            rebalance_timeout_ms=member.rebalance_timeout_ms
            if version > 0
            else member.session_timeout_ms,
            subscription=bytes(member.subscription),
            assignment=bytes(member.assignment),
        )
        for member in read.members
    )
    return GroupSnapshot(group_id, *read._replace(members=members))


def is_commit_marker(key: bytes) -> bool:
    """Of a control batch, which ends a transaction: whether it was committed."""
    if len(key) < CONTROL_KEY.size:
        raise RemoteWireError("the key of a control record is cut short")
    return bool(CONTROL_KEY.unpack_from(key)[1] == COMMIT_MARKER)


def read_fields(cls: type[S], version: int, data: bytes) -> S:
    layout: Any = cls
    try:
        wire = compiled(layout, version, version >= FLEXIBLE_SINCE)
        value: S = wire.read(memoryview(data), VERSION.size)[0]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RemoteWireError(f"{cls.__name__} v{version}: {error}") from error
    return value


def version_of(data: bytes) -> int:
    if len(data) < VERSION.size:
        raise RemoteWireError("not even a version")
    return int(VERSION.unpack_from(data)[0])


def value_version(value: bytes) -> int:
    version = version_of(value)
    if version not in VALUES:
        raise RemoteWireError(f"a value of version {version}, known are 0 to {VALUES[-1]}")
    return version
