"""ListTransactions: the transactional ids that a broker coordinates."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32, Int64, Since


class ListTransactionsRequest(ApiMessage, frozen=True, kw_only=True):
    """An empty filter accepts everything. `duration_filter` is in ms; -1 accepts any duration."""

    state_filters: tuple[str, ...] = ()
    producer_id_filters: tuple[Int64, ...] = ()
    duration_filter: Annotated[Int64, Since(1)] = -1


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: Int64
    transaction_state: str


class ListTransactionsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: tuple[str, ...] = ()
    transaction_states: tuple[ListedTransaction, ...] = ()
