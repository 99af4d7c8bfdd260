"""Requester: the client that requested a topic, as the event of the topic names it.

A client that creates or deletes a topic sends a request to the controller's broker, which knows the client by its
connection. A client that merely names a topic may send that to any broker. This broker then sends the controller a
plain CreateTopics request, and names the client in the client id of that request:

    broker-2-create for rdkafka at 10.0.0.7

Like every client id, it is a name and no proof.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FORWARDED = re.compile(r"broker-(\d+)-create for (.*) at (\S+)", re.DOTALL)


class Requester(NamedTuple):
    """`via` is the broker that received a client's request for a topic without a request to create it. `at_ms` is the
    time at which the request arrived; its event is recorded later, after the broker has waited for the result."""

    client: str | None
    host: str
    via: int | None = None
    at_ms: int | None = None


def parse_requester(client_id: str | None, host: str) -> Requester:
    """The client itself, or the one on whose behalf another broker sent the request."""
    found = FORWARDED.fullmatch(client_id or "")
    if found is not None:
        broker, client, client_host = found.groups()
        return Requester(client or None, client_host, int(broker))
    return Requester(client_id, host)


def format_client_id(requester: Requester) -> str:
    return f"broker-{requester.via}-create for {requester.client or ''} at {requester.host}"
