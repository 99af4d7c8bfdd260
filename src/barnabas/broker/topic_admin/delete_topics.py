"""Deletion of topics.

    /admin/delete_topics/<t> ─► wait for the metadata cache

This code only writes a marker. The controller watches it and deletes the topic. A timeout does not stop the deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from barnabas.broker.topic_admin.topics import Topics, run_limited, to_api_error
from barnabas.controller.mutation_quota import UNLIMITED_MUTATIONS, MutationQuota
from barnabas.errors import ApiError, ErrorCode, NodeExists, RegistryError, StorageError
from barnabas.metadata import znodes
from barnabas.tasks import in_thread_if_large

logger = logging.getLogger("barnabas.topics")


async def delete_topics(
    topics: Topics,
    names: Sequence[str],
    *,
    timeout_ms: int,
    quota: MutationQuota = UNLIMITED_MUTATIONS,
) -> dict[str, ApiError | None]:
    """Mark topics for deletion and wait until they are deleted. Return the error of each topic, or None."""

    def is_deleted(name: str, _: int) -> bool:
        return name not in topics.metadata.topics

    distinct = await in_thread_if_large(len(names), dict.fromkeys, names)
    outcomes = dict(await run_limited(partial(mark_for_deletion, topics, quota), tuple(distinct)))
    waiting = {name: 0 for name, error in outcomes.items() if error is None}
    await topics.wait_until_done(waiting, is_deleted, timeout_ms)
    return outcomes | dict.fromkeys(waiting, ApiError(ErrorCode.REQUEST_TIMED_OUT))


async def mark_for_deletion(
    topics: Topics, quota: MutationQuota, name: str
) -> tuple[str, ApiError | None]:
    """Mark a topic for deletion. Return its name and the error, if any."""
    missing = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
    topic = topics.metadata.topics.get(name)
    if topic is None:
        return name, missing
    throttled = quota.charge(len(topic.partitions))
    if throttled is not None:
        return name, throttled
    try:
        if await topics.registry.exists(znodes.topic_path(name)) is None:
            return name, missing
        await topics.registry.create(znodes.delete_topic_path(name))
    except NodeExists:  # marked already
        return name, None
    except (RegistryError, StorageError) as error:
        logger.error("cannot mark for deletion topic=%s error=%s", name, error)
        return name, to_api_error(error)
    logger.info("marked for deletion topic=%s", name)
    return name, None
