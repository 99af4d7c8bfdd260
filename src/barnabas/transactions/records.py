"""Keys and values of `__transaction_state`, in Kafka's format.

    key version 0    transactional id
    value version 0  producer id, epoch, timeout, state, partitions, times
    value version 1  the same with compact sizes and tagged fields

Keys and values start with a two-byte version. A null value is a tombstone: it deletes the transactional id. Barnabas
writes version 0, as Kafka 3.9 does unless the feature transaction.version is on. It reads both versions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from barnabas.errors import RemoteWireError
from barnabas.model import TopicPartition
from barnabas.transactions.transaction import EMPTY, TransactionMetadata, TransactionState
from barnabas.wire.codec import (
    VERSION,
    Int8,
    Int16,
    Int32,
    Int64,
    compile_struct,
    encode_versioned,
)

TRANSACTION_KEY_VERSION = 0
TRANSACTION_VALUE_VERSIONS = range(2)
WRITTEN_TRANSACTION_VERSION = 0
FLEXIBLE_TRANSACTION_VERSION = 1
STATES = tuple(TransactionState)

S = TypeVar("S")


class TransactionLogKey(NamedTuple):
    transactional_id: str


class TransactionLogPartitions(NamedTuple):
    topic: str
    partitions: tuple[Int32, ...]


class TransactionLogValue(NamedTuple):
    producer_id: Int64
    producer_epoch: Int16
    timeout_ms: Int32
    status: Int8
    """Index in STATES."""
    topics: tuple[TransactionLogPartitions, ...] | None
    """None in the state Empty."""
    update_ms: Int64
    start_ms: Int64


# ---- writing


def transaction_record(
    transactional_id: str, metadata: TransactionMetadata
) -> tuple[bytes, bytes | None]:
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        timeout_ms=metadata.timeout_ms,
        status=STATES.index(metadata.state),
        topics=None if metadata.state is EMPTY else group_by_topic(metadata.partitions),
        update_ms=metadata.update_ms,
        start_ms=metadata.start_ms,
    )
    return transaction_key(transactional_id), encode_versioned(value, WRITTEN_TRANSACTION_VERSION)


def transaction_tombstone(transactional_id: str) -> tuple[bytes, bytes | None]:
    return transaction_key(transactional_id), None


def transaction_key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id), TRANSACTION_KEY_VERSION)


def group_by_topic(partitions: Iterable[TopicPartition]) -> tuple[TransactionLogPartitions, ...]:
    """Return the partitions by topic, both in ascending order."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return tuple(TransactionLogPartitions(name, tuple(each)) for name, each in topics.items())


# ---- reading


def read_transaction_key(key: bytes) -> str | None:
    """Return the transactional id. None for an unknown version, which a newer broker may write.

    Raises RemoteWireError.
    """
    version = leading_version(key)
    if version != TRANSACTION_KEY_VERSION:
        return None
    return decode_record(TransactionLogKey, version, key).transactional_id


def read_transaction(value: bytes) -> TransactionMetadata:
    """Decode a value. Raises RemoteWireError if it is damaged, or if its version or state is unknown."""
    version = leading_version(value)
    if version not in TRANSACTION_VALUE_VERSIONS:
        raise RemoteWireError(
            f"unknown value version {version}, supported are 0 to {TRANSACTION_VALUE_VERSIONS[-1]}"
        )
    decoded = decode_record(TransactionLogValue, version, value)
    if not 0 <= decoded.status < len(STATES):
        raise RemoteWireError(f"unknown transaction state {decoded.status}")
    state = STATES[decoded.status]
    topics = () if state is EMPTY else decoded.topics or ()
    return TransactionMetadata(
        producer_id=decoded.producer_id,
        producer_epoch=decoded.producer_epoch,
        timeout_ms=decoded.timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic, index) for topic, each in topics for index in each
        ),
        start_ms=decoded.start_ms,
        update_ms=decoded.update_ms,
    )


def leading_version(data: bytes) -> int:
    if len(data) < VERSION.size:
        raise RemoteWireError(f"{len(data)} bytes, expected at least a two-byte version")
    return int(VERSION.unpack_from(data)[0])


def decode_record(cls: type[S], version: int, data: bytes) -> S:
    layout: Any = cls
    try:
        codec = compile_struct(layout, version, version >= FLEXIBLE_TRANSACTION_VERSION)
        value: S = codec.read(memoryview(data), VERSION.size)[0]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RemoteWireError(f"{cls.__name__} v{version}: {error}") from error
    return value
