"""The transactions of one transactional id: requests to its coordinator, and offsets of groups as part of them.

    link = TransactionLink(cluster, "payments-1")
    link.init()                                  a producer id and epoch; fences other producers with this id
    link.add_partitions([partition, …])          before the first batch to each partition
    link.send_offsets(group, offsets)            optional
    link.end(is_commit=True)

All requests are retried. Each can be repeated safely: the coordinator recognizes a request that it has handled already.
transactional_producer.py sends the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from barnabas.client.cluster import BACKOFF_S_MAX, Cluster
from barnabas.client.core import build_topics, raise_if
from barnabas.client.group_coordinator import ask_coordinator, find_coordinator
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.retry import Backoff
from barnabas.wire.codec import Message
from barnabas.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.find_coordinator import CoordinatorType
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

R = TypeVar("R", bound=Message)

TRANSACTION_TIMEOUT_MS = 60_000
ADD_PARTITIONS_CLIENT_VERSION = 3
"""The last version of AddPartitionsToTxn for clients. Later ones are for brokers."""
NO_PRODUCER = (-1, -1)
CONCURRENT_BACKOFF_S = 0.01
"""First wait for the markers of the last transaction, during which the coordinator accepts no new partitions."""

FENCED_ERRORS = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Another producer has the transactional id now, or the coordinator aborted the transaction after its timeout."""


class GroupSender(NamedTuple):
    """The group whose offsets are sent, and the member that sends them. Without a member, the group must be empty."""

    group_id: str
    generation: int = -1
    member_id: str = ""


class TransactionLink:
    """Requests of one transactional id. Methods raise ApiError. `identity` is the producer id and the epoch."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.identity = NO_PRODUCER
        self.coordinator: tuple[str, int] | None = None

    def init(self) -> tuple[int, int]:
        """Get a producer id and an epoch. This aborts the open transaction of the id, and fences its producer.

        A later call only raises the epoch, unless another producer has done so: then it raises PRODUCER_FENCED.
        """
        producer_id, epoch = self.identity
        answer = self.ask(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
            ),
            InitProducerIdResponse,
            lambda answer: [answer.error_code],
        )
        self.identity = answer.producer_id, answer.producer_epoch
        return self.identity

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction. The first one begins it."""
        producer_id, epoch = self.identity
        self.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=build_topics(
                    AddPartitionsToTxnTopic, {each: each.partition for each in partitions}
                ),
            ),
            AddPartitionsToTxnResponse,
            added_codes,
            max_version=ADD_PARTITIONS_CLIENT_VERSION,
        )

    def add_group(self, group_id: str) -> None:
        """Add the offsets of a group to the transaction."""
        producer_id, epoch = self.identity
        self.ask(
            AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=group_id,
            ),
            AddOffsetsToTxnResponse,
            lambda answer: [answer.error_code],
        )

    def commit_offsets(self, sender: GroupSender, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group that was added. They take effect when the transaction commits."""
        producer_id, epoch = self.identity
        partitions = {
            each: TxnOffsetCommitRequestPartition(each.partition, offset)
            for each, offset in sorted(offsets.items())
        }
        answer = ask_coordinator(
            self.cluster,
            sender.group_id,
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=sender.group_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                generation_id=sender.generation,
                member_id=sender.member_id,
                topics=build_topics(TxnOffsetCommitRequestTopic, partitions),
            ),
            TxnOffsetCommitResponse,
            codes=lambda answer: [
                each.error_code for topic in answer.topics for each in topic.partitions
            ],
        )
        for topic in answer.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                raise_if(each.error_code, f"offset of group {sender.group_id} in {partition}")

    def end(self, *, is_commit: bool) -> None:
        """Commit or abort the transaction. After a timeout, the result is unknown; the same call may be repeated."""
        producer_id, epoch = self.identity
        self.ask(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=is_commit,
            ),
            EndTxnResponse,
            lambda answer: [answer.error_code],
        )

    def ask(
        self,
        request: Message,
        response: type[R],
        codes: Callable[[R], Iterable[int]],
        *,
        max_version: int | None = None,
    ) -> R:
        """Send a request to the coordinator, with retries. Raises the first error in `codes` of the response."""

        def attempt() -> R:
            if self.coordinator is None:
                self.coordinator = find_coordinator(
                    self.cluster, self.transactional_id, CoordinatorType.TRANSACTION
                )
            try:
                answer = self.cluster.connect(*self.coordinator).exchange(
                    request, response, timeout_s=self.cluster.timeout_s, max_version=max_version
                )
                for code in codes(answer):
                    if code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        raise_if(code, self.describe_error(code))
            except ApiError as error:
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self.coordinator = None
                raise
            return answer

        backoff = Backoff(CONCURRENT_BACKOFF_S, BACKOFF_S_MAX, random=self.cluster.random)
        return self.cluster.retry(attempt, refresh=False, backoff=backoff)

    def describe_error(self, code: int) -> str:
        subject = f"transactional id {self.transactional_id!r}"
        if code in FENCED_ERRORS:
            return (
                f"{subject}: another producer uses it, or the transaction was open for more than "
                f"{self.timeout_ms} ms; close this producer"
            )
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            limit = "transaction.max.timeout.ms of the brokers"
            return f"{subject}: a timeout of {self.timeout_ms} ms is more than {limit}"
        return subject


def added_codes(answer: AddPartitionsToTxnResponse) -> list[int]:
    return [
        each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]
