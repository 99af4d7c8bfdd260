"""Requester: the client that requested a change of a topic. The event of the request names it.

CreateTopics and DeleteTopics go to the controller's broker, which knows the client from its connection. A Metadata
request that creates a topic may go to any broker. That broker sends a CreateTopics request to the controller, with the
client in the client id:

    broker-2-create for rdkafka at 10.0.0.7

A client id is not authenticated.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FORWARDED = re.compile(r"broker-(\d+)-create for (.*) at (\S+)", re.DOTALL)


class Requester(NamedTuple):
    """A client and its host. `via` is the broker that requested the automatic creation for the client, if any. `at_ms`
    is the time when the request arrived; its event is recorded later, with the result."""

    client: str | None
    host: str
    via: int | None = None
    at_ms: int | None = None


def parse_requester(client_id: str | None, host: str) -> Requester:
    """Return the client that sent a request, or the client for which another broker sent it."""
    found = FORWARDED.fullmatch(client_id or "")
    if found is not None:
        broker, client, client_host = found.groups()
        return Requester(client or None, client_host, int(broker))
    return Requester(client_id, host)


def format_client_id(requester: Requester) -> str:
    return f"broker-{requester.via}-create for {requester.client or ''} at {requester.host}"
