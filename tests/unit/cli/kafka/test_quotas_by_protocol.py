from __future__ import annotations

import pytest

from barnabas.cli.kafka.config_options import Entities
from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.quotas_by_protocol import (
    build_entity,
    build_filters,
    check_quota_names,
    parse_quota_value,
    quota_line,
)
from barnabas.client.config_admin import DEFAULT_NAME, QuotaEntity, QuotaFilter
from barnabas.wire.messages.describe_client_quotas import QuotaMatch

USER = Entities(("users",), ("alice",))
CLIENT = Entities(("clients",), ("app",))
BOTH = Entities(("users", "clients"), ("alice", "app"))
IP = Entities(("ips",), ("10.0.0.7",))


def test_entity_of_alter_has_all_types() -> None:
    assert build_entity(BOTH) == QuotaEntity(user="alice", client_id="app")
    assert build_entity(Entities(("clients", "users"), ("app", ""))) == QuotaEntity(
        user=DEFAULT_NAME, client_id="app"
    )
    assert build_entity(IP) == QuotaEntity(ip="10.0.0.7")


def test_filters_of_describe() -> None:
    assert build_filters(Entities(("users", "clients"), ("alice",))) == [
        QuotaFilter("user", QuotaMatch.EXACT, "alice"),
        QuotaFilter("client-id", QuotaMatch.ANY),
    ]
    assert build_filters(Entities(("ips",), ("",))) == [QuotaFilter("ip", QuotaMatch.DEFAULT)]
    with pytest.raises(RequestRejected, match="More entity names specified than entity types"):
        build_filters(Entities(("users",), ("a", "b")))


@pytest.mark.parametrize(
    ("entities", "added", "deleted", "message"),
    [
        (
            CLIENT,
            ["x"],
            [],
            "Only quota configs can be added for 'clients' using --bootstrap-server. Unexpected"
            " config names: Set(x)",
        ),
        (
            BOTH,
            [],
            ["SCRAM-SHA-256"],
            "Only quota configs can be deleted for 'clients' using --bootstrap-server. Unexpected"
            " config names: ArrayBuffer(SCRAM-SHA-256)",
        ),
        (
            USER,
            ["x", "y"],
            [],
            "Only quota and SCRAM credential configs can be added for 'users' using"
            " --bootstrap-server. Unexpected config names: Set(x, y)",
        ),
        (
            IP,
            ["x"],
            ["y"],
            "Only connection quota configs can be added for 'ips' using --bootstrap-server."
            " Unexpected config names: x,y",
        ),
    ],
)
def test_names_that_are_not_quotas_are_rejected_with_kafka_message(
    entities: Entities, added: list[str], deleted: list[str], message: str
) -> None:
    with pytest.raises(RequestRejected) as caught:
        check_quota_names(entities, added, deleted)
    assert caught.value.message == message


def test_scram_credentials_are_those_of_one_user() -> None:
    check_quota_names(USER, ["SCRAM-SHA-512"], ["SCRAM-SHA-256"])
    with pytest.raises(RequestRejected, match="--user-defaults is not allowed with User SCRAM"):
        check_quota_names(Entities(("users",), ("",)), ["SCRAM-SHA-512"], [])
    with pytest.raises(RequestRejected, match="Cannot alter both quota and SCRAM"):
        check_quota_names(USER, ["SCRAM-SHA-512"], ["producer_byte_rate"])


def test_quota_names_are_accepted() -> None:
    check_quota_names(USER, ["producer_byte_rate"], ["request_percentage"])
    check_quota_names(IP, ["connection_creation_rate"], [])


def test_quota_value_must_be_a_number() -> None:
    assert parse_quota_value("producer_byte_rate", " 1e3 ") == 1000.0
    with pytest.raises(RequestRejected) as caught:
        parse_quota_value("producer_byte_rate", "x")
    assert caught.value.message == (
        "Cannot parse quota configuration value for producer_byte_rate: x"
    )


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        (QuotaEntity(user="alice"), "user-principal 'alice'"),
        (
            QuotaEntity(user=DEFAULT_NAME, client_id="app"),
            "the default user-principal, client-id 'app'",
        ),
        (QuotaEntity(ip=DEFAULT_NAME), "the default ip"),
    ],
)
def test_quotas_are_printed_like_kafka(entity: QuotaEntity, text: str) -> None:
    quotas = {"request_percentage": 12.5, "producer_byte_rate": 1024.0}
    assert quota_line(entity, quotas) == (
        f"Quota configs for {text} are producer_byte_rate=1024.0, request_percentage=12.5"
    )
