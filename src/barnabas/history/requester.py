"""Requester: the client that requested a change of a topic. The event of the request names it.

CreateTopics and DeleteTopics go to the controller's broker, which knows the client from its connection. A Metadata or
FindCoordinator request that creates a topic may go to any broker. That broker sends a CreateTopics request to the
controller, with the client and its request in the client id:

    broker-2-create on Metadata for rdkafka at 10.0.0.7

A client id is not authenticated.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FORWARDED = re.compile(
    r"broker-(\d+)-create on (Metadata|FindCoordinator) for (.*) at (\S+)", re.DOTALL
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


def parse_requester(client_id: str | None, host: str) -> Requester:
    """Return the client that sent a request, or the client for which another broker sent it."""
    found = FORWARDED.fullmatch(client_id or "")
    if found is not None:
        broker, request, client, client_host = found.groups()
        return Requester(client or None, client_host, int(broker), request)
    return Requester(client_id, host)


def format_client_id(requester: Requester) -> str:
    via, request, client, host = requester.via, requester.request, requester.client, requester.host
    return f"broker-{via}-create on {request} for {client or ''} at {host}"
