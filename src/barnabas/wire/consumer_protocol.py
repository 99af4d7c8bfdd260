"""The consumer protocol: bytes that the members of a group exchange through the coordinator, which does not read them.

    version (2) | ConsumerSubscription    from each member to the leader, in JoinGroup
    version (2) | ConsumerAssignment      from the leader to each member, in SyncGroup

New versions only add fields at the end. Data of an unknown later version is read as the latest known version.
"""

from __future__ import annotations

import struct
from typing import Annotated, NamedTuple, TypeVar

from barnabas.errors import RemoteWireError
from barnabas.wire.codec import VERSION, Bytes, Int32, Since, compile_struct, encode_versioned

PROTOCOL_TYPE = "consumer"
LATEST_VERSION = 3

T = TypeVar("T", bound=tuple[object, ...])


class TopicPartitions(NamedTuple):
    topic: str
    partitions: tuple[Int32, ...]


class ConsumerSubscription(NamedTuple):
    """The topics that a member subscribes to.

    `owned_partitions` are the partitions that the member still reads, assigned in generation `generation_id`. If two
    members claim a partition, the one with the later generation owns it.
    """

    topics: tuple[str, ...]
    user_data: Bytes | None = None
    owned_partitions: Annotated[tuple[TopicPartitions, ...], Since(1)] = ()
    generation_id: Annotated[Int32, Since(2)] = -1
    rack_id: Annotated[str | None, Since(3)] = None


class ConsumerAssignment(NamedTuple):
    assigned_partitions: tuple[TopicPartitions, ...] = ()
    user_data: Bytes | None = None


def encode_subscription(subscription: ConsumerSubscription, version: int = LATEST_VERSION) -> bytes:
    return encode_versioned(subscription, version)


def decode_subscription(data: bytes | memoryview) -> ConsumerSubscription:
    return decode_versioned(ConsumerSubscription, data)


def encode_assignment(assignment: ConsumerAssignment, version: int = LATEST_VERSION) -> bytes:
    return encode_versioned(assignment, version)


def decode_assignment(data: bytes | memoryview) -> ConsumerAssignment:
    """Decode an assignment. Empty data is an empty assignment."""
    return decode_versioned(ConsumerAssignment, data) if len(data) else ConsumerAssignment()


def decode_versioned(cls: type[T], data: bytes | memoryview) -> T:
    if len(data) < VERSION.size:
        raise RemoteWireError(f"{cls.__name__} has only {len(data)} bytes")
    (version,) = VERSION.unpack_from(data)
    if version < 0:
        raise RemoteWireError(f"{cls.__name__} has no version {version}")
    codec = compile_struct(cls, min(version, LATEST_VERSION), False)
    try:
        value: T = codec.read(memoryview(data), VERSION.size)[0]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RemoteWireError(f"{cls.__name__} v{version} is invalid: {error}") from error
    return value
