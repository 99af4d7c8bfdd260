"""Adding partitions: znode, waiting for the metadata cache, and results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from barnabas.broker.topic_admin.create_partitions import create_partitions
from barnabas.broker.topic_admin.create_topics import create_topics
from barnabas.broker.topic_admin.topics import Topics
from barnabas.errors import ApiError, BadVersion, ErrorCode, MultiFailed
from barnabas.metadata import znodes
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.registry_client import RegistryClient
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsTopic,
)
from barnabas.world.ports import Op, ZnodeStat
from tests.unit.broker.topic_admin.test_topics import (
    LONG_MS,
    cache,
    registry,
    topic_request,
    topic_state,
    topics,
    update_cache,
)

__all__ = ["cache", "registry", "topics"]

PATH = znodes.topic_path("t")


async def create(topics: Topics, name: str = "t", **more: object) -> None:
    (made,) = await create_topics(topics, [topic_request(name, **more)], timeout_ms=0)
    assert made.error is not None
    assert made.error.code is ErrorCode.REQUEST_TIMED_OUT


async def grow(
    topics: Topics,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    timeout_ms: int = 0,
    validate_only: bool = False,
    queued: bool = False,
) -> ErrorCode:
    placed = None
    if assignments is not None:
        placed = tuple(CreatePartitionsAssignment(tuple(each)) for each in assignments)
    outcomes = await create_partitions(
        topics,
        [CreatePartitionsTopic(name="t", count=count, assignments=placed)],
        is_queued_for_deletion=lambda _: queued,
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )
    (error,) = outcomes.values()
    return ErrorCode.NONE if error is None else error.code


async def read_assignment(registry: RegistryClient) -> znodes.TopicAssignment:
    data, _ = await registry.get(PATH)
    return znodes.decode_topic("t", data)


async def test_new_partitions_are_appended_and_topic_id_is_kept(
    topics: Topics, registry: RegistryClient
) -> None:
    await create(topics, assignments={0: [2], 1: [1]})
    before = await read_assignment(registry)
    assert await grow(topics, 4) is ErrorCode.REQUEST_TIMED_OUT
    after = await read_assignment(registry)
    assert after.topic_id == before.topic_id
    assert [assignment.replicas for assignment in after.partitions.values()] == [
        (2,),
        (1,),
        (2,),
        (1,),
    ]


async def test_create_partitions_returns_when_cache_shows_every_leader(
    topics: Topics, registry: RegistryClient, cache: MetadataCache
) -> None:
    await create(topics)
    update_cache(cache, topic_state("t", 1, 1))
    growing = asyncio.create_task(grow(topics, 3, timeout_ms=LONG_MS))
    async with asyncio.timeout(30):
        while len((await read_assignment(registry)).partitions) < 3:
            await asyncio.sleep(0)
    update_cache(cache, topic_state("t", 1, 1, -1))
    assert not growing.done()
    update_cache(cache, topic_state("t", 1, 1, 2))
    assert await growing is ErrorCode.NONE


async def test_create_partitions_validate_only_writes_nothing(
    topics: Topics, registry: RegistryClient
) -> None:
    await create(topics)
    before = await read_assignment(registry)
    assert await grow(topics, 9, validate_only=True) is ErrorCode.NONE
    assert await grow(topics, 1, validate_only=True) is ErrorCode.INVALID_PARTITIONS
    assert await read_assignment(registry) == before


async def test_concurrent_requests_never_remove_partitions(
    topics: Topics, registry: RegistryClient
) -> None:
    await create(topics)
    counts = [5, 3, 4, 3]
    codes = await asyncio.gather(*(grow(topics, count) for count in counts))
    assert len((await read_assignment(registry)).partitions) == 5
    assert codes[0] is ErrorCode.REQUEST_TIMED_OUT
    assert set(codes[1:]) <= {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_PARTITIONS}


async def test_lost_response_of_successful_write_is_not_an_error(
    topics: Topics, registry: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(topics)
    multi = registry.multi

    async def lose_response(ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        await multi(ops)
        raise MultiFailed(1, BadVersion(PATH))

    monkeypatch.setattr(registry, "multi", lose_response)
    assert await grow(topics, 3) is ErrorCode.REQUEST_TIMED_OUT
    assert len((await read_assignment(registry)).partitions) == 3


async def test_topic_marked_for_deletion_does_not_grow(
    topics: Topics, registry: RegistryClient
) -> None:
    await create(topics)
    assert await grow(topics, 1, queued=True) is ErrorCode.INVALID_TOPIC_EXCEPTION
    await registry.create(znodes.delete_topic_path("t"))
    assert await grow(topics, 3) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len((await read_assignment(registry)).partitions) == 2


async def test_nothing_is_written_if_controller_moves_first(
    topics: Topics, registry: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(topics)
    multi = registry.multi

    async def move_controller_first(ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        await registry.set(znodes.CONTROLLER, b"{}")
        return await multi(ops)

    monkeypatch.setattr(registry, "multi", move_controller_first)
    assert await grow(topics, 3) is ErrorCode.NOT_CONTROLLER
    assert len((await read_assignment(registry)).partitions) == 2


async def test_create_partitions_without_controller_is_rejected(
    topics: Topics, registry: RegistryClient
) -> None:
    await create(topics)
    await registry.delete(znodes.CONTROLLER)
    with pytest.raises(ApiError) as refused:
        await grow(topics, 3)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_corrupt_topic_znode_is_an_unknown_server_error(
    topics: Topics, registry: RegistryClient
) -> None:
    await registry.create(PATH, b"{")
    assert await grow(topics, 3) is ErrorCode.UNKNOWN_SERVER_ERROR
