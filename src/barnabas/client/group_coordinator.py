"""The broker that looks after a group: finding it, and asking it what only it can answer.

It is the leader of a partition of __consumer_offsets, so it moves as leaders do. Whoever is asked in its place says so,
and then it is looked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.core import raise_if
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.codec import Message
from barnabas.wire.messages.coordinator import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

R = TypeVar("R", bound=Message)

ONE_KEY = 3
"""The last version of FindCoordinator that asks for a single group."""
ELSEWHERE = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Nothing was done: ask again, perhaps somebody else."""


def find_coordinator(cluster: Cluster, group_id: str) -> tuple[str, int]:
    """Where it listens. One try: COORDINATOR_NOT_AVAILABLE while there is none."""
    found = cluster.ask_whoever_is_there(
        FindCoordinatorRequest(key=group_id, key_type=CoordinatorType.GROUP),
        FindCoordinatorResponse,
        at_most=ONE_KEY,
    )
    raise_if(found.error_code, found.error_message or f"group {group_id}")
    return found.host, found.port


def ask_coordinator(
    cluster: Cluster,
    group_id: str,
    request: Message,
    response: type[R],
    *,
    codes: Callable[[R], Iterable[int]],
    at_most: int | None = None,
) -> R:
    """`codes` finds the error codes in an answer: if it is the wrong broker's, the right one is looked for."""

    def attempt() -> R:
        host, port = find_coordinator(cluster, group_id)
        answer = cluster.connect(host, port).exchange(
            request, response, timeout_s=cluster.timeout_s, at_most=at_most
        )
        for code in codes(answer):
            if code in ELSEWHERE:
                raise ApiError(ErrorCode(code), f"group {group_id}")
        return answer

    return cluster.retry(attempt, refresh=False)
