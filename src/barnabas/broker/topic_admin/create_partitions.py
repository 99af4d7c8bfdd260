"""Adding partitions to topics.

    check ─► /brokers/topics/<t>, with the new partitions after the existing ones ─► wait for the metadata cache

The broker only writes the znode. The controller watches it, elects the first leader of every new partition and informs
all brokers. After a timeout the partitions are created all the same. Existing partitions keep their replicas and their
records.

The write requires the version of the znode that was checked. If another client has changed the znode, it is checked
again. Kafka lets the later request overwrite the earlier one, so that a topic may lose partitions it has reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from msgspec import Struct

from barnabas.broker.topic_admin.topics import (
    IN_FLIGHT_MAX,
    Topics,
    at_most,
    not_controller,
    to_api_error,
)
from barnabas.controller.assignment import check_racks
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
from barnabas.world.ports import Check, SetData

logger = logging.getLogger("barnabas.topics")

CONTROLLER_CHECK = 0


class NewPartitions(Struct, frozen=True, kw_only=True):
    """`count` is the new total. `assignments` are for the new partitions only; None lets the broker assign them."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


async def create_partitions(
    topics: Topics,
    wishes: Sequence[NewPartitions],
    *,
    is_queued_for_deletion: Callable[[str], bool],
    timeout_ms: int,
    validate_only: bool = False,
) -> dict[str, ApiError | None]:
    """Return the error of each topic, if any. No two wishes may name the same topic.

    Raises RegistryError if the registry cannot be read.
    """
    # First of all, and also if the client assigns the replicas: as in Kafka.
    check_racks(tuple(topics.metadata.brokers.values()))
    marked, controller_version = await asyncio.gather(
        topics.registry.children(znodes.DELETE_TOPICS), topics.controller_version()
    )
    going = frozenset(marked)

    async def one(wish: NewPartitions) -> ApiError | None:
        try:
            if wish.name in going or is_queued_for_deletion(wish.name):
                why = f"topic '{wish.name}' is queued for deletion"
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
            await write(topics, wish, controller_version, validate_only=validate_only)
        except ApiError as error:
            # Without its traceback, which would keep all its frames in memory.
            return ApiError(error.code, error.message)
        except (RegistryError, StorageError) as error:
            logger.error("cannot expand topic=%s error=%s", wish.name, error)
            return to_api_error(error)
        return None

    errors = await at_most(IN_FLIGHT_MAX, one, wishes)
    outcomes = await in_thread_if_large(len(wishes), by_name, wishes, errors)
    if validate_only:
        return outcomes
    waiting = {wish.name: wish.count for wish in wishes if outcomes[wish.name] is None}
    await topics.wait_until_none(waiting, topics.has_leaders, timeout_ms)
    return outcomes | {name: ApiError(ErrorCode.REQUEST_TIMED_OUT) for name in waiting}


def by_name(
    wishes: Sequence[NewPartitions], errors: Sequence[ApiError | None]
) -> dict[str, ApiError | None]:
    return {wish.name: error for wish, error in zip(wishes, errors, strict=True)}


async def write(
    topics: Topics, wish: NewPartitions, controller_version: int, *, validate_only: bool
) -> None:
    name, path = wish.name, znodes.topic_path(wish.name)
    missing = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
    if topic_name_error(name):
        raise missing  # its path may be that of another znode
    check = Check(path=znodes.CONTROLLER, version=controller_version)
    grown: znodes.TopicAssignment | None = None
    backoff = Backoff(*CONFLICT_S, random=topics.random)
    while True:
        try:
            data, stat = await topics.registry.get(path)
        except NoNode:
            raise missing from None
        found = await in_thread_if_large(wish.count, znodes.decode_topic, name, data)
        if found == grown:
            return  # our own write: its response was lost with a connection, and it was sent again
        grown = await in_thread_if_large(wish.count, with_added, found, wish, topics)
        if validate_only:
            return
        try:
            content = await in_thread_if_large(wish.count, znodes.encode_topic, grown)
            written = SetData(path=path, data=content, version=stat.version)
            await topics.registry.multi([check, written])
        except MultiFailed as failed:
            if failed.index == CONTROLLER_CHECK:
                raise not_controller() from failed
            if not isinstance(failed.error, BadVersion | NoNode):
                raise
            await backoff.wait()
        else:
            logger.info(
                "expanded topic=%s partitions=%d before=%d",
                *(name, wish.count, len(found.partitions)),
            )
            return


def with_added(
    found: znodes.TopicAssignment, wish: NewPartitions, topics: Topics
) -> znodes.TopicAssignment:
    added = check_added_partitions(
        found.partitions,
        count=wish.count,
        assignments=wish.assignments,
        brokers=tuple(topics.metadata.brokers.values()),
    )
    new = {
        index: znodes.ReplicaAssignment(replicas=replicas)
        for index, replicas in enumerate(added, len(found.partitions))
    }
    return znodes.TopicAssignment(topic_id=found.topic_id, partitions={**found.partitions, **new})
