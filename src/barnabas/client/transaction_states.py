"""Many transactions at once: end them, read their state, find open ones. For a process that did not begin them.

Requests are grouped by coordinator. Several are in flight on each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.core import raise_if
from barnabas.client.transaction_admin import ONGOING_STATE, TransactionAdmin
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.codec import Message
from barnabas.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.find_coordinator import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")
R = TypeVar("R", bound=Message)

IN_FLIGHT_MAX = 32
"""Requests in flight on one connection."""


def find_transaction_coordinators(
    cluster: Cluster, transactional_ids: Sequence[str]
) -> dict[tuple[str, int], list[str]]:
    """Return the ids by the address of their coordinator, without retries. Raises ApiError."""
    found = cluster.ask_first_reachable(
        FindCoordinatorRequest(
            key_type=CoordinatorType.TRANSACTION, coordinator_keys=tuple(transactional_ids)
        ),
        FindCoordinatorResponse,
    )
    by_address: dict[tuple[str, int], list[str]] = {}
    for each in found.coordinators:
        raise_if(each.error_code, each.error_message or f"transactional id {each.key}")
        by_address.setdefault((each.host, each.port), []).append(each.key)
    return by_address


def ask_transaction_coordinators(
    cluster: Cluster,
    transactional_ids: Iterable[str],
    ask: Callable[[tuple[str, int], list[str]], Iterator[tuple[str, T | ApiError]]],
    deadline: Deadline | None = None,
) -> dict[str, T]:
    """Call `ask` with each coordinator and its ids until each id has a result. Retriable errors are retried until the
    deadline, by default the timeout of the cluster.

    Raises the first other ApiError.
    """
    done: dict[str, T] = {}
    waiting = list(transactional_ids)

    def attempt() -> None:
        failure: ApiError | None = None
        for address, ids in find_transaction_coordinators(cluster, waiting).items():
            try:
                for each, answer in ask(address, ids):
                    if isinstance(answer, ApiError):
                        failure = failure or answer
                    else:
                        done[each] = answer
            except ApiError as error:
                failure = failure or error
        waiting[:] = [each for each in waiting if each not in done]
        if failure is not None:
            raise failure

    if waiting:
        cluster.retry(attempt, deadline, refresh=False)
    return done


def end_transactions(
    cluster: Cluster,
    transactions: Mapping[str, tuple[int, int]],
    *,
    is_commit: bool,
    deadline: Deadline | None = None,
) -> dict[str, ErrorCode]:
    """Commit or abort the transaction of each id, given with its producer id and epoch.

    Returns the error code of each id. A code that is not NONE is final: retriable ones were retried until the deadline,
    and then raised as ApiError.
    """

    def ask(address: tuple[str, int], ids: list[str]) -> Iterator[tuple[str, ErrorCode | ApiError]]:
        requests = {
            each: EndTxnRequest(
                transactional_id=each,
                producer_id=transactions[each][0],
                producer_epoch=transactions[each][1],
                committed=is_commit,
            )
            for each in ids
        }
        for each, answer in exchange_all(cluster, address, requests, EndTxnResponse):
            code = ErrorCode(answer.error_code)
            error = ApiError(code, f"transactional id {each}")
            yield each, error if code.retriable else code

    return ask_transaction_coordinators(cluster, transactions, ask, deadline)


def exchange_all(
    cluster: Cluster,
    address: tuple[str, int],
    requests: Mapping[str, Message],
    response: type[R],
) -> Iterator[tuple[str, R]]:
    """Send all requests to one broker and yield the responses, with up to IN_FLIGHT_MAX requests in flight."""
    connection = cluster.connect(*address)
    names = list(requests)
    for start in range(0, len(names), IN_FLIGHT_MAX):
        sent = [
            (name, connection.send(requests[name], response, timeout_s=cluster.timeout_s))
            for name in names[start : start + IN_FLIGHT_MAX]
        ]
        for name, correlation_id in sent:
            yield name, connection.receive(correlation_id, response, timeout_s=cluster.timeout_s)


def describe_transaction_states(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, DescribedTransaction]:
    """Return the state of each transactional id, with TRANSACTIONAL_ID_NOT_FOUND for an unknown one."""

    def ask(
        address: tuple[str, int], ids: list[str]
    ) -> Iterator[tuple[str, DescribedTransaction | ApiError]]:
        answer = cluster.connect(*address).exchange(
            DescribeTransactionsRequest(transactional_ids=tuple(ids)),
            DescribeTransactionsResponse,
            timeout_s=cluster.timeout_s,
        )
        for each in answer.transaction_states:
            code = ErrorCode(each.error_code)
            error = ApiError(code, f"transactional id {each.transactional_id}")
            yield each.transactional_id, error if code.retriable else each

    return ask_transaction_coordinators(cluster, transactional_ids, ask)


def list_open_transactions(cluster: Cluster, prefix: str) -> list[str]:
    """Return the transactional ids with this prefix that have an open transaction."""
    listed = TransactionAdmin(cluster).list_transactions(states=[ONGOING_STATE])
    return [each.transactional_id for each in listed if each.transactional_id.startswith(prefix)]
