"""What a wish for more partitions leads to: a znode, waiting, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from barnabas.broker.topic_admin.create_partitions import PartitionIncrease, create_partitions
from barnabas.broker.topic_admin.create_topics import create_topics
from barnabas.broker.topic_admin.topics import Topics
from barnabas.errors import ApiError, BadVersion, ErrorCode, MultiFailed
from barnabas.metadata import znodes
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.registry_client import RegistryClient
from barnabas.world.ports import Op, ZnodeStat
from tests.unit.broker.topic_admin.test_topics import (
    LONG_MS,
    cache,
    led,
    registry,
    tell,
    topics,
    wish,
)

__all__ = ["cache", "registry", "topics"]

PATH = znodes.topic_path("t")


async def create(topics: Topics, name: str = "t", **more: object) -> None:
    (made,) = await create_topics(topics, [wish(name, **more)], timeout_ms=0)
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
    outcomes = await create_partitions(
        topics,
        [PartitionIncrease(name="t", count=count, assignments=assignments)],
        is_queued_for_deletion=lambda _: queued,
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )
    (error,) = outcomes.values()
    return ErrorCode.NONE if error is None else error.code


async def found(registry: RegistryClient) -> znodes.TopicAssignment:
    data, _ = await registry.get(PATH)
    return znodes.decode_topic("t", data)


async def test_new_partitions_stand_behind_the_old_ones_and_the_id_stays(
    topics: Topics, registry: RegistryClient
) -> None:
    await create(topics, assignments={0: [2], 1: [1]})
    before = await found(registry)
    assert await grow(topics, 4) is ErrorCode.REQUEST_TIMED_OUT
    after = await found(registry)
    assert after.topic_id == before.topic_id
    assert [held.replicas for held in after.partitions.values()] == [(2,), (1,), (2,), (1,)]


async def test_it_is_answered_when_the_cache_shows_every_leader(
    topics: Topics, registry: RegistryClient, cache: MetadataCache
) -> None:
    await create(topics)
    tell(cache, led("t", 1, 1))
    growing = asyncio.create_task(grow(topics, 3, timeout_ms=LONG_MS))
    async with asyncio.timeout(30):
        while len((await found(registry)).partitions) < 3:
            await asyncio.sleep(0)
    tell(cache, led("t", 1, 1, -1))
    assert not growing.done()
    tell(cache, led("t", 1, 1, 2))
    assert await growing is ErrorCode.NONE


async def test_only_checking_writes_nothing(topics: Topics, registry: RegistryClient) -> None:
    await create(topics)
    before = await found(registry)
    assert await grow(topics, 9, validate_only=True) is ErrorCode.NONE
    assert await grow(topics, 1, validate_only=True) is ErrorCode.INVALID_PARTITIONS
    assert await found(registry) == before


async def test_of_two_who_let_a_topic_grow_at_once_nobody_takes_partitions_away(
    topics: Topics, registry: RegistryClient
) -> None:
    await create(topics)
    wished = [5, 3, 4, 3]
    codes = await asyncio.gather(*(grow(topics, count) for count in wished))
    assert len((await found(registry)).partitions) == 5
    assert codes[0] is ErrorCode.REQUEST_TIMED_OUT
    assert set(codes[1:]) <= {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_PARTITIONS}


async def test_an_answer_that_was_lost_does_not_make_a_success_a_failure(
    topics: Topics, registry: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(topics)
    multi = registry.multi

    async def written_twice(ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        await multi(ops)
        raise MultiFailed(1, BadVersion(PATH))

    monkeypatch.setattr(registry, "multi", written_twice)
    assert await grow(topics, 3) is ErrorCode.REQUEST_TIMED_OUT
    assert len((await found(registry)).partitions) == 3


async def test_a_marked_topic_does_not_grow_though_the_controller_has_not_heard_of_it(
    topics: Topics, registry: RegistryClient
) -> None:
    await create(topics)
    assert await grow(topics, 1, queued=True) is ErrorCode.INVALID_TOPIC_EXCEPTION
    await registry.create(znodes.delete_topic_path("t"))
    assert await grow(topics, 3) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len((await found(registry)).partitions) == 2


async def test_when_the_controller_moves_before_the_write_nothing_is_written(
    topics: Topics, registry: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(topics)
    multi = registry.multi

    async def too_late(ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        await registry.set(znodes.CONTROLLER, b"{}")
        return await multi(ops)

    monkeypatch.setattr(registry, "multi", too_late)
    assert await grow(topics, 3) is ErrorCode.NOT_CONTROLLER
    assert len((await found(registry)).partitions) == 2


async def test_without_a_controller_nothing_grows(topics: Topics, registry: RegistryClient) -> None:
    await create(topics)
    await registry.delete(znodes.CONTROLLER)
    with pytest.raises(ApiError) as refused:
        await grow(topics, 3)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_a_topic_nobody_can_understand_is_told_to_be_so(
    topics: Topics, registry: RegistryClient
) -> None:
    await registry.create(PATH, b"{")
    assert await grow(topics, 3) is ErrorCode.UNKNOWN_SERVER_ERROR
