"""Addition of partitions to topics.

    check ─► /brokers/topics/<t>, with the new partitions after the existing ones ─► wait for the metadata cache

This code only writes the znode. The controller watches it, elects the first leader of every new partition and informs
all brokers. A timeout does not undo the addition. Existing partitions keep their replicas and their records.

The write requires the version of the znode that was checked. If another client has changed the znode, the request is
checked again. In Kafka the later request overwrites the earlier one, and the topic may lose partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from barnabas.broker.topic_admin.topics import Topics, not_controller, run_limited, to_api_error
from barnabas.controller.assignment import check_racks
from barnabas.controller.mutation_quota import UNLIMITED_MUTATIONS, MutationQuota
from barnabas.controller.topic_checks import check_added_partitions
from barnabas.errors import (
    ApiError,
    BadVersion,
    ErrorCode,
    MultiFailed,
    NoNode,
    RegistryError,
    StorageError,
)
from barnabas.metadata import znodes
from barnabas.metadata.topic_names import topic_name_error
from barnabas.retry import CONFLICT_S, Backoff
from barnabas.tasks import in_thread_if_large
from barnabas.wire.messages.create_partitions import CreatePartitionsTopic
from barnabas.world.ports import CheckVersion, SetData

logger = logging.getLogger("barnabas.topics")

CONTROLLER_CHECK = 0


async def create_partitions(
    topics: Topics,
    increases: Sequence[CreatePartitionsTopic],
    *,
    is_queued_for_deletion: Callable[[str], bool],
    timeout_ms: int,
    validate_only: bool = False,
    quota: MutationQuota = UNLIMITED_MUTATIONS,
) -> dict[str, ApiError | None]:
    """Add partitions, and return the error of each topic, or None. Each topic may occur only once.

    Raises RegistryError if the registry cannot be read. Raises ApiError without a controller, or if racks are missing.
    """
    # As in Kafka, racks are checked first, even if the client assigns the replicas.
    check_racks(tuple(topics.metadata.brokers.values()))
    marked, controller_version = await asyncio.gather(
        topics.registry.children(znodes.DELETE_TOPICS), topics.controller_version()
    )
    marked_names = frozenset(marked)

    async def try_add_partitions(increase: CreatePartitionsTopic) -> ApiError | None:
        try:
            if increase.name in marked_names or is_queued_for_deletion(increase.name):
                why = f"topic '{increase.name}' is queued for deletion"
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
            await add_partitions(
                topics, increase, controller_version, quota, validate_only=validate_only
            )
        except ApiError as error:
            # A new error, since the traceback would keep all its frames in memory.
            return ApiError(error.code, error.message)
        except (RegistryError, StorageError) as error:
            logger.error("cannot expand topic=%s error=%s", increase.name, error)
            return to_api_error(error)
        return None

    errors = await run_limited(try_add_partitions, increases)
    outcomes = await in_thread_if_large(len(increases), errors_by_name, increases, errors)
    if validate_only:
        return outcomes
    waiting = {
        increase.name: increase.count for increase in increases if outcomes[increase.name] is None
    }
    await topics.wait_until_done(waiting, topics.has_leaders, timeout_ms)
    return outcomes | {name: ApiError(ErrorCode.REQUEST_TIMED_OUT) for name in waiting}


def errors_by_name(
    increases: Sequence[CreatePartitionsTopic], errors: Sequence[ApiError | None]
) -> dict[str, ApiError | None]:
    return {increase.name: error for increase, error in zip(increases, errors, strict=True)}


async def add_partitions(
    topics: Topics,
    increase: CreatePartitionsTopic,
    controller_version: int,
    quota: MutationQuota,
    *,
    validate_only: bool,
) -> None:
    name, path = increase.name, znodes.topic_path(increase.name)
    missing = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
    if topic_name_error(name):
        raise missing  # its path may be that of another znode
    check = CheckVersion(path=znodes.CONTROLLER, version=controller_version)
    expanded: znodes.TopicAssignment | None = None
    is_charged = False
    backoff = Backoff(*CONFLICT_S, random=topics.random)
    while True:
        try:
            data, stat = await topics.registry.get(path)
        except NoNode:
            raise missing from None
        current = await in_thread_if_large(increase.count, znodes.decode_topic, name, data)
        if current == expanded:
            return  # our own write: its response was lost, and it was sent again after a reconnect
        expanded = await in_thread_if_large(
            increase.count, with_added_partitions, current, increase, topics
        )
        if validate_only:
            return
        if not is_charged:
            throttled = quota.charge(increase.count - len(current.partitions))
            if throttled is not None:
                raise throttled
            is_charged = True
        try:
            content = await in_thread_if_large(increase.count, znodes.encode_topic, expanded)
            write = SetData(path=path, data=content, version=stat.version)
            await topics.registry.multi([check, write])
        except MultiFailed as failed:
            if failed.index == CONTROLLER_CHECK:
                raise not_controller() from failed
            if not isinstance(failed.error, BadVersion | NoNode):
                raise
            await backoff.wait()
        else:
            logger.info(
                "expanded topic=%s partitions=%d before=%d",
                *(name, increase.count, len(current.partitions)),
            )
            return


def with_added_partitions(
    current: znodes.TopicAssignment, increase: CreatePartitionsTopic, topics: Topics
) -> znodes.TopicAssignment:
    assignments = increase.assignments
    added = check_added_partitions(
        current.partitions,
        count=increase.count,
        assignments=None if assignments is None else [each.broker_ids for each in assignments],
        brokers=tuple(topics.metadata.brokers.values()),
    )
    partitions = dict(current.partitions) | {
        index: znodes.ReplicaAssignment(replicas=replicas)
        for index, replicas in enumerate(added, len(current.partitions))
    }
    return znodes.TopicAssignment(topic_id=current.topic_id, partitions=partitions)
