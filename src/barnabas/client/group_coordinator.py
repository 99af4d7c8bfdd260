"""The broker that looks after a group: finding it, and asking it what only it can answer.

It is the leader of a partition of __consumer_offsets, so it moves as leaders do. Whoever is asked in its place says so,
and then it is looked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from barnabas.client.blocking import BlockingConnection, Deadline, wait_any
from barnabas.client.cluster import Cluster
from barnabas.client.core import raise_if
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.codec import Message
from barnabas.wire.messages.find_coordinator import (
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


class Asked(NamedTuple):
    response: type[Message]
    ticket: int
    deadline: Deadline


class CoordinatorLink:
    """A member's own connection to its coordinator, with one question under way at most. Its own, because a JoinGroup
    may wait for minutes, and would hold up all that is asked behind it."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.connection: BlockingConnection | None = None
        self.asked: Asked | None = None

    def connected(self) -> BlockingConnection:
        if self.connection is None or not self.connection.is_open:
            host, port = find_coordinator(self.cluster, self.group_id)
            self.connection = BlockingConnection.open(
                host,
                port,
                client_id=self.cluster.client_id,
                timeout_s=self.cluster.connect_timeout_s,
            )
        return self.connection

    def ask(self, request: Message, response: type[Message], *, patience_s: float) -> None:
        """The answer is had from `answer`, later."""
        timeout_s = self.cluster.timeout_s
        ticket = self.connected().begin(request, response, timeout_s=timeout_s)
        self.asked = Asked(response, ticket, Deadline(patience_s))

    def answer(self) -> Message | None:
        """The one that is waited for, if it is there."""
        asked, connection = self.asked, self.connection
        if asked is None or connection is None:
            return None
        if asked.ticket not in connection.early and not wait_any([connection], 0):
            if asked.deadline.passed:
                why = f"the coordinator at {connection.address} did not answer in time"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, why)
            return None
        self.asked = None
        return connection.finish(asked.ticket, asked.response, timeout_s=self.cluster.timeout_s)

    def wait(self, seconds: float) -> None:
        """Until the answer begins to arrive, or the time is over."""
        if self.connection is not None:
            wait_any([self.connection], seconds)

    def exchange(self, request: Message, response: type[R], *, at_most: int | None = None) -> R:
        """Ask, and wait for the answer, whatever else is under way."""
        return self.connected().exchange(
            request, response, timeout_s=self.cluster.timeout_s, at_most=at_most
        )

    def hang_up(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.asked = None
