"""Quota entities: names, paths, values and filters."""

from __future__ import annotations

import pytest

from barnabas.broker.config_admin.quota_entities import (
    QuotaOperation,
    apply_quotas,
    find_quota_entity,
    matches_filter,
    parse_filter,
    parse_quotas,
)
from barnabas.broker.config_admin.write import Entity
from barnabas.config.client_quotas import CLIENT_QUOTAS
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.znodes import desanitise, sanitise
from barnabas.wire.messages.describe_client_quotas import QuotaFilterComponent, QuotaMatch

EXACT, DEFAULT, ANY = QuotaMatch
ANNA = Entity("users", "anna")


# Names as java.net.URLEncoder and Kafka's Sanitizer encode them.
@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("anna", "anna"),
        ("a.b-c_d", "a.b-c_d"),
        ("User:CN=a, O=b", "User%3ACN%3Da%2C%20O%3Db"),
        ("*~+/%", "%2A%7E%2B%2F%25"),
        ("ä", "%C3%A4"),
        ("<default>", "%3Cdefault%3E"),
    ],
)
def test_names_are_encoded_as_in_kafka(name: str, encoded: str) -> None:
    assert sanitise(name) == encoded
    assert desanitise(encoded) == name


def test_default_has_its_own_name() -> None:
    assert sanitise(None) == "<default>"
    assert desanitise("<default>") is None


@pytest.mark.parametrize(
    ("parts", "entity"),
    [
        ([("user", "anna")], Entity("users", "anna")),
        ([("user", None)], Entity("users", "<default>")),
        ([("client-id", "a/b")], Entity("clients", "a%2Fb")),
        ([("client-id", "c"), ("user", "u")], Entity("users", "u/clients/c")),
        ([("user", None), ("client-id", None)], Entity("users", "<default>/clients/<default>")),
        ([("ip", "10.0.0.1")], Entity("ips", "10.0.0.1")),
        ([("ip", None)], Entity("ips", "<default>")),
        ([("ip", "::1")], Entity("ips", "%3A%3A1")),
    ],
)
def test_entity_path(parts: list[tuple[str, str | None]], entity: Entity) -> None:
    assert find_quota_entity(parts) == entity


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("user", "")],
        [("group", "g")],
        [("", "g")],
        [("user", "a"), ("user", "b")],
        [("ip", "10.0.0.1"), ("user", "a")],
        [("ip", "not an address")],
    ],
)
def test_invalid_entity_is_rejected(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ApiError) as caught:
        find_quota_entity(parts)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_quotas_are_stored_in_their_type() -> None:
    operations = [
        QuotaOperation("producer_byte_rate", 1000.0),
        QuotaOperation("request_percentage", 12.5),
        QuotaOperation("controller_mutation_rate", 10_000_000.0),
        QuotaOperation("consumer_byte_rate", None),
    ]
    settings = {"consumer_byte_rate": "5", "SCRAM-SHA-256": "secret"}
    assert apply_quotas(settings, operations, ANNA) == {
        "SCRAM-SHA-256": "secret",
        "producer_byte_rate": "1000",
        "request_percentage": "12.5",
        "controller_mutation_rate": "1.0E7",
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("producer_byte_rate", 0.5),
        ("producer_byte_rate", -1.0),
        ("producer_byte_rate", float("nan")),
        ("request_percentage", float("inf")),
        ("producer_byte_rate", 1e19),
        ("connection_creation_rate", 1.0),
        ("SCRAM-SHA-256", 1.0),
        ("no_such_quota", 1.0),
    ],
)
def test_invalid_quota_is_rejected(key: str, value: float) -> None:
    with pytest.raises(ApiError) as caught:
        apply_quotas({}, [QuotaOperation(key, value)], ANNA)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_address_has_only_its_own_quota() -> None:
    address = Entity("ips", "10.0.0.1")
    operation = QuotaOperation("connection_creation_rate", 7.0)
    assert apply_quotas({}, [operation], address) == {"connection_creation_rate": "7"}
    with pytest.raises(ApiError):
        apply_quotas({}, [QuotaOperation("producer_byte_rate", 7.0)], address)


def test_removing_an_unknown_quota_is_allowed() -> None:
    assert apply_quotas({}, [QuotaOperation("no_such_quota", None)], ANNA) == {}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", ANY, None), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_filter_is_rejected(
    components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as caught:
        parse_filter(QuotaFilterComponent(*each) for each in components)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("components", "strict", "matching"),
    [
        ([], False, ["u", "c", "uc", "default u", "default c"]),
        ([("user", EXACT, "anna")], False, ["u", "uc"]),
        ([("user", EXACT, "anna")], True, ["u"]),
        ([("user", DEFAULT, None)], False, ["default u"]),
        ([("user", ANY, None)], False, ["u", "uc", "default u"]),
        ([("client-id", ANY, None)], True, ["c", "default c"]),
        ([("user", EXACT, "anna"), ("client-id", ANY, None)], True, ["uc"]),
    ],
)
def test_filter_selects_entities(
    components: list[tuple[str, int, str | None]], strict: bool, matching: list[str]
) -> None:
    entities: dict[str, dict[str, str | None]] = {
        "u": {"user": "anna"},
        "c": {"client-id": "reports"},
        "uc": {"user": "anna", "client-id": "reports"},
        "default u": {"user": None},
        "default c": {"client-id": None},
    }
    conditions = parse_filter(QuotaFilterComponent(*each) for each in components)
    found = [
        name for name, names in entities.items() if matches_filter(names, conditions, strict=strict)
    ]
    assert found == matching


def test_only_valid_quotas_are_described() -> None:
    settings = {"producer_byte_rate": "10", "consumer_byte_rate": "much", "SCRAM-SHA-256": "s"}
    assert parse_quotas(settings, CLIENT_QUOTAS) == {"producer_byte_rate": 10.0}
