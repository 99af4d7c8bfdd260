"""DescribeTransactions: the state of transactional ids, from their coordinator."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32, Int64


class DescribeTransactionsRequest(ApiMessage, frozen=True, kw_only=True):
    transactional_ids: tuple[str, ...]


class DescribedTransactionTopic(NamedTuple):
    topic: str
    partitions: tuple[Int32, ...]


class DescribedTransaction(NamedTuple):
    error_code: Int16
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: tuple[DescribedTransactionTopic, ...] = ()


class DescribeTransactionsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    transaction_states: tuple[DescribedTransaction, ...] = ()
