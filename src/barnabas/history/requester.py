"""Requester: the client that requested a change of a topic. The event of the request names it.

CreateTopics and DeleteTopics go to the controller's broker, which knows the client from its connection. A Metadata or
FindCoordinator request that creates a topic may go to any broker. That broker sends a CreateTopics request to the
controller, with the client, its user and its request in the client id:

    broker-2-create on Metadata for rdkafka at 10.0.0.7 as alice

The user is percent-encoded, and left out if it is ANONYMOUS. A client id is not authenticated. With an authorizer, only
a principal that may act as a broker may send such a request.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

ANONYMOUS = "ANONYMOUS"
FORWARDED = re.compile(
    r"broker-(\d+)-create on (Metadata|FindCoordinator) for (.*) at (\S+?)(?: as (\S+))?",
    re.DOTALL,
)


class Requester(NamedTuple):
    """A client and its host. For an automatic creation: the broker (`via`) that got the client's request, and its API.

    `at_ms` is the time when the request arrived; its event is recorded later, with the result.
    """

    client: str | None
    host: str
    via: int | None = None
    request: str | None = None
    at_ms: int | None = None
    user: str = ANONYMOUS

    @property
    def name(self) -> str | None:
        """The authenticated user, such as `User:alice`, or the client id."""
        return self.client if self.user == ANONYMOUS else f"User:{self.user}"


def is_forwarded(client_id: str | None) -> bool:
    """Whether the sender claims to be a broker that creates a topic for a client."""
    return FORWARDED.fullmatch(client_id or "") is not None


def parse_requester(client_id: str | None, host: str) -> Requester:
    """Return the client that sent a request, or the client for which another broker sent it."""
    found = FORWARDED.fullmatch(client_id or "")
    if found is not None:
        broker, request, client, client_host, user = found.groups()
        forwarded = Requester(client or None, client_host, int(broker), request)
        return forwarded._replace(user=unquote(user)) if user else forwarded
    return Requester(client_id, host)


def format_client_id(requester: Requester) -> str:
    via, request, client, host = requester.via, requester.request, requester.client, requester.host
    user = "" if requester.user == ANONYMOUS else f" as {quote(requester.user, safe='')}"
    return f"broker-{via}-create on {request} for {client or ''} at {host}{user}"
