"""Builders for requests of transactional producers, and of the brokers that coordinate them.

The broker chooses producer ids, so a request is a function of `RequestContext`: the id and epoch come from the response
to the step that initialized the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from barnabas.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.fetch import READ_COMMITTED
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from interop.scenarios.requests import FAR, ask, batch, fetch
from interop.scenarios.step import Await, Request, RequestContext, Step

TIMEOUT_MS = 600_000
"""Longer than a script takes: no transaction times out."""
BATCHED_SINCE = 4

RequestBuilder = Callable[[RequestContext], Any]
Partitions = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """A producer as the step `since` initialized it, or with a wrong id or epoch."""

    name: str
    since: str
    id_change: int = 0
    epoch_change: int = 0

    def identity(self, context: RequestContext) -> tuple[int, int]:
        found = context.answer(self.since)
        return found.producer_id + self.id_change, found.producer_epoch + self.epoch_change

    def with_epoch(self, change: int) -> Producer:
        return replace(self, epoch_change=change)

    def with_other_id(self) -> Producer:
        return replace(self, id_change=10_000)

    def named(self, name: str) -> Producer:
        return replace(self, name=name)

    def after(self, step: str) -> Producer:
        return replace(self, since=step)


# ---- the coordinator


def init(
    name: str | None, *, timeout_ms: int = TIMEOUT_MS, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def init_again(producer: Producer, *, timeout_ms: int = TIMEOUT_MS) -> RequestBuilder:
    """InitProducerId of a producer that continues after an error."""

    def build(context: RequestContext) -> InitProducerIdRequest:
        producer_id, epoch = producer.identity(context)
        return init(producer.name, timeout_ms=timeout_ms, producer_id=producer_id, epoch=epoch)

    return build


def started(step: str, request: Request, version: int | None = None) -> Step:
    """Initialize a producer, as soon as the coordinator is ready."""
    return Step(
        name=step,
        action=Await(request=request, version=version, path="error_code", value="NONE"),
    )


def topic_partitions(partitions: Partitions) -> tuple[AddPartitionsToTxnTopic, ...]:
    return tuple(AddPartitionsToTxnTopic(topic, tuple(each)) for topic, each in partitions.items())


def add(producer: Producer, partitions: Partitions) -> RequestBuilder:
    """AddPartitionsToTxn as clients send it, up to version 3."""

    def build(context: RequestContext) -> AddPartitionsToTxnRequest:
        producer_id, epoch = producer.identity(context)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topic_partitions(partitions),
        )

    return build


def add_many(*transactions: tuple[Producer, bool, Partitions]) -> RequestBuilder:
    """AddPartitionsToTxn as brokers send it, since version 4: (producer, verify only, partitions) of each."""
    return lambda context: AddPartitionsToTxnRequest(
        transactions=tuple(
            AddPartitionsToTxnTransaction(
                producer.name,
                *producer.identity(context),
                verify_only=verify,
                topics=topic_partitions(partitions),
            )
            for producer, verify, partitions in transactions
        )
    )


def added(step: str, producer: Producer, partitions: Partitions) -> Step:
    """Add partitions, as soon as the previous transaction is complete."""
    (topic, indexes), *_ = partitions.items()
    path = f"results_by_topic_v3_and_below.{topic}.results_by_partition.{indexes[0]}"
    return Step(
        name=step,
        action=Await(
            request=add(producer, partitions),
            version=3,
            path=f"{path}.partition_error_code",
            value="NONE",
        ),
    )


def add_offsets(producer: Producer, group: str) -> RequestBuilder:
    def build(context: RequestContext) -> AddOffsetsToTxnRequest:
        producer_id, epoch = producer.identity(context)
        return AddOffsetsToTxnRequest(
            transactional_id=producer.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group,
        )

    return build


def end(producer: Producer, *, commit: bool) -> RequestBuilder:
    def build(context: RequestContext) -> EndTxnRequest:
        producer_id, epoch = producer.identity(context)
        return EndTxnRequest(
            transactional_id=producer.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )

    return build


def describe_transactions(*names: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=names)


def in_state(step: str, name: str, state: str) -> Step:
    """Wait until the transaction is in a state, and describe it."""
    return Step(
        name=step,
        action=Await(
            request=describe_transactions(name),
            path=f"transaction_states.{name}.transaction_state",
            value=state,
        ),
    )


def ended(step: str, producer: Producer, *, commit: bool) -> tuple[Step, ...]:
    """End a transaction, and wait until its markers are written."""
    state = "CompleteCommit" if commit else "CompleteAbort"
    return (
        ask(step, end(producer, commit=commit)),
        in_state(f"{step}, complete", producer.name, state),
    )


def list_transactions(
    *,
    states: Sequence[str] = (),
    of: Sequence[Producer] = (),
    duration_ms: int = -1,
    ids: Sequence[int] = (),
) -> RequestBuilder:
    return lambda context: ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=(*ids, *(producer.identity(context)[0] for producer in of)),
        duration_filter=duration_ms,
    )


# ---- partitions


def write(
    producer: Producer,
    topic: str,
    sequence: int,
    *values: bytes,
    partition: int = 0,
    transactional: bool = True,
    name: str | None = None,
    timestamp: int = FAR,
) -> RequestBuilder:
    """Produce in a transaction. `name` is the transactional id of the request, that of the producer by default."""

    def build(context: RequestContext) -> ProduceRequest:
        producer_id, epoch = producer.identity(context)
        data = batch(
            *(values or (b"%d" % sequence,)),
            timestamp=timestamp,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        topic_data = TopicProduceData(topic, (PartitionProduceData(partition, data),))
        return ProduceRequest(
            transactional_id=producer.name if name is None else name or None,
            acks=-1,
            timeout_ms=5000,
            topic_data=(topic_data,),
        )

    return build


def markers(
    *written: tuple[Producer, bool, Partitions], coordinator_epoch: int = 0
) -> RequestBuilder:
    """WriteTxnMarkers: (producer, commit, partitions) of each."""
    return lambda context: WriteTxnMarkersRequest(
        markers=tuple(
            WritableTxnMarker(
                *producer.identity(context),
                transaction_result=commit,
                topics=tuple(
                    WritableTxnMarkerTopic(topic, tuple(each)) for topic, each in partitions.items()
                ),
                coordinator_epoch=coordinator_epoch,
            )
            for producer, commit, partitions in written
        )
    )


def describe_producers(partitions: Partitions) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=tuple(
            DescribeProducersTopic(topic, tuple(each)) for topic, each in partitions.items()
        )
    )


def read_committed(step: str, topic: str, offset: int = 0, partition: int = 0) -> Step:
    """Fetch the stable part of a log: records, aborted transactions, last stable offset and high watermark."""
    request = fetch(topic, {partition: offset}, isolation_level=READ_COMMITTED)
    return ask(f"{step}: read committed", request, 12)


# ---- offsets


def txn_commit(
    producer: Producer,
    group: str,
    offsets: Mapping[str, Mapping[int, int]],
    *,
    generation: int = -1,
    member: str = "",
    member_of: str | None = None,
    instance: str | None = None,
    note: str | None = "",
) -> RequestBuilder:
    """TxnOffsetCommit. `member_of` is the step whose response has the member id."""

    def build(context: RequestContext) -> TxnOffsetCommitRequest:
        producer_id, epoch = producer.identity(context)
        return TxnOffsetCommitRequest(
            transactional_id=producer.name,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=generation,
            member_id=context.answer(member_of).member_id if member_of else member,
            group_instance_id=instance,
            topics=tuple(
                TxnOffsetCommitRequestTopic(
                    topic,
                    tuple(
                        TxnOffsetCommitRequestPartition(index, offset, -1, note)
                        for index, offset in partitions.items()
                    ),
                )
                for topic, partitions in offsets.items()
            ),
        )

    return build
