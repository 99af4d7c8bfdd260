"""The client that requested a topic, as one broker names it to another."""

from __future__ import annotations

import pytest

from barnabas.history.requester import Requester, format_client_id, parse_requester


@pytest.mark.parametrize(
    "requester",
    [
        Requester("rdkafka", "10.0.0.7", 2, "Metadata"),
        Requester(None, "::1", 3, "FindCoordinator"),
        Requester("a shop at home for dogs", "10.0.0.7", 2, "Metadata"),
        Requester("broker-7-create on Metadata for x at y", "10.0.0.7", 2, "FindCoordinator"),
        Requester("two\nlines", "fe80::1%eth0", 1_000_001, "Metadata"),
        Requester("app", "10.0.0.7", 2, "Metadata", user="CN=a b,O=c at d as e"),
        Requester("x at y as z", "10.0.0.7", 2, "Metadata", user="ANONYMOUS"),
    ],
)
def test_client_id_of_a_forwarded_request_names_the_requester(requester: Requester) -> None:
    assert parse_requester(format_client_id(requester), "10.0.0.2") == requester


@pytest.mark.parametrize(
    "name", ["rdkafka", "", None, "broker-2-history", "broker-x-create on Metadata for a at b"]
)
def test_any_other_client_id_names_the_client_itself(name: str | None) -> None:
    assert parse_requester(name, "10.0.0.2") == Requester(name, "10.0.0.2")
