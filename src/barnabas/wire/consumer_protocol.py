"""What consumers of a group say to each other in bytes that the coordinator carries unread.

    version (2) | Subscription    from each member to the leader, in JoinGroup
    version (2) | Assignment      from the leader to each member, in SyncGroup

Fields are only ever added at the end, so a version that is not known yet is read as the newest that is.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Annotated, Any, NamedTuple

from barnabas.errors import RemoteWireError
from barnabas.wire.codec import Bytes, Int32, Since, compiled, encode_struct

PROTOCOL_TYPE = "consumer"
NEWEST = 3
VERSION = Struct(">h")


class TopicPartitions(NamedTuple):
    topic: str
    partitions: tuple[Int32, ...]


class Subscription(NamedTuple):
    """`owned_partitions` are those the member still reads, and `generation_id` is the one in which it was given them:
    of two that claim the same partition, the later is right."""

    topics: tuple[str, ...]
    user_data: Bytes | None = None
    owned_partitions: Annotated[tuple[TopicPartitions, ...], Since(1)] = ()
    generation_id: Annotated[Int32, Since(2)] = -1
    rack_id: Annotated[str | None, Since(3)] = None


class Assignment(NamedTuple):
    assigned_partitions: tuple[TopicPartitions, ...] = ()
    user_data: Bytes | None = None


def encode_subscription(subscription: Subscription, version: int = NEWEST) -> bytes:
    return encode(subscription, version)


def decode_subscription(data: bytes | memoryview) -> Subscription:
    subscription: Subscription = decode(Subscription, data)
    return subscription


def encode_assignment(assignment: Assignment, version: int = NEWEST) -> bytes:
    return encode(assignment, version)


def decode_assignment(data: bytes | memoryview) -> Assignment:
    """No bytes at all are the assignment of a member that was given nothing."""
    assignment: Assignment = decode(Assignment, data) if len(data) else Assignment()
    return assignment


def encode(value: Subscription | Assignment, version: int) -> bytes:
    return VERSION.pack(version) + b"".join(encode_struct(value, version, False))


def decode(cls: Any, data: bytes | memoryview) -> Any:
    if len(data) < VERSION.size:
        raise RemoteWireError(f"{cls.__name__} of {len(data)} bytes")
    (version,) = VERSION.unpack_from(data)
    if version < 0:
        raise RemoteWireError(f"{cls.__name__} has no version {version}")
    wire = compiled(cls, min(version, NEWEST), False)
    try:
        return wire.read(memoryview(data), VERSION.size)[0]
    except (error, IndexError, UnicodeDecodeError) as trouble:
        raise RemoteWireError(f"{cls.__name__} v{version} cannot be read: {trouble}") from trouble
