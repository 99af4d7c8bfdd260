"""Admin client for transactions: list, describe and abort them, and find those that no coordinator will end.

A transaction *hangs* if a partition has it open, but its coordinator does not know that it includes the partition. The
coordinator never ends it, and read_committed consumers of the partition wait for ever. A producer cannot cause this
while the brokers verify transactions (transaction.partition.verification.enable).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.blocking import BlockingConnection
from barnabas.client.cluster import Cluster
from barnabas.client.core import build_topics, error_of, negotiate_version, raise_if
from barnabas.client.group_coordinator import ask_coordinator, find_coordinator
from barnabas.client.transactions import TransactionLink
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, TopicPartition
from barnabas.wire.messages.describe_producers import (
    DescribedProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)
from barnabas.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.wire.messages.find_coordinator import CoordinatorType
from barnabas.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TRANSACTION_STATE = "__transaction_state"
"""Topic whose leaders are the coordinators."""
ONGOING_STATE = "Ongoing"
NO_TRANSACTION = -1
"""Start offset of a producer without an open transaction."""


class TransactionListing(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    coordinator: int
    """Id of the broker."""


class TransactionView(NamedTuple):
    """A transactional id. `coordinator` is host:port. `start_ms` is None unless a transaction is open."""

    transactional_id: str
    state: str
    coordinator: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition, as its leader knows it."""

    partition: TopicPartition
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int


class TransactionAdmin:
    """Admin client for transactions. Methods raise ApiError."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Return all transactional ids that match, ordered. Each broker lists those that it coordinates."""
        request = ListTransactionsRequest(
            state_filters=tuple(states),
            producer_id_filters=tuple(sorted(producer_ids)),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
        )
        found: dict[str, TransactionListing] = {}

        def ask_all() -> None:
            for broker in sorted(self.cluster.refresh([]).brokers):
                connection = self.cluster.connection(broker)
                if longer_than_ms is not None:
                    require_duration_filter(connection)
                answer = connection.exchange(
                    request, ListTransactionsResponse, timeout_s=self.cluster.timeout_s
                )
                raise_if(answer.error_code, f"transactions of broker {broker}")
                for each in answer.transaction_states:
                    found[each.transactional_id] = TransactionListing(
                        each.transactional_id, each.transaction_state, each.producer_id, broker
                    )

        self.cluster.retry(ask_all, refresh=False)
        return [found[name] for name in sorted(found)]

    def describe_transaction(self, transactional_id: str) -> TransactionView:
        """Describe a transactional id. Raises ApiError TRANSACTIONAL_ID_NOT_FOUND if its coordinator has no state."""
        answer = ask_coordinator(
            self.cluster,
            transactional_id,
            DescribeTransactionsRequest(transactional_ids=(transactional_id,)),
            DescribeTransactionsResponse,
            codes=lambda answer: [each.error_code for each in answer.transaction_states],
            key_type=CoordinatorType.TRANSACTION,
        )
        (found,) = answer.transaction_states
        raise_if(found.error_code, f"transactional id {transactional_id!r}")
        host, port = find_coordinator(self.cluster, transactional_id, CoordinatorType.TRANSACTION)
        return TransactionView(
            transactional_id=found.transactional_id,
            state=found.transaction_state,
            coordinator=f"{host}:{port}",
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            timeout_ms=found.transaction_timeout_ms,
            start_ms=found.transaction_start_time_ms if found.topics else None,
            partitions=tuple(
                sorted(
                    TopicPartition(topic.topic, partition)
                    for topic in found.topics
                    for partition in topic.partitions
                )
            ),
        )

    def abort_transaction(self, view: TransactionView) -> None:
        """Abort the open transaction of a transactional id, and fence its producer."""
        link = TransactionLink(
            self.cluster, view.transactional_id, timeout_ms=max(1, view.timeout_ms)
        )
        link.init()

    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[DescribedProducer, ...]]:
        """Return the idempotent and transactional producers of each partition, from its leader."""

        def ask(
            connection: BlockingConnection, led: list[TopicPartition]
        ) -> Iterator[tuple[TopicPartition, tuple[DescribedProducer, ...] | ApiError]]:
            topics = build_topics(DescribeProducersTopic, {each: each.partition for each in led})
            answer = connection.exchange(
                DescribeProducersRequest(topics=topics),
                DescribeProducersResponse,
                timeout_s=self.cluster.timeout_s,
            )
            for topic in answer.topics:
                for found in topic.partitions:
                    partition = TopicPartition(topic.name, found.partition_index)
                    why = f"{partition}: {found.error_message or 'its producers'}"
                    yield partition, error_of(found.error_code, why) or found.active_producers

        return self.cluster.ask_leaders(partitions, ask)

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        """Return the transactions that are open in these partitions, ordered by partition and offset."""
        found = self.describe_producers(partitions)
        return sorted(
            OpenTransaction(
                partition=partition,
                start_offset=each.current_txn_start_offset,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                coordinator_epoch=each.coordinator_epoch,
                last_timestamp=each.last_timestamp,
            )
            for partition, producers in found.items()
            for each in producers
            if each.current_txn_start_offset != NO_TRANSACTION
        )

    def known_transactions(self, producer_ids: Collection[int]) -> dict[int, TransactionView]:
        """Return the transactions of these producers, as their coordinators know them, by producer id.

        Raises ApiError COORDINATOR_NOT_AVAILABLE if a coordinator is missing: its transactions would seem to hang.
        """

        def attempt() -> dict[int, TransactionView]:
            coordinators = self.coordinators()
            known = self.available_transactions(producer_ids)
            if self.coordinators() != coordinators:
                why = f"partitions of {TRANSACTION_STATE} have got other leaders meanwhile"
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
            return known

        return self.cluster.retry(attempt, refresh=False) if producer_ids else {}

    def coordinators(self) -> dict[int, tuple[BrokerId, int]]:
        """Return the leader of each partition of __transaction_state, and its epoch. Empty if there is no such topic.

        Raises ApiError COORDINATOR_NOT_AVAILABLE if a partition has no leader.
        """
        try:
            partitions = self.cluster.fetch_topic(TRANSACTION_STATE).partitions
            for each in partitions:
                self.cluster.view.leader(TopicPartition(TRANSACTION_STATE, each.partition))
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return {}
            if error.code is ErrorCode.LEADER_NOT_AVAILABLE:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from None
            raise
        return {each.partition: (each.leader, each.leader_epoch) for each in partitions}

    def available_transactions(self, producer_ids: Collection[int]) -> dict[int, TransactionView]:
        """Return `known_transactions` without those of partitions that have no leader."""
        if not producer_ids:
            return {}
        views = {}
        for listed in self.list_transactions(producer_ids=producer_ids):
            try:
                view = self.describe_transaction(listed.transactional_id)
            except ApiError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # expired meanwhile
                    raise
            else:
                views[view.producer_id] = view
        return views

    def find_hanging(
        self, partitions: Iterable[TopicPartition], *, before_ms: int
    ) -> list[OpenTransaction]:
        """Return the hanging transactions without a record since `before_ms`."""
        candidates = [
            each for each in self.open_transactions(partitions) if each.last_timestamp < before_ms
        ]
        known = self.known_transactions({each.producer_id for each in candidates})
        return [each for each in candidates if is_hanging(each, known)]

    def write_abort_marker(self, transaction: OpenTransaction) -> None:
        """Write an abort marker to the partition, as a coordinator does. Only for a hanging transaction.

        The coordinator epoch is that of the producer's last marker in the partition, or 0, as in Kafka's tool.
        """
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=build_topics(
                WritableTxnMarkerTopic,
                {transaction.partition: transaction.partition.partition},
            ),
            coordinator_epoch=max(0, transaction.coordinator_epoch),
        )

        def ask(
            connection: BlockingConnection, _: list[TopicPartition]
        ) -> Iterator[tuple[TopicPartition, bool | ApiError]]:
            answer = connection.exchange(
                WriteTxnMarkersRequest(markers=(marker,)),
                WriteTxnMarkersResponse,
                timeout_s=self.cluster.timeout_s,
            )
            for result in answer.markers:
                for topic in result.topics:
                    for each in topic.partitions:
                        partition = TopicPartition(topic.name, each.partition_index)
                        yield partition, error_of(each.error_code, f"marker in {partition}") or True

        self.cluster.ask_leaders([transaction.partition], ask)


def is_hanging(transaction: OpenTransaction, known: Mapping[int, TransactionView]) -> bool:
    """Return whether no coordinator will end the transaction. `known` are the transactions of coordinators."""
    view = known.get(transaction.producer_id)
    return view is None or transaction.partition not in view.partitions


def require_duration_filter(connection: BlockingConnection) -> None:
    """Raise ApiError UNSUPPORTED_VERSION if the broker would ignore the filter."""
    if negotiate_version(ListTransactionsRequest, connection.protocol.versions) < 1:
        why = f"the broker at {connection.address} cannot filter transactions by duration"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, why)
