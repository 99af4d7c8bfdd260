"""Records of `__consumer_offsets` for groups of the new consumer protocol (KIP-848), in Kafka's format.

    key version 3    group            ConsumerGroupEpochValue       group epoch
    key version 4    group            SubscriptionValue             topics of all members: id, partitions, racks
    key version 5    group, member    MemberMetadataValue           client, subscription, assignor, timeouts
    key version 6    group            TargetEpochValue              group epoch for which the target was computed
    key version 7    group, member    TargetAssignmentValue         partitions that the member should own
    key version 8    group, member    CurrentAssignmentValue        epoch, state and partitions of the member

Keys are not flexible. Values have version 0, which is flexible. A null value is a tombstone. A group exists while it
has a record with key version 3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from barnabas.errors import RemoteWireError
from barnabas.groups.records import Bytes, KeyValue, read_version
from barnabas.wire.codec import (
    VERSION,
    Int8,
    Int32,
    Tag,
    compile_struct,
    encode_struct,
    encode_versioned,
)

CONSUMER_VALUE_VERSION = 0

Assignment = Mapping[UUID, frozenset[int]]
"""Partitions by topic id. No set is empty."""
NO_PARTITIONS: Assignment = {}


class ConsumerGroupEpochKey(NamedTuple):
    group_id: str


class SubscriptionKey(NamedTuple):
    group_id: str


class MemberMetadataKey(NamedTuple):
    group_id: str
    member_id: str


class TargetEpochKey(NamedTuple):
    group_id: str


class TargetAssignmentKey(NamedTuple):
    group_id: str
    member_id: str


class CurrentAssignmentKey(NamedTuple):
    group_id: str
    member_id: str


class ConsumerGroupEpochValue(NamedTuple):
    epoch: Int32


class PartitionRacks(NamedTuple):
    partition: Int32
    racks: tuple[str, ...]


class SubscribedTopic(NamedTuple):
    """A topic that a group subscribes to. `racks` is empty if no replica has a rack."""

    topic_id: UUID
    name: str
    partition_count: Int32
    racks: tuple[PartitionRacks, ...] = ()


class SubscriptionValue(NamedTuple):
    topics: tuple[SubscribedTopic, ...]


class SupportedProtocol(NamedTuple):
    """An assignor that a member of the classic protocol supports, and the member's metadata for it."""

    name: str
    metadata: Bytes


class ClassicMetadata(NamedTuple):
    """State of a member that uses the classic protocol in a group of the new protocol."""

    session_timeout_ms: Int32
    supported_protocols: tuple[SupportedProtocol, ...]


class MemberMetadataValue(NamedTuple):
    """Kafka 3.9 writes an empty regular expression: it has the field, but not yet the feature."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None = None
    classic_metadata: Annotated[ClassicMetadata | None, Tag(0)] = None


class TargetEpochValue(NamedTuple):
    assignment_epoch: Int32


class AssignedTopic(NamedTuple):
    topic_id: UUID
    partitions: tuple[Int32, ...]


class TargetAssignmentValue(NamedTuple):
    topics: tuple[AssignedTopic, ...]


class CurrentAssignmentValue(NamedTuple):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned: tuple[AssignedTopic, ...] = ()
    pending_revocation: tuple[AssignedTopic, ...] = ()


ConsumerKey = (
    ConsumerGroupEpochKey
    | SubscriptionKey
    | MemberMetadataKey
    | TargetEpochKey
    | TargetAssignmentKey
    | CurrentAssignmentKey
)
ConsumerValue = (
    ConsumerGroupEpochValue
    | SubscriptionValue
    | MemberMetadataValue
    | TargetEpochValue
    | TargetAssignmentValue
    | CurrentAssignmentValue
)

LAYOUTS: dict[int, tuple[type[Any], type[Any]]] = {
    3: (ConsumerGroupEpochKey, ConsumerGroupEpochValue),
    4: (SubscriptionKey, SubscriptionValue),
    5: (MemberMetadataKey, MemberMetadataValue),
    6: (TargetEpochKey, TargetEpochValue),
    7: (TargetAssignmentKey, TargetAssignmentValue),
    8: (CurrentAssignmentKey, CurrentAssignmentValue),
}
"""Types of key and value by version of the key."""
KEY_VERSIONS: dict[type[Any], int] = {key: version for version, (key, _) in LAYOUTS.items()}


class ConsumerRecord(NamedTuple):
    """A change of a group. A value of None deletes the key."""

    key: ConsumerKey
    value: ConsumerValue | None


# ---- assignments


def to_topics(assignment: Assignment) -> tuple[AssignedTopic, ...]:
    """Return the assignment as written: sorted by topic id, partitions ascending."""
    return tuple(
        AssignedTopic(topic_id, tuple(sorted(partitions)))
        for topic_id, partitions in sorted(assignment.items())
    )


def to_assignment(topics: tuple[AssignedTopic, ...]) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in topics if partitions}


# ---- writing


def encode_consumer_record(record: ConsumerRecord) -> KeyValue:
    key = encode_versioned(record.key, KEY_VERSIONS[type(record.key)])
    if record.value is None:
        return key, None
    fields = b"".join(encode_struct(record.value, CONSUMER_VALUE_VERSION, flexible=True))
    return key, VERSION.pack(CONSUMER_VALUE_VERSION) + fields


# ---- reading


def is_consumer_key(key: bytes) -> bool:
    """Return whether the key belongs to a group of the new protocol. Raises RemoteWireError if it has no version."""
    return read_version(key) in LAYOUTS


def read_consumer_record(key: bytes, value: bytes | None) -> ConsumerRecord:
    """Decode a record for whose key `is_consumer_key` is true. Raises RemoteWireError."""
    version = read_version(key)
    key_type, value_type = LAYOUTS[version]
    decoded_key = decode_consumer_struct(key_type, version, key, flexible=False)
    if value is None:
        return ConsumerRecord(decoded_key, None)
    value_version = read_version(value)
    if value_version != CONSUMER_VALUE_VERSION:
        raise RemoteWireError(
            f"unknown {value_type.__name__} version {value_version}, "
            f"supported is {CONSUMER_VALUE_VERSION}"
        )
    decoded = decode_consumer_struct(value_type, value_version, value, flexible=True)
    if isinstance(decoded, MemberMetadataValue) and decoded.classic_metadata is not None:
        decoded = decoded._replace(classic_metadata=copy_metadata(decoded.classic_metadata))
    return ConsumerRecord(decoded_key, decoded)


def copy_metadata(classic: ClassicMetadata) -> ClassicMetadata:
    """Copy the views of the record, so that the record can be freed."""
    return classic._replace(
        supported_protocols=tuple(
            SupportedProtocol(name, bytes(metadata))
            for name, metadata in classic.supported_protocols
        )
    )


def decode_consumer_struct(layout: Any, version: int, data: bytes, *, flexible: bool) -> Any:
    try:
        return compile_struct(layout, version, flexible).read(memoryview(data), VERSION.size)[0]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RemoteWireError(f"{layout.__name__} v{version}: {error}") from error
