"""Creating and deleting topics: znodes, waiting for the metadata cache, and results."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from random import Random

import pytest

from barnabas.broker.topic_admin.create_topics import (
    CreationOutcome,
    check_one,
    create_topics,
    read_registry,
    try_write_topic,
)
from barnabas.broker.topic_admin.delete_topics import delete_topics
from barnabas.broker.topic_admin.topics import Topics, to_api_error
from barnabas.config import BrokerConfig
from barnabas.controller.topic_checks import TopicSpec
from barnabas.errors import ApiError, ErrorCode, RegistrySessionExpired, RegistryUnreachable
from barnabas.metadata import znodes
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import BrokerId
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.world.ports import Op

LONG_MS = 10_000


@pytest.fixture
async def registry(registry: RegistryClient) -> RegistryClient:
    await registry.create(znodes.CONTROLLER, b"{}", ephemeral=True)
    return registry


@pytest.fixture
def cache() -> MetadataCache:
    cache = MetadataCache("cluster")
    update_cache(cache)
    return cache


@pytest.fixture
def topics(registry: RegistryClient, cache: MetadataCache) -> Topics:
    config = BrokerConfig(num_partitions=2, default_replication_factor=1)
    return Topics(registry, cache, config, Random(1))


def update_cache(cache: MetadataCache, *states: UpdateMetadataTopicState) -> None:
    """Update the cache as the controller does."""
    endpoint = UpdateMetadataEndpoint(9092, "here", "PLAINTEXT")
    cache.update(
        UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=states,
            live_brokers=tuple(UpdateMetadataBroker(id=n, endpoints=(endpoint,)) for n in (1, 2)),
        )
    )


def topic_state(name: str, *leaders: int) -> UpdateMetadataTopicState:
    return UpdateMetadataTopicState(
        name,
        partition_states=tuple(
            UpdateMetadataPartitionState(partition_index=index, leader=leader, replicas=(1,))
            for index, leader in enumerate(leaders)
        ),
    )


def topic_request(name: str, **more: object) -> TopicSpec:
    return TopicSpec(name=name, **{"configs": {}, **more})  # type: ignore[arg-type]


def code_of(outcome: CreationOutcome) -> ErrorCode:
    return ErrorCode.NONE if outcome.error is None else outcome.error.code


async def wait_for_znode(registry: RegistryClient, path: str) -> None:
    async with asyncio.timeout(30):
        while await registry.exists(path) is None:
            await asyncio.sleep(0)


# ---- creating


async def test_create_returns_when_cache_shows_every_leader(
    topics: Topics, registry: RegistryClient, cache: MetadataCache
) -> None:
    configs = {"retention.ms": "5"}
    creation = asyncio.create_task(
        create_topics(
            topics, [topic_request("t", configs=configs, replication_factor=2)], timeout_ms=LONG_MS
        )
    )
    await wait_for_znode(registry, "/brokers/topics/t")
    update_cache(cache, topic_state("t", 1, -1))
    await asyncio.sleep(0)
    assert not creation.done(), "one partition has no leader yet"
    update_cache(cache, topic_state("t", 1, 2))
    (outcome,) = await creation
    assert code_of(outcome) is ErrorCode.NONE
    data, _ = await registry.get("/brokers/topics/t")
    written = znodes.decode_topic("t", data)
    assert written.topic_id == outcome.topic_id
    assert tuple(each.replicas for each in written.partitions.values()) == outcome.replicas
    assert [sorted(each) for each in outcome.replicas] == [[1, 2], [1, 2]]
    data, _ = await registry.get("/config/topics/t")
    assert znodes.decode_config("", data) == configs == outcome.overrides
    assert await registry.children("/brokers/topics/t") == [], (
        "the controller creates the partition znodes"
    )


async def test_timed_out_creation_still_creates_topic(
    topics: Topics, registry: RegistryClient
) -> None:
    for name, timeout_ms in (("short", 1), ("none", 0), ("less", -1)):
        (outcome,) = await create_topics(topics, [topic_request(name)], timeout_ms=timeout_ms)
        assert code_of(outcome) is ErrorCode.REQUEST_TIMED_OUT
        assert outcome.error is not None
        assert outcome.error.message == ""
        assert await registry.exists(f"/brokers/topics/{name}") is not None


async def test_results_of_a_request_are_returned_together(
    topics: Topics, registry: RegistryClient, cache: MetadataCache
) -> None:
    requests = [topic_request("a"), topic_request("bad name"), topic_request("b")]
    creation = asyncio.create_task(create_topics(topics, requests, timeout_ms=LONG_MS))
    await wait_for_znode(registry, "/brokers/topics/b")
    update_cache(cache, topic_state("a", 1, 1))
    await asyncio.sleep(0)
    assert not creation.done()
    update_cache(cache, topic_state("b", 1, 1))
    outcomes = await creation
    assert [each.name for each in outcomes] == ["a", "bad name", "b"]
    assert [code_of(each) for each in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]


async def test_timeout_is_reported_only_for_topics_without_leader(
    topics: Topics, cache: MetadataCache
) -> None:
    creation = asyncio.create_task(
        create_topics(topics, [topic_request("a"), topic_request("b")], timeout_ms=LONG_MS)
    )
    async with asyncio.timeout(30):
        while not cache.waiting:
            await asyncio.sleep(0)
    update_cache(cache, topic_state("a", 1, 1))
    ((_, waits),) = cache.waiting
    waits.set_exception(TimeoutError())  # the clock raises this on timeout
    outcomes = await creation
    assert [code_of(each) for each in outcomes] == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]


async def test_create_validate_only_writes_nothing(
    topics: Topics, registry: RegistryClient
) -> None:
    requests = [
        topic_request("a.b"),
        topic_request("a_b"),
        topic_request("c", configs={"retention.ms": "soon"}),
    ]
    outcomes = await create_topics(topics, requests, timeout_ms=LONG_MS, validate_only=True)
    assert [code_of(each) for each in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_CONFIG,
    ]
    assert await registry.children("/brokers/topics") == []
    assert await registry.children("/config/topics") == []


async def test_colliding_names_in_one_request_create_one_topic(
    topics: Topics, registry: RegistryClient
) -> None:
    outcomes = await create_topics(
        topics, [topic_request("a.b"), topic_request("a_b")], timeout_ms=0
    )
    assert [code_of(each) for each in outcomes] == [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert await registry.children("/brokers/topics") == ["a.b"]


async def test_topic_known_only_to_registry_already_exists(topics: Topics) -> None:
    await create_topics(topics, [topic_request("t")], timeout_ms=0)
    (again,) = await create_topics(topics, [topic_request("t")], timeout_ms=0)
    assert code_of(again) is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_concurrent_creations_create_one_topic(
    topics: Topics,
) -> None:
    found = await asyncio.gather(
        *(create_topics(topics, [topic_request("t")], timeout_ms=0) for _ in range(5)),
    )
    codes = sorted(code_of(outcomes[0]) for outcomes in found)
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, *[ErrorCode.TOPIC_ALREADY_EXISTS] * 4]


async def test_creation_retried_on_new_connection_succeeds(
    topics: Topics, registry: RegistryClient, cache: MetadataCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = registry.multi

    async def lose_first_response(operations: Sequence[Op]) -> object:
        await carry_out(operations)
        monkeypatch.setattr(registry, "multi", carry_out)
        return await carry_out(operations)

    monkeypatch.setattr(registry, "multi", lose_first_response)
    creation = asyncio.create_task(create_topics(topics, [topic_request("t")], timeout_ms=LONG_MS))
    await wait_for_znode(registry, "/brokers/topics/t")
    update_cache(cache, topic_state("t", 1, 1))
    (outcome,) = await creation
    assert code_of(outcome) is ErrorCode.NONE
    data, _ = await registry.get("/brokers/topics/t")
    assert znodes.decode_topic("t", data).topic_id == outcome.topic_id


async def test_topic_marked_for_deletion_is_rejected(
    topics: Topics, registry: RegistryClient
) -> None:
    await registry.create("/admin/delete_topics/t")
    (outcome,) = await create_topics(topics, [topic_request("t")], timeout_ms=0)
    assert code_of(outcome) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "marked for deletion" in str(outcome.error)
    replicas = znodes.ReplicaAssignment(replicas=(BrokerId(1), BrokerId(77)))
    assignment = znodes.TopicAssignment(topic_id=None, partitions={0: replicas})
    await registry.create("/brokers/topics/t", znodes.encode_topic(assignment))
    (outcome,) = await create_topics(topics, [topic_request("t")], timeout_ms=0)
    assert code_of(outcome) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert str(outcome.error).endswith("when these brokers are back: 77")


async def test_config_of_interrupted_creation_is_overwritten(
    topics: Topics, registry: RegistryClient
) -> None:
    await registry.create("/config/topics/t", znodes.encode_config({"segment.bytes": "100"}))
    (outcome,) = await create_topics(topics, [topic_request("t")], timeout_ms=0)
    assert code_of(outcome) is ErrorCode.REQUEST_TIMED_OUT
    data, _ = await registry.get("/config/topics/t")
    assert znodes.decode_config("", data) == {}
    assert await registry.exists("/brokers/topics/t") is not None


async def test_creation_without_controller_is_rejected(
    topics: Topics, registry: RegistryClient
) -> None:
    await registry.delete(znodes.CONTROLLER)
    with pytest.raises(ApiError) as refused:
        await create_topics(topics, [topic_request("t")], timeout_ms=0)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_creation_fails_if_controller_moves_before_write(
    topics: Topics, registry: RegistryClient
) -> None:
    known = await read_registry(topics)
    await registry.set(znodes.CONTROLLER, b"{}")
    checked = check_one(topics, topic_request("t"), known)
    outcome = await try_write_topic(topics, known.controller_version, checked)
    assert code_of(outcome) is ErrorCode.NOT_CONTROLLER
    assert await registry.exists("/brokers/topics/t") is None
    assert await registry.exists("/config/topics/t") is None


async def test_one_request_creates_a_thousand_topics(
    topics: Topics, registry: RegistryClient
) -> None:
    requests = [topic_request(f"many.{index}") for index in range(1000)]
    async with asyncio.timeout(30):
        outcomes = await create_topics(topics, requests, timeout_ms=0)
    assert {code_of(each) for each in outcomes} == {ErrorCode.REQUEST_TIMED_OUT}
    assert len(await registry.children("/brokers/topics")) == 1000


# ---- deleting


async def test_delete_returns_when_cache_has_forgotten_topic(
    topics: Topics, registry: RegistryClient, cache: MetadataCache
) -> None:
    await create_topics(topics, [topic_request("t")], timeout_ms=0)
    update_cache(cache, topic_state("t", 1, 1))
    first = asyncio.create_task(delete_topics(topics, ["t", "nowhere", "t"], timeout_ms=LONG_MS))
    await wait_for_znode(registry, "/admin/delete_topics/t")
    second = asyncio.create_task(delete_topics(topics, ["t"], timeout_ms=LONG_MS))
    async with asyncio.timeout(30):
        while len(cache.waiting) < 2:
            await asyncio.sleep(0)
    update_cache(cache, topic_state("t", -2))
    await asyncio.sleep(0)
    assert not first.done(), "one partition remains"
    update_cache(cache, topic_state("t", -2, -2))
    found = await first
    assert found["t"] is None
    unknown = found["nowhere"]
    assert unknown is not None
    assert unknown.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await second == {"t": None}, "an existing deletion marker is accepted"


async def test_timed_out_deletion_is_still_marked(
    topics: Topics, registry: RegistryClient, cache: MetadataCache
) -> None:
    await create_topics(topics, [topic_request("t")], timeout_ms=0)
    update_cache(cache, topic_state("t", 1, 1))
    (error,) = (await delete_topics(topics, ["t"], timeout_ms=0)).values()
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert await registry.children("/admin/delete_topics") == ["t"]


async def test_topic_missing_in_registry_is_not_marked(
    topics: Topics, registry: RegistryClient, cache: MetadataCache
) -> None:
    update_cache(cache, topic_state("gone", 1))
    (error,) = (await delete_topics(topics, ["gone"], timeout_ms=LONG_MS)).values()
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await registry.children("/admin/delete_topics") == []


# ---- settings


async def test_learn_rereads_topic_config(topics: Topics, registry: RegistryClient) -> None:
    path = "/config/topics/t"
    await registry.create(path, znodes.encode_config({"segment.bytes": "100"}))
    await topics.refresh(["t", "nowhere"])
    assert topics.config_of("t").segment_bytes == 100
    assert topics.config_of("t") is topics.config_of("t"), "computed once"
    await registry.set(path, znodes.encode_config({"segment.bytes": "200"}))
    await topics.refresh(["t"])
    assert topics.config_of("t").segment_bytes == 200
    await registry.delete(path)
    await topics.refresh(["t"])
    assert topics.config_of("t") == topics.defaults == topics.config_of("nowhere")


async def test_invalid_config_is_logged_with_path_and_skipped(
    topics: Topics, registry: RegistryClient, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bad", "good", "odd"):
        await create_topics(topics, [topic_request(name)], timeout_ms=0)
    await registry.set("/config/topics/bad", b"{")
    await registry.set("/config/topics/good", znodes.encode_config({"segment.bytes": "100"}))
    await registry.set("/config/topics/odd", znodes.encode_config({"segment.bytes": "many"}))
    with caplog.at_level(logging.WARNING, "barnabas.topics"):
        await topics.refresh(("bad", "good", "odd"))
        assert topics.config_of("bad") == topics.defaults == topics.config_of("odd")
        assert topics.config_of("good").segment_bytes == 100
    assert "/config/topics/bad" in caplog.text
    assert "topic=odd" in caplog.text


def test_expired_session_maps_to_not_controller() -> None:
    assert to_api_error(RegistrySessionExpired("/brokers/topics")).code is ErrorCode.NOT_CONTROLLER
    assert to_api_error(RegistryUnreachable()).code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_thousands_of_unknown_settings_are_ignored_quickly(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = {f"unknown.setting.{number}": "1" for number in range(5000)}
    topics.overrides["t"] = {**unknown, "retention.ms": "7"}
    began = time.process_time()
    assert topics.config_of("t").retention_ms == 7
    assert time.process_time() - began < 0.5
    assert len(caplog.records) < 50
