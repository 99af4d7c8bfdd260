"""The coordinator of a group or of a transactional id: lookup, and requests to it.

The coordinator is the leader of a partition of __consumer_offsets or __transaction_state, so it can move to another
broker. A broker that is not the coordinator returns NOT_COORDINATOR, and the client looks up the coordinator again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from barnabas.client.blocking import BlockingConnection, Deadline, wait_readable
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

SINGLE_KEY_VERSION = 3
"""The last version of FindCoordinator with a single key."""
COORDINATOR_ERRORS = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""After one of these errors the request had no effect. The client looks up the coordinator again and retries."""


def find_coordinator(
    cluster: Cluster, key: str, key_type: CoordinatorType = CoordinatorType.GROUP
) -> tuple[str, int]:
    """Return host and port of the coordinator, without retries. Raises ApiError, such as COORDINATOR_NOT_AVAILABLE.

    `key` is the id of a group, or a transactional id.
    """
    found = cluster.ask_first_reachable(
        FindCoordinatorRequest(key=key, key_type=key_type),
        FindCoordinatorResponse,
        max_version=SINGLE_KEY_VERSION,
    )
    raise_if(found.error_code, found.error_message or coordinated_name(key, key_type))
    return found.host, found.port


def ask_coordinator(
    cluster: Cluster,
    key: str,
    request: Message,
    response: type[R],
    *,
    codes: Callable[[R], Iterable[int]],
    max_version: int | None = None,
    key_type: CoordinatorType = CoordinatorType.GROUP,
) -> R:
    """Send a request to the coordinator, with retries.

    `codes` extracts the error codes of a response. A code in COORDINATOR_ERRORS causes a retry.
    """

    def attempt() -> R:
        host, port = find_coordinator(cluster, key, key_type)
        answer = cluster.connect(host, port).exchange(
            request, response, timeout_s=cluster.timeout_s, max_version=max_version
        )
        for code in codes(answer):
            if code in COORDINATOR_ERRORS:
                raise ApiError(ErrorCode(code), coordinated_name(key, key_type))
        return answer

    return cluster.retry(attempt, refresh=False)


def coordinated_name(key: str, key_type: CoordinatorType) -> str:
    """Return what an error is about: `group billing`, or `transactional id payments-1`."""
    return f"{'transactional id' if key_type is CoordinatorType.TRANSACTION else 'group'} {key}"


class InFlightRequest(NamedTuple):
    """A request that has no response yet. `deadline` is for the response."""

    response: type[Message]
    correlation_id: int
    deadline: Deadline


class CoordinatorLink:
    """A member's connection to its coordinator. At most one request sent with `send` is in flight.

    The connection is not shared, because a JoinGroup can take minutes and would delay the requests after it.
    """

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.connection: BlockingConnection | None = None
        self.in_flight: InFlightRequest | None = None

    def connect(self) -> BlockingConnection:
        if self.connection is None or not self.connection.is_open:
            address = find_coordinator(self.cluster, self.group_id)
            self.connection = self.cluster.open_connection(*address)
        return self.connection

    def send(self, request: Message, response: type[Message], *, response_timeout_s: float) -> None:
        """Send a request. `poll_response` returns its response later."""
        correlation_id = self.connect().send(request, response, timeout_s=self.cluster.timeout_s)
        self.in_flight = InFlightRequest(response, correlation_id, Deadline(response_timeout_s))

    def poll_response(self) -> Message | None:
        """Return the response, or None if it has not arrived yet. Raises ApiError REQUEST_TIMED_OUT if it is late."""
        in_flight, connection = self.in_flight, self.connection
        if in_flight is None or connection is None:
            return None
        if in_flight.correlation_id not in connection.unclaimed and not wait_readable(
            [connection], 0
        ):
            if in_flight.deadline.passed:
                why = f"the coordinator at {connection.address} did not respond in time"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, why)
            return None
        self.in_flight = None
        return connection.receive(
            in_flight.correlation_id, in_flight.response, timeout_s=self.cluster.timeout_s
        )

    def wait(self, seconds: float) -> None:
        """Wait until a response begins to arrive, or the time is over."""
        if self.connection is not None:
            wait_readable([self.connection], seconds)

    def exchange(self, request: Message, response: type[R], *, max_version: int | None = None) -> R:
        """Send a request and wait for its response, even if another request is in flight."""
        return self.connect().exchange(
            request, response, timeout_s=self.cluster.timeout_s, max_version=max_version
        )

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.in_flight = None
