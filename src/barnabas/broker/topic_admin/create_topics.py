"""Creation of topics, for CreateTopics requests and for topics that are created automatically.

    check ─► /config/topics/<t> and /brokers/topics/<t> in one transaction ─► wait for the metadata cache

This code runs on the broker that is the active controller, and only writes znodes. The controller watches them, creates
the partitions and informs every broker. When the metadata cache of this broker has a leader for every partition, the
client gets its response. A timeout does not undo the creation. The transaction fails if there is no controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.broker.policies import check_create_topic_policy
from barnabas.broker.topic_admin.topics import Topics, not_controller, run_limited, to_api_error
from barnabas.controller.assignment import BrokerIds
from barnabas.controller.mutation_quota import UNLIMITED_MUTATIONS, MutationQuota
from barnabas.controller.topic_checks import (
    TopicSpec,
    already_exists,
    check_new_topic,
    check_topic_configs,
)
from barnabas.errors import (
    ApiError,
    ErrorCode,
    MultiFailed,
    NodeExists,
    NoNode,
    RegistryError,
    StorageError,
)
from barnabas.metadata import znodes
from barnabas.metadata.topic_names import STATE_CHANGES, TakenNames
from barnabas.model import ZERO_ID
from barnabas.policies import TopicCreation
from barnabas.tasks import in_thread_if_large
from barnabas.world.ports import CheckVersion, Create, SetData

logger = logging.getLogger("barnabas.topics")

CHECKED_PER_TURN = 50
CONTROLLER_CHECK, CONFIG_WRITE, TOPIC_WRITE = range(3)


class CreationOutcome(Struct, frozen=True, kw_only=True):
    """Result of creating one topic. Without an error the topic was written, or is valid if `validate_only`."""

    name: str
    error: ApiError | None = None
    topic_id: UUID = ZERO_ID
    replicas: tuple[BrokerIds, ...] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)


class RegistryState(NamedTuple):
    """Topic names and controller in the registry when a request begins."""

    names: TakenNames
    marked_for_deletion: frozenset[str]
    controller_version: int


async def create_topics(
    topics: Topics,
    new_topics: Sequence[TopicSpec],
    *,
    timeout_ms: int,
    validate_only: bool = False,
    quota: MutationQuota = UNLIMITED_MUTATIONS,
) -> list[CreationOutcome]:
    """Create topics. Return the outcomes in request order.

    Raises RegistryError or StorageError, and ApiError if the cluster has no controller.
    """
    registry = await read_registry(topics)
    outcomes = []
    for index, new_topic in enumerate(new_topics):
        if index % CHECKED_PER_TURN == CHECKED_PER_TURN - 1:
            await asyncio.sleep(0)  # lets other requests run
        size = max(new_topic.partitions, len(new_topic.assignments or ()))
        outcome = await in_thread_if_large(size, check_one, topics, new_topic, registry)
        error = outcome.error or await find_policy_error(topics, new_topic, outcome)
        if outcome.error is not None and new_topic.name in registry.marked_for_deletion:
            error = await name_missing_brokers(topics, new_topic.name, outcome.error)
        if error is None and not validate_only:
            error = quota.charge(len(outcome.replicas))
        outcomes.append(
            outcome if error is None else CreationOutcome(name=outcome.name, error=error)
        )
        if error is None and not validate_only:
            registry.names.add(new_topic.name)
    if validate_only:
        return outcomes
    write = partial(try_write_topic, topics, registry.controller_version)
    outcomes = await run_limited(write, outcomes)
    waiting = {each.name: len(each.replicas) for each in outcomes if each.error is None}
    # Removes the topics that have leaders from `waiting`. The rest are late.
    await topics.wait_until_done(waiting, topics.has_leaders, timeout_ms)
    late = ApiError(ErrorCode.REQUEST_TIMED_OUT)  # without a message, as in Kafka
    return [replace(each, error=late) if each.name in waiting else each for each in outcomes]


async def read_registry(topics: Topics) -> RegistryState:
    names, marked, controller_version = await asyncio.gather(
        topics.registry.children(znodes.TOPICS),
        topics.registry.children(znodes.DELETE_TOPICS),
        topics.controller_version(),
    )
    return RegistryState(TakenNames(names), frozenset(marked), controller_version)


def check_one(topics: Topics, new_topic: TopicSpec, registry: RegistryState) -> CreationOutcome:
    try:
        replicas = check_new_topic(
            new_topic,
            brokers=tuple(topics.metadata.brokers.values()),
            in_cache=topics.metadata.topics,
            in_registry=registry.names,
            marked_for_deletion=registry.marked_for_deletion,
            defaults=topics.new_topic_defaults,
            random=topics.random,
        )
        overrides = check_topic_configs(new_topic.configs, topics.defaults)
    except ApiError as error:
        return CreationOutcome(name=new_topic.name, error=error)
    return CreationOutcome(name=new_topic.name, replicas=replicas, overrides=overrides)


async def name_missing_brokers(topics: Topics, name: str, error: ApiError) -> ApiError:
    """Add to the error the brokers that the deletion of the topic waits for, if any is not alive."""
    try:
        data, _ = await topics.registry.get(znodes.topic_path(name))
        partitions = znodes.decode_topic(name, data).partitions.values()
    except RegistryError:
        return error
    holders = {broker for each in partitions for broker in each.replicas}
    missing = sorted(holders - topics.metadata.brokers.keys())
    if not missing:
        return error
    brokers = ", ".join(map(str, missing))
    why = f"topic '{name}' is marked for deletion, which completes when these brokers are back: {brokers}"
    return ApiError(error.code, why)


async def find_policy_error(
    topics: Topics, new_topic: TopicSpec, outcome: CreationOutcome
) -> ApiError | None:
    """Return the error of a valid topic that the operator's policy rejects, or None.

    Policies written for Kafka do not know the history topic.
    """
    if topics.policies.create_topic is None or new_topic.name == STATE_CHANGES:
        return None
    is_assigned = new_topic.assignments is not None
    creation = TopicCreation(
        topic=new_topic.name,
        num_partitions=None if is_assigned else len(outcome.replicas),
        replication_factor=None if is_assigned else len(outcome.replicas[0]),
        replica_assignments=dict(enumerate(outcome.replicas)) if is_assigned else None,
        configs=outcome.overrides,
    )
    return await check_create_topic_policy(topics.policies, creation)


async def try_write_topic(
    topics: Topics, controller_version: int, outcome: CreationOutcome
) -> CreationOutcome:
    if outcome.error is not None:
        return outcome
    topic_id = topics.new_topic_id()
    try:
        await write_znodes(topics, outcome, topic_id, controller_version)
    except ApiError as error:
        return replace(outcome, error=error)
    except (RegistryError, StorageError) as error:
        logger.error("cannot create topic=%s error=%s", outcome.name, error)
        return replace(outcome, error=to_api_error(error))
    partitions = len(outcome.replicas)
    logger.info("created topic=%s partitions=%d id=%s", outcome.name, partitions, topic_id)
    return replace(outcome, topic_id=topic_id)


async def write_znodes(
    topics: Topics, outcome: CreationOutcome, topic_id: UUID, controller_version: int
) -> None:
    name = outcome.name
    path = znodes.topic_config_path(name)
    settings = znodes.encode_config(outcome.overrides)
    assignment = await in_thread_if_large(
        len(outcome.replicas), encode_new_topic, topic_id, outcome.replicas
    )
    check = CheckVersion(path=znodes.CONTROLLER, version=controller_version)
    create = Create(path=znodes.topic_path(name), data=assignment)
    # Settings without a topic are left from an interrupted creation by Kafka. The second attempt overwrites them.
    for config in (Create(path=path, data=settings), SetData(path=path, data=settings)):
        try:
            await topics.registry.multi([check, config, create])
            return
        except MultiFailed as failed:
            if failed.index == CONTROLLER_CHECK:
                raise not_controller() from failed
            if failed.index == TOPIC_WRITE and isinstance(failed.error, NodeExists):
                if await is_own_topic(topics, name, topic_id):
                    return
                raise already_exists(name) from failed
            if failed.index != CONFIG_WRITE or not isinstance(failed.error, NodeExists | NoNode):
                raise
    raise already_exists(name)  # its settings are modified concurrently by another client


async def is_own_topic(topics: Topics, name: str, topic_id: UUID) -> bool:
    """Whether this request created the existing topic.

    A transaction without a response is sent again after a reconnect, and the first attempt may have succeeded.
    """
    try:
        data, _ = await topics.registry.get(znodes.topic_path(name))
        return znodes.decode_topic(name, data).topic_id == topic_id
    except RegistryError:
        return False


def encode_new_topic(topic_id: UUID, replicas: Sequence[BrokerIds]) -> bytes:
    """Return the content of the znode of a new topic."""
    partitions = {
        index: znodes.ReplicaAssignment(replicas=each) for index, each in enumerate(replicas)
    }
    return znodes.encode_topic(znodes.TopicAssignment(topic_id=topic_id, partitions=partitions))
