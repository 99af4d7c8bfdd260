"""Verification of produced batches: the coordinator must know that their transaction includes the partition.

    begin_verifications   finds the batches that begin a transaction in their partition
    TransactionVerifier   asks the coordinator
    Verified              the results, which Produce uses for each batch

Without this check, a batch that arrives after the end of its transaction would begin one that never ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.batch.header import HEADER_SIZE, MAGIC, MAGIC_AT, BatchHeader
from barnabas.batch.validation import BadRequest
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.producers import OPEN, Verification
from barnabas.wire.messages.produce import ProduceRequest

PRODUCE_ABORTABLE_SINCE = 11
"""The first Produce version whose clients know TRANSACTION_ABORTABLE."""
RETRIED_LATER = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors that producers do not expect. They get NOT_ENOUGH_REPLICAS and retry without new metadata."""

Codes = Mapping[TopicPartition, ErrorCode]


class TransactionVerifier(Protocol):
    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> asyncio.Future[Codes]:
        """Return the error codes of the partitions that the ongoing transaction does not include.

        All of them have an error if the coordinator cannot be reached. The future does not fail.
        """


class Verified(NamedTuple):
    """Verifications of one Produce request by partition, and the codes of those that failed."""

    verifications: Mapping[TopicPartition, Verification]
    codes: Codes

    def require(self, key: TopicPartition, version: int) -> Verification:
        """Return the verification of a batch. Raises ApiError if it failed."""
        code = self.codes.get(key, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            raise produce_error(code, version)
        # A batch without an entry is not transactional, or is rejected by its validation.
        return self.verifications.get(key, OPEN)


class TransactionalProducer(NamedTuple):
    producer_id: int
    producer_epoch: int


def has_transactional_batch(request: ProduceRequest) -> bool:
    """Whether the first batch of a partition is transactional. A request has one batch per partition since version 3,
    the first version with transactions."""
    for _, data in request.topic_data:
        for _, records in data:
            batch = memoryview(records or b"")
            has_header = len(batch) >= HEADER_SIZE and batch[MAGIC_AT] == MAGIC
            if has_header and BatchHeader(batch).is_transactional:
                return True
    return False


def begin_verifications(
    replicas: ReplicaManager, request: ProduceRequest
) -> tuple[TransactionalProducer | None, dict[TopicPartition, Verification]]:
    """Return the producer of the transactional batches, and the verifications that they need.

    The producer is None if there is no such batch. Raises ApiError if there are several producers.
    """
    producers: set[TransactionalProducer] = set()
    sequences: dict[TopicPartition, int] = {}
    for name, data in request.topic_data:
        for index, records in data:
            batch = memoryview(records or b"")
            if len(batch) < HEADER_SIZE or batch[MAGIC_AT] != MAGIC:
                continue
            header = BatchHeader(batch)
            if header.is_transactional and header.producer_id >= 0:
                producers.add(TransactionalProducer(header.producer_id, header.producer_epoch))
                sequences[TopicPartition(name, index)] = header.base_sequence
    if len(producers) > 1:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "the transactional batches have several producers",
        )
    if not producers:
        return None, {}
    (producer,) = producers
    found: dict[TopicPartition, Verification] = {}
    for key, sequence in sequences.items():
        partition = replicas.partitions.get(key)
        if partition is not None and partition.leader == partition.broker_id:
            found[key] = partition.log.producers.verify(*producer, sequence)
    return producer, found


def produce_error(code: ErrorCode, version: int) -> ApiError:
    """Return the error of a batch whose verification failed with `code`."""
    if code in RETRIED_LATER:
        why = f"cannot verify that the transaction includes the partition: {code.name}"
        return BadRequest(ErrorCode.NOT_ENOUGH_REPLICAS, why)
    code = fenced_code(code, knows_abortable=version >= PRODUCE_ABORTABLE_SINCE)
    return BadRequest(code, "the partition is not part of the ongoing transaction of the producer")


def fenced_code(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Return the code of a failed verification as clients expect it. Older ones do not know TRANSACTION_ABORTABLE."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
