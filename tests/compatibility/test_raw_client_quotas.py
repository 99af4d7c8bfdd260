"""DescribeClientQuotas and AlterClientQuotas: errors, versions, and the znodes that they write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.wire.apis import APIS
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaEntity,
    AlteredQuotas,
    AlteredQuotaValue,
)
from barnabas.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaFilterComponent,
    QuotaMatch,
)
from tests.compatibility.raw import Raw

Entity = list[tuple[str, str | None]]
EXACT, DEFAULT, ANY = QuotaMatch


def quotas(entity: Entity, **values: float | None) -> AlteredQuotas:
    return AlteredQuotas(
        tuple(AlteredQuotaEntity(*each) for each in entity),
        tuple(AlteredQuotaValue(key, value or 0.0, value is None) for key, value in values.items()),
    )


def alter(
    raw: Raw, *entries: AlteredQuotas, validate_only: bool = False, version: int | None = None
) -> list[ErrorCode]:
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    answer = raw.ask(request, AlterClientQuotasResponse, version)
    assert [each.entity for each in answer.entries] == [each.entity for each in entries]
    return [ErrorCode(each.error_code) for each in answer.entries]


def describe(
    raw: Raw,
    *components: tuple[str, int, str | None],
    strict: bool = False,
    version: int | None = None,
) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(
        components=tuple(QuotaFilterComponent(*each) for each in components), strict=strict
    )
    return raw.ask(request, DescribeClientQuotasResponse, version)


def found(response: DescribeClientQuotasResponse) -> dict[Entity | tuple[object, ...], object]:
    assert response.error_code == ErrorCode.NONE
    assert response.entries is not None
    return {
        tuple(tuple(part) for part in entry.entity): {each.key: each.value for each in entry.values}
        for entry in response.entries
    }


def config_znodes(cluster: LocalCluster) -> dict[str, dict[str, str]]:
    registry, keeper = cluster.cluster.open_registry()

    async def read() -> dict[str, dict[str, str]]:
        session = await registry.connect(10_000)
        settings = {}
        paths = ["/config/users", "/config/clients", "/config/ips"]
        while paths:
            path = paths.pop()
            paths += [f"{path}/{name}" for name in await session.children(path)]
            data, _ = await session.get(path)
            if data:
                settings[path] = znodes.decode_config(path, data)
        await session.close()
        return settings

    return keeper.run(read())


@pytest.fixture(autouse=True)
def no_quotas(cluster: LocalCluster) -> Iterator[None]:
    yield
    with Raw(cluster.bootstrap_servers) as raw:
        entries = describe(raw).entries or ()
        removals = [
            quotas(
                [(part.entity_type, part.entity_name) for part in entry.entity],
                **dict.fromkeys(v.key for v in entry.values),
            )
            for entry in entries
        ]
        assert set(alter(raw, *removals)) <= {ErrorCode.NONE}
    assert config_znodes(cluster) == {}


@pytest.mark.parametrize("version", APIS[49].versions)
def test_quotas_are_stored_in_the_format_of_kafka(
    cluster: LocalCluster, raw: Raw, version: int
) -> None:
    entries = [
        quotas([("user", "anna b")], producer_byte_rate=1000.0, request_percentage=12.5),
        quotas([("user", None)], consumer_byte_rate=7.0),
        quotas([("client-id", "a/b")], controller_mutation_rate=2.0),
        quotas([("user", "anna b"), ("client-id", None)], producer_byte_rate=1.0),
        quotas([("ip", "10.0.0.1")], connection_creation_rate=3.0),
        quotas([("ip", None)], connection_creation_rate=4.0),
    ]
    assert alter(raw, *entries, version=version) == [ErrorCode.NONE] * 6
    assert config_znodes(cluster) == {
        "/config/users/anna%20b": {"producer_byte_rate": "1000", "request_percentage": "12.5"},
        "/config/users/<default>": {"consumer_byte_rate": "7"},
        "/config/clients/a%2Fb": {"controller_mutation_rate": "2.0"},
        "/config/users/anna%20b/clients/<default>": {"producer_byte_rate": "1"},
        "/config/ips/10.0.0.1": {"connection_creation_rate": "3"},
        "/config/ips/<default>": {"connection_creation_rate": "4"},
    }
    assert found(describe(raw, version=version)) == {
        (("user", "anna b"),): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        (("user", None),): {"consumer_byte_rate": 7.0},
        (("client-id", "a/b"),): {"controller_mutation_rate": 2.0},
        (("user", "anna b"), ("client-id", None)): {"producer_byte_rate": 1.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
        (("ip", None),): {"connection_creation_rate": 4.0},
    }
    strict = found(describe(raw, ("user", EXACT, "anna b"), strict=True))
    assert list(strict) == [(("user", "anna b"),)]
    assert list(found(describe(raw, ("ip", DEFAULT, None)))) == [(("ip", None),)]
    assert found(describe(raw, strict=True)) == {}
    assert found(describe(raw, ("client-id", EXACT, ".."))) == {}


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ([], "producer_byte_rate", 1.0),
        ([("user", "")], "producer_byte_rate", 1.0),
        ([("group", "g")], "producer_byte_rate", 1.0),
        ([("client-id", "..")], "producer_byte_rate", 1.0),
        ([("ip", "10.0.0.1"), ("user", "u")], "connection_creation_rate", 1.0),
        ([("ip", "nowhere at all")], "connection_creation_rate", 1.0),
        ([("user", "u")], "no_such_quota", 1.0),
        ([("user", "u")], "connection_creation_rate", 1.0),
        ([("ip", "10.0.0.1")], "producer_byte_rate", 1.0),
        ([("user", "u")], "producer_byte_rate", 1.5),
        ([("user", "u")], "producer_byte_rate", -1.0),
        ([("user", "u")], "controller_mutation_rate", 0.0),
        ([("user", "u")], "request_percentage", float("nan")),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_invalid_quota_is_rejected_and_others_are_changed(
    cluster: LocalCluster, raw: Raw, entity: Entity, key: str, value: float, validate_only: bool
) -> None:
    codes = alter(
        raw,
        quotas(entity, **{key: value}),
        quotas([("user", "valid")], producer_byte_rate=1.0),
        validate_only=validate_only,
    )
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    stored = {} if validate_only else {"/config/users/valid": {"producer_byte_rate": "1"}}
    assert config_znodes(cluster) == stored


@pytest.mark.parametrize("version", APIS[48].versions)
@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("client-id", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_filter_is_rejected(
    raw: Raw, components: list[tuple[str, int, str | None]], code: ErrorCode, version: int
) -> None:
    answer = describe(raw, *components, version=version)
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message
