"""Records of `__consumer_offsets`: bytes of the published schemas, written by hand or by another
library.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.old.types import Array, Bytes, Int16, Int32, Int64, Schema, String

from barnabas.errors import RemoteWireError
from barnabas.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberSnapshot,
    OffsetCommitKey,
    OffsetCommitValue,
    group_metadata_record,
    group_tombstone,
    is_commit_marker,
    offset_record,
    offset_tombstone,
    read_group,
    read_key,
    read_offset,
)

KEY = bytes.fromhex(
    "0001"  # version
    "0003 617070"  # app
    "0006 6f7264657273"  # orders
    "00000007"
)
VALUE = bytes.fromhex(
    "0003"
    "000000000000002a"  # offset 42
    "00000005"  # leader epoch
    "0004 6e6f7465"  # metadata
    "0000018bcfe56800"  # 1 700 000 000 000
)
VALUE_THAT_EXPIRES = bytes.fromhex(
    "0001 000000000000002a 0004 6e6f7465 0000018bcfe56800 0000018bcfe56801"
)
FLEXIBLE_VALUE = bytes.fromhex("0004 000000000000002a 00000005 05 6e6f7465 0000018bcfe56800 00")
GROUP_KEY = bytes.fromhex("0002 0003 617070")
GROUP_VALUE = bytes.fromhex(
    "0003"
    "0008 636f6e73756d6572"  # consumer
    "00000002"  # generation
    "0005 72616e6765"  # range
    "0003 6d2d31"  # leader m-1
    "0000018bcfe56800"
    "00000001"  # one member
    "0003 6d2d31"
    "ffff"  # no instance id
    "0001 63"
    "000a 2f3132372e302e302e31"  # /127.0.0.1
    "000493e0"  # 300 000
    "0000afc8"  # 45 000
    "00000002 0102"
    "00000001 ff"
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=2,
    protocol="range",
    leader="m-1",
    current_state_timestamp=1_700_000_000_000,
    members=(
        MemberSnapshot("m-1", None, "c", "/127.0.0.1", 300_000, 45_000, b"\x01\x02", b"\xff"),
    ),
)
EMPTY_GROUP_VALUE = bytes.fromhex(
    "0003 0008 636f6e73756d6572 00000003 ffff ffff 0000018bcfe56800 00000000"
)
COMMITTED = OffsetCommitValue(42, 5, "note", 1_700_000_000_000)

STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_offset_commit_uses_key_1_and_value_3() -> None:
    assert offset_record("app", "orders", 7, COMMITTED) == (KEY, VALUE)
    assert read_key(KEY) == OffsetCommitKey("app", "orders", 7)
    assert read_offset(VALUE) == COMMITTED


def test_commit_with_expiry_uses_value_1_without_epoch() -> None:
    ending = COMMITTED._replace(expire_timestamp=1_700_000_000_001)
    assert offset_record("app", "orders", 7, ending) == (KEY, VALUE_THAT_EXPIRES)
    assert read_offset(VALUE_THAT_EXPIRES) == ending._replace(leader_epoch=-1)


def test_flexible_value_of_newer_broker_is_read() -> None:
    assert read_offset(FLEXIBLE_VALUE) == COMMITTED


def test_group_uses_key_2_and_value_3() -> None:
    assert group_metadata_record("app", GROUP) == (GROUP_KEY, GROUP_VALUE)
    assert read_key(GROUP_KEY) == GroupMetadataKey("app")
    assert read_group(GROUP_VALUE) == GROUP


def test_empty_group_has_no_protocol_and_no_leader() -> None:
    empty = GroupMetadataValue("consumer", 3, None, None, 1_700_000_000_000)
    assert group_metadata_record("app", empty) == (GROUP_KEY, EMPTY_GROUP_VALUE)
    assert read_group(EMPTY_GROUP_VALUE) == empty


def test_tombstones_have_the_key_of_the_record() -> None:
    assert offset_tombstone("app", "orders", 7) == (KEY, None)
    assert group_tombstone("app") == (GROUP_KEY, None)


def test_old_offset_key_is_read_and_newer_key_is_skipped() -> None:
    assert read_key(b"\x00\x00" + KEY[2:]) == OffsetCommitKey("app", "orders", 7)
    assert read_key(b"\x00\x03" + KEY[2:]) is None


OFFSET_FIELDS: dict[int, list[tuple[str, Any]]] = {
    0: [("offset", Int64), ("metadata", String()), ("commit", Int64)],
    1: [("offset", Int64), ("metadata", String()), ("commit", Int64), ("expire", Int64)],
    2: [("offset", Int64), ("metadata", String()), ("commit", Int64)],
    3: [("offset", Int64), ("epoch", Int32), ("metadata", String()), ("commit", Int64)],
}


@pytest.mark.parametrize("version", OFFSET_FIELDS)
def test_offset_values_of_another_library_are_read(version: int) -> None:
    expected = {"offset": 42, "epoch": 5, "metadata": "é", "commit": 1000, "expire": 2000}
    fields = OFFSET_FIELDS[version]
    raw = Schema(*fields).encode([expected[name] for name, _ in fields])
    value = read_offset(Int16.encode(version) + raw)
    assert value.offset == 42
    assert value.metadata == "é"
    assert value.commit_timestamp == 1000
    assert value.leader_epoch == (5 if version == 3 else -1)
    assert value.expire_timestamp == (2000 if version == 1 else -1)


@pytest.mark.parametrize("version", range(4))
def test_group_values_of_another_library_are_read(version: int) -> None:
    member = Schema(
        ("member_id", String()),
        *([("instance", String())] if version >= 3 else []),
        ("client_id", String()),
        ("client_host", String()),
        *([("rebalance", Int32)] if version >= 1 else []),
        ("session", Int32),
        ("subscription", Bytes),
        ("assignment", Bytes),
    )
    schema = Schema(
        ("protocol_type", String()),
        ("generation", Int32),
        ("protocol", String()),
        ("leader", String()),
        *([("since", Int64)] if version >= 2 else []),
        ("members", Array(member)),
    )
    fields: list[Any] = ["m-1"]
    fields += ["instance-1"] if version >= 3 else []
    fields += ["c", "/h"]
    fields += [60_000] if version >= 1 else []
    fields += [10_000, b"sub", b"ass"]
    values: list[Any] = ["consumer", 9, "range", "m-1"]
    values += [77] if version >= 2 else []
    values += [[fields]]
    found = read_group(Int16.encode(version) + schema.encode(values))
    assert found == GroupMetadataValue(
        protocol_type="consumer",
        generation=9,
        protocol="range",
        leader="m-1",
        current_state_timestamp=77 if version >= 2 else -1,
        members=(
            MemberSnapshot(
                "m-1",
                "instance-1" if version >= 3 else None,
                "c",
                "/h",
                60_000 if version >= 1 else 10_000,  # one timeout serves as both
                10_000,
                b"sub",
                b"ass",
            ),
        ),
    )


@settings(max_examples=50)
@given(
    group=STRINGS,
    topic=STRINGS,
    partition=INT32,
    value=st.builds(OffsetCommitValue, INT64, INT32, STRINGS, INT64, st.just(-1)),
)
def test_offset_record_round_trips(
    group: str, topic: str, partition: int, value: OffsetCommitValue
) -> None:
    key, written = offset_record(group, topic, partition, value)
    assert written is not None
    assert read_key(key) == OffsetCommitKey(group, topic, partition)
    assert read_offset(written) == value


@settings(max_examples=50)
@given(
    group=STRINGS,
    snapshot=st.builds(
        GroupMetadataValue,
        STRINGS,
        INT32,
        st.none() | STRINGS,
        st.none() | STRINGS,
        INT64,
        st.lists(
            st.builds(
                MemberSnapshot,
                STRINGS,
                st.none() | STRINGS,
                STRINGS,
                STRINGS,
                INT32,
                INT32,
                st.binary(max_size=50),
                st.binary(max_size=50),
            ),
            max_size=3,
        ).map(tuple),
    ),
)
def test_group_record_round_trips(group: str, snapshot: GroupMetadataValue) -> None:
    key, written = group_metadata_record(group, snapshot)
    assert written is not None
    assert read_key(key) == GroupMetadataKey(group)
    assert read_group(written) == snapshot


@settings(max_examples=50)
@given(data=st.binary(max_size=80), version=st.integers(0, 5))
def test_random_bytes_raise_only_remote_wire_error(data: bytes, version: int) -> None:
    data = bytes((0, version)) + data
    for read in (read_key, read_offset, read_group):
        try:
            read(data)
        except RemoteWireError:
            continue


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x05" + VALUE[2:], b"\xff\xff"])
def test_unknown_value_version_is_rejected(value: bytes) -> None:
    with pytest.raises(RemoteWireError):
        read_offset(value)
    with pytest.raises(RemoteWireError):
        read_group(value)


def test_control_record_tells_commit_from_abort() -> None:
    assert is_commit_marker(bytes.fromhex("00000001"))
    assert not is_commit_marker(bytes.fromhex("00000000"))
    with pytest.raises(RemoteWireError):
        is_commit_marker(b"\x00\x00")
