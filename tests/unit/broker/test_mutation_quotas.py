"""Stored controller mutation quotas: which of them applies to a client, and its bucket."""

from __future__ import annotations

import pytest

from barnabas.broker import mutation_quotas
from barnabas.broker.mutation_quotas import (
    MutationQuotas,
    RateLimit,
    RegistryRates,
    quota_places,
)
from barnabas.config import BrokerConfig
from barnabas.controller.mutation_quota import UNLIMITED_MUTATIONS
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient

ANONYMOUS = "ANONYMOUS"
IN_ORDER = [
    "/config/users/ANONYMOUS/clients/app%201%7E",
    "/config/users/ANONYMOUS/clients/<default>",
    "/config/users/ANONYMOUS",
    "/config/users/<default>/clients/app%201%7E",
    "/config/users/<default>/clients/<default>",
    "/config/users/<default>",
    "/config/clients/app%201%7E",
    "/config/clients/<default>",
]


async def store(registry: RegistryClient, path: str, rate: str) -> None:
    """Create the znode and its parents, as Kafka's tools do."""
    parts = path.split("/")
    for end in range(4, len(parts)):
        parent = "/".join(parts[:end])
        if await registry.exists(parent) is None:
            await registry.create(parent)
    data = znodes.encode_config({"controller_mutation_rate": rate})
    if await registry.exists(path) is None:
        await registry.create(path, data)
    else:
        await registry.set(path, data)


def test_places_are_in_the_order_of_kafka() -> None:
    assert [path for path, _ in quota_places(ANONYMOUS, "app 1~")] == IN_ORDER
    buckets = [bucket for _, bucket in quota_places(ANONYMOUS, "app 1~")]
    both, user, client = (ANONYMOUS, "app 1~"), (ANONYMOUS, ""), ("", "app 1~")
    assert buckets == [both, both, user, both, both, user, client, client]


def test_client_without_id_has_user_quotas_only() -> None:
    assert [path for path, _ in quota_places(ANONYMOUS, "")] == [
        "/config/users/ANONYMOUS",
        "/config/users/<default>",
    ]


async def test_most_specific_quota_applies(registry: RegistryClient) -> None:
    rates = RegistryRates(registry)
    assert await rates.find_rate(ANONYMOUS, "app 1~") is None
    for number, path in enumerate(reversed(IN_ORDER), start=1):
        await store(registry, path, f"{number}.5")
        found = await rates.find_rate(ANONYMOUS, "app 1~")
        assert found is not None
        assert found.rate == number + 0.5, path
    other = await rates.find_rate(ANONYMOUS, "app 2")
    assert other is not None
    assert other.rate == 7.5, "the default of the clients of this user"


@pytest.mark.parametrize("client_id", [".", "..", "a/b", "<default>", "\0", "ä", "x" * 30_000])
async def test_strange_client_ids_have_the_default_quota(
    registry: RegistryClient, client_id: str
) -> None:
    await store(registry, "/config/clients/<default>", "4")
    found = await RegistryRates(registry).find_rate(ANONYMOUS, client_id)
    assert found == RateLimit(4.0, ("", client_id))


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "much"])
async def test_invalid_rate_is_ignored_with_a_warning(
    registry: RegistryClient, rate: str, caplog: pytest.LogCaptureFixture
) -> None:
    await store(registry, "/config/clients/<default>", "4")
    await store(registry, "/config/clients/app", rate)
    found = await RegistryRates(registry).find_rate(ANONYMOUS, "app")
    assert found == RateLimit(4.0, ("", "app"))
    assert "ignoring quota path=/config/clients/app" in caplog.text


async def test_invalid_znode_is_ignored(registry: RegistryClient) -> None:
    await registry.create("/config/clients/app", b"garbage")
    assert await RegistryRates(registry).find_rate(ANONYMOUS, "app") is None


async def test_quota_without_registry_is_unlimited(registry: RegistryClient) -> None:
    quotas = MutationQuotas(RegistryRates(registry), BrokerConfig())
    await registry.close()
    assert await quotas.open(ANONYMOUS, "app", is_strict=True) is UNLIMITED_MUTATIONS


async def test_requests_of_a_client_share_a_bucket(registry: RegistryClient) -> None:
    await store(registry, "/config/clients/<default>", "2")
    config = BrokerConfig(controller_quota_window_num=3, controller_quota_window_size_seconds=5)
    quotas = MutationQuotas(RegistryRates(registry), config)
    first = await quotas.open(ANONYMOUS, "app", is_strict=True)
    assert first.bucket is not None
    assert first.bucket.burst == 30
    assert first.charge(1000) is None
    assert (await quotas.open(ANONYMOUS, "app", is_strict=True)).charge(1) is not None
    assert (await quotas.open(ANONYMOUS, "other", is_strict=True)).charge(1) is None


async def test_changed_rate_keeps_the_tokens(registry: RegistryClient) -> None:
    await store(registry, "/config/users/<default>", "2")
    quotas = MutationQuotas(RegistryRates(registry), BrokerConfig())
    (await quotas.open(ANONYMOUS, "app", is_strict=True)).charge(1000)
    await store(registry, "/config/users/<default>", "200")
    quota = await quotas.open(ANONYMOUS, "app", is_strict=True)
    error = quota.charge(1)
    assert error is not None
    assert 0 < quota.throttle_ms() < 5000


async def test_full_buckets_are_dropped_at_the_limit(
    registry: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation_quotas, "BUCKETS_MAX", 3)
    await store(registry, "/config/clients/<default>", "1")
    quotas = MutationQuotas(RegistryRates(registry), BrokerConfig())
    (await quotas.open(ANONYMOUS, "busy", is_strict=True)).charge(10_000)
    for number in range(10):
        await quotas.open(ANONYMOUS, f"app-{number}", is_strict=True)
    assert len(quotas.buckets) <= 4
    assert (await quotas.open(ANONYMOUS, "busy", is_strict=True)).charge(1) is not None


async def test_users_have_their_own_buckets(registry: RegistryClient) -> None:
    await store(registry, "/config/users/<default>", "2")
    quotas = MutationQuotas(RegistryRates(registry), BrokerConfig())
    (await quotas.open("alice", "app", is_strict=True)).charge(1000)
    assert (await quotas.open("alice", "other", is_strict=True)).charge(1) is not None
    assert (await quotas.open("bob", "app", is_strict=True)).charge(1) is None


def test_relative_names_have_only_default_quotas() -> None:
    paths = [path for path, _ in quota_places("..", ".")]
    assert paths == [
        "/config/users/<default>/clients/<default>",
        "/config/users/<default>",
        "/config/clients/<default>",
    ]
