"""Records of `__transaction_state`: bytes of the published schemas, written by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import RemoteWireError
from barnabas.model import TopicPartition
from barnabas.transactions.records import (
    read_transaction,
    read_transaction_key,
    transaction_record,
    transaction_tombstone,
)
from barnabas.transactions.transaction import EMPTY, TransactionMetadata, TransactionState

KEY = bytes.fromhex("0000 0003 617070")
EMPTY_VALUE = bytes.fromhex(
    "0000"  # version
    "00000000000003e8"  # producer id 1000
    "0005"  # epoch
    "0000ea60"  # 60 000 ms
    "00"  # Empty
    "ffffffff"  # no partitions
    "0000018bcfe56800"  # update, 1 700 000 000 000
    "ffffffffffffffff"  # no start
)
ONGOING_VALUE = bytes.fromhex(
    "0000 00000000000003e8 0005 0000ea60"
    "01"  # Ongoing
    "00000002"  # two topics
    "0006 6f7264657273"  # orders
    "00000002 00000001 00000007"
    "0004 70617973"  # pays
    "00000001 00000000"
    "0000018bcfe56801"
    "0000018bcfe56800"
)
FLEXIBLE_VALUE = bytes.fromhex(
    "0001 00000000000003e8 0005 0000ea60"
    "01"
    "03"  # two topics
    "07 6f7264657273"
    "03 00000001 00000007"
    "00"  # no tags
    "05 70617973"
    "02 00000000"
    "00"
    "0000018bcfe56801"
    "0000018bcfe56800"
    "00"
)
COMPLETE_VALUE = bytes.fromhex(
    "0000 00000000000003e8 0005 0000ea60 04 00000000 0000018bcfe56801 0000018bcfe56800"
)
EMPTY_TRANSACTION = TransactionMetadata(
    producer_id=1000, producer_epoch=5, timeout_ms=60_000, update_ms=1_700_000_000_000
)
ONGOING_TRANSACTION = TransactionMetadata(
    producer_id=1000,
    producer_epoch=5,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset(
        [TopicPartition("pays", 0), TopicPartition("orders", 7), TopicPartition("orders", 1)]
    ),
    start_ms=1_700_000_000_000,
    update_ms=1_700_000_000_001,
)


def test_empty_transaction_has_null_partitions() -> None:
    assert transaction_record("app", EMPTY_TRANSACTION) == (KEY, EMPTY_VALUE)
    assert read_transaction(EMPTY_VALUE) == EMPTY_TRANSACTION


def test_partitions_are_grouped_by_topic_in_order() -> None:
    assert transaction_record("app", ONGOING_TRANSACTION) == (KEY, ONGOING_VALUE)
    assert read_transaction(ONGOING_VALUE) == ONGOING_TRANSACTION


def test_complete_transaction_has_an_empty_array() -> None:
    complete = read_transaction(COMPLETE_VALUE)
    assert complete.state is TransactionState.COMPLETE_COMMIT
    assert complete.partitions == frozenset()
    assert transaction_record("app", complete) == (KEY, COMPLETE_VALUE)


def test_flexible_version_is_read() -> None:
    assert read_transaction(FLEXIBLE_VALUE) == ONGOING_TRANSACTION


def test_unknown_tags_are_ignored() -> None:
    tagged = FLEXIBLE_VALUE[:-1] + bytes.fromhex("01 00 08 00000000000003e8")
    assert read_transaction(tagged) == ONGOING_TRANSACTION


def test_tombstone() -> None:
    assert transaction_tombstone("app") == (KEY, None)


def test_keys() -> None:
    assert read_transaction_key(KEY) == "app"
    assert read_transaction_key(bytes.fromhex("0001 0003 617070")) is None


@pytest.mark.parametrize("key", [b"", b"\0", KEY[:3], KEY[:-1], bytes.fromhex("0000 0001 ff")])
def test_damaged_key_is_rejected(key: bytes) -> None:
    with pytest.raises(RemoteWireError):
        read_transaction_key(key)


@pytest.mark.parametrize("value", [ONGOING_VALUE, FLEXIBLE_VALUE, EMPTY_VALUE])
def test_truncated_value_is_rejected(value: bytes) -> None:
    for size in range(len(value)):
        with pytest.raises(RemoteWireError):
            read_transaction(value[:size])


@pytest.mark.parametrize("version", [-1, 2])
def test_unknown_value_version_is_rejected(version: int) -> None:
    value = version.to_bytes(2, "big", signed=True) + ONGOING_VALUE[2:]
    with pytest.raises(RemoteWireError, match=f"unknown value version {version}"):
        read_transaction(value)


@pytest.mark.parametrize("state", [8, 127, 255])
def test_unknown_state_is_rejected(state: int) -> None:
    value = bytearray(EMPTY_VALUE)
    value[16] = state
    with pytest.raises(RemoteWireError, match="unknown transaction state"):
        read_transaction(bytes(value))


INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITION = st.builds(TopicPartition, st.text("abc.", max_size=3), st.integers(0, 2**31 - 1))


@given(
    st.builds(
        TransactionMetadata,
        producer_id=INT64,
        producer_epoch=st.integers(-1, 2**15 - 1),
        timeout_ms=st.integers(0, 2**31 - 1),
        state=st.sampled_from(TransactionState),
        partitions=st.frozensets(PARTITION, max_size=5),
        start_ms=INT64,
        update_ms=INT64,
    ),
    st.text(max_size=5),
)
def test_record_round_trip(metadata: TransactionMetadata, transactional_id: str) -> None:
    key, value = transaction_record(transactional_id, metadata)
    assert value is not None
    assert read_transaction_key(key) == transactional_id
    found = read_transaction(value)
    assert found.state is metadata.state
    if metadata.state is EMPTY:
        assert not found.partitions
    else:
        assert found == metadata
