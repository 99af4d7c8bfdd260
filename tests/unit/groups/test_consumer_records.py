"""Records of groups of the new consumer protocol: bytes of the published schemas, written by hand."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import RemoteWireError
from barnabas.groups.consumer_records import (
    AssignedTopic,
    ClassicMetadata,
    ConsumerGroupEpochKey,
    ConsumerGroupEpochValue,
    ConsumerRecord,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    MemberMetadataKey,
    MemberMetadataValue,
    PartitionRacks,
    SubscribedTopic,
    SubscriptionKey,
    SubscriptionValue,
    SupportedProtocol,
    TargetAssignmentKey,
    TargetAssignmentValue,
    TargetEpochKey,
    TargetEpochValue,
    encode_consumer_record,
    is_consumer_key,
    read_consumer_record,
    to_assignment,
    to_topics,
)

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
TOPIC_HEX = "00112233445566778899aabbccddeeff"
GROUP_HEX = "0003 617070"
MEMBER_HEX = "0003 6d2d31"

CASES = {
    "group epoch": (
        ConsumerRecord(ConsumerGroupEpochKey("app"), ConsumerGroupEpochValue(7)),
        f"0003 {GROUP_HEX}",
        "0000 00000007 00",
    ),
    "subscription": (
        ConsumerRecord(
            SubscriptionKey("app"),
            SubscriptionValue((SubscribedTopic(TOPIC, "t", 2, (PartitionRacks(1, ("r",)),)),)),
        ),
        f"0004 {GROUP_HEX}",
        f"0000 02 {TOPIC_HEX} 02 74 00000002 02 00000001 02 02 72 00 00 00",
    ),
    "member metadata": (
        ConsumerRecord(
            MemberMetadataKey("app", "m-1"),
            MemberMetadataValue(None, "r", "c", "/h", ("t",), "", 300_000, "range"),
        ),
        f"0005 {GROUP_HEX} {MEMBER_HEX}",
        "0000 00 02 72 02 63 03 2f68 02 02 74 01 000493e0 06 72616e6765 00",
    ),
    "classic member metadata": (
        ConsumerRecord(
            MemberMetadataKey("app", "m-1"),
            MemberMetadataValue(
                instance_id="i",
                subscribed_topic_regex=None,
                classic_metadata=ClassicMetadata(45_000, (SupportedProtocol("range", b"\x01"),)),
            ),
        ),
        f"0005 {GROUP_HEX} {MEMBER_HEX}",
        # One tagged field with tag 0 and 16 bytes: not null, session timeout, one protocol.
        "0000 02 69 00 01 01 01 00 ffffffff 00 01 00 10 01 0000afc8 02 06 72616e6765 02 01 00 00",
    ),
    "target epoch": (
        ConsumerRecord(TargetEpochKey("app"), TargetEpochValue(6)),
        f"0006 {GROUP_HEX}",
        "0000 00000006 00",
    ),
    "target assignment": (
        ConsumerRecord(
            TargetAssignmentKey("app", "m-1"),
            TargetAssignmentValue((AssignedTopic(TOPIC, (0, 2)),)),
        ),
        f"0007 {GROUP_HEX} {MEMBER_HEX}",
        f"0000 02 {TOPIC_HEX} 03 00000000 00000002 00 00",
    ),
    "current assignment": (
        ConsumerRecord(
            CurrentAssignmentKey("app", "m-1"),
            CurrentAssignmentValue(5, 4, 1, (), (AssignedTopic(TOPIC, (3,)),)),
        ),
        f"0008 {GROUP_HEX} {MEMBER_HEX}",
        f"0000 00000005 00000004 01 01 02 {TOPIC_HEX} 02 00000003 00 00",
    ),
}


@pytest.mark.parametrize(("record", "key", "value"), CASES.values(), ids=CASES.keys())
def test_records_have_kafkas_bytes(record: ConsumerRecord, key: str, value: str) -> None:
    assert encode_consumer_record(record) == (bytes.fromhex(key), bytes.fromhex(value))
    assert is_consumer_key(bytes.fromhex(key))
    assert read_consumer_record(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize(("record", "key", "value"), CASES.values(), ids=CASES.keys())
def test_tombstone_has_the_key_and_no_value(record: ConsumerRecord, key: str, value: str) -> None:
    tombstone = record._replace(value=None)
    assert encode_consumer_record(tombstone) == (bytes.fromhex(key), None)
    assert read_consumer_record(bytes.fromhex(key), None) == tombstone


@pytest.mark.parametrize(("record", "key", "value"), CASES.values(), ids=CASES.keys())
def test_truncated_record_is_rejected(record: ConsumerRecord, key: str, value: str) -> None:
    key_bytes, value_bytes = bytes.fromhex(key), bytes.fromhex(value)
    for size in range(2, len(key_bytes)):
        with pytest.raises(RemoteWireError):
            read_consumer_record(key_bytes[:size], value_bytes)
    for size in range(len(value_bytes)):
        with pytest.raises(RemoteWireError):
            read_consumer_record(key_bytes, value_bytes[:size])


@given(st.binary(max_size=64), st.binary(max_size=64), st.integers(3, 8))
@settings(max_examples=200, deadline=None)
def test_random_bytes_raise_only_wire_errors(key: bytes, value: bytes, version: int) -> None:
    try:
        read_consumer_record(version.to_bytes(2, "big") + key, b"\0\0" + value)
    except RemoteWireError:
        return


def test_unknown_value_version_is_rejected() -> None:
    _, key, value = CASES["group epoch"]
    with pytest.raises(RemoteWireError, match="version 1"):
        read_consumer_record(bytes.fromhex(key), b"\0\1" + bytes.fromhex(value)[2:])


@pytest.mark.parametrize("version", [0, 1, 2, 9, 14, -1])
def test_other_keys_are_not_consumer_keys(version: int) -> None:
    assert not is_consumer_key(version.to_bytes(2, "big", signed=True) + b"\0\1a")


def test_assignment_is_written_in_order() -> None:
    other = UUID(int=1)
    assignment = {TOPIC: frozenset({2, 0, 1}), other: frozenset({5})}
    topics = to_topics(assignment)
    assert topics == (AssignedTopic(other, (5,)), AssignedTopic(TOPIC, (0, 1, 2)))
    assert to_assignment(topics) == assignment


def test_topic_without_partitions_is_dropped() -> None:
    assert to_assignment((AssignedTopic(TOPIC, ()),)) == {}


def test_metadata_of_classic_members_is_copied() -> None:
    _, key, value = CASES["classic member metadata"]
    record = read_consumer_record(bytes.fromhex(key), bytes.fromhex(value))
    assert isinstance(record.value, MemberMetadataValue)
    assert record.value.classic_metadata is not None
    assert type(record.value.classic_metadata.supported_protocols[0].metadata) is bytes
