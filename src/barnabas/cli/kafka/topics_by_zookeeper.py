"""kafka-topics with --zookeeper: the command itself validates, assigns replicas and writes znodes, as before Kafka 3.0.

    create   writes /config/topics/<t> and /brokers/topics/<t>
    alter    writes /brokers/topics/<t>, or /config/topics/<t> with a notification in /config/changes
    delete   writes /admin/delete_topics/<t>
    describe, list   read only

No broker takes part. Success means that the znodes are written, not that a controller has acted on them. Checks and
replica assignment are those of the brokers. The messages are those of Kafka 2.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random

from msgspec.structs import replace

from barnabas.cli.kafka.describing import (
    SEPARATOR,
    DescribeReport,
    PartitionDescription,
    TopicDescription,
)
from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.topic_options import (
    RequestedTopic,
    check_requested_counts,
    creation_warnings,
    matching_topics,
    parse_requested_topic,
)
from barnabas.cli.kafka.topic_settings import check_setting_names, check_topic_settings
from barnabas.cli.kafka.znodes import (
    change_settings,
    children_or_empty,
    create_topic_znodes,
    grow_topic,
    is_marked_for_deletion,
    read_settings,
    read_state,
    read_topic_assignment,
    registered_broker_ids,
    registered_brokers,
    run_in_session,
)
from barnabas.cli.terminal.output import print_lines
from barnabas.config import TopicConfig
from barnabas.controller.assignment import BrokerIds, MissingRacks
from barnabas.controller.topic_checks import (
    USE_DEFAULT,
    TopicDefaults,
    TopicSpec,
    check_added_partitions,
    check_new_topic,
    check_topic_configs,
)
from barnabas.errors import ApiError, ErrorCode, NodeExists
from barnabas.metadata import znodes
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.metadata.topic_names import TakenNames
from barnabas.metadata.znodes import TopicAssignment
from barnabas.model import NO_LEADER, Broker, TopicPartition
from barnabas.world.ports import RegistrySession

ADMIN_OPERATION_EXCEPTION = "kafka.admin.AdminOperationException"
NO_ELR = ""
"""Kafka 2.8 has no eligible leader replicas."""
SETTINGS_WARNING = (
    "WARNING: Altering topic configuration from this script has been deprecated and may be removed"
    " in future releases.",
    "         Going forward, please use kafka-configs.sh for this functionality",
)
KEYS_WARNING = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or"
    " ordering of the messages will be affected"
)
RACKS_HINT = (
    "Not all brokers have rack information. Add --disable-rack-aware in command line to make"
    " replica assignment without rack information."
)


def run_topics_on_znodes(connect: str, options: ParsedOptions, action: str) -> None:
    run_in_session(connect, lambda session: ZookeeperTopics(session, options, connect).run(action))


class ZookeeperTopics:
    def __init__(self, session: RegistrySession, options: ParsedOptions, connect: str) -> None:
        self.session = session
        self.options = options
        self.connect = connect

    async def run(self, action: str) -> None:
        if await self.session.exists(znodes.TOPICS) is None:
            raise RequestRejected(
                f"there is no cluster at {self.connect}: it has no {znodes.TOPICS}; use the host:port/chroot of"
                " the brokers' zookeeper.connect"
            )
        actions = {
            "create": self.create,
            "alter": self.alter,
            "list": self.list_names,
            "describe": self.describe,
            "delete": self.delete,
        }
        await actions[action]()

    # ---- create

    async def create(self) -> None:
        requested = parse_requested_topic(self.options)
        print_lines(*creation_warnings(requested))
        check_requested_counts(requested)
        brokers = await self.brokers()
        names = TakenNames(await children_or_empty(self.session, znodes.TOPICS))
        marked = await children_or_empty(self.session, znodes.DELETE_TOPICS)
        try:
            replicas = check_and_assign(requested, brokers, names, marked)
            await create_topic_znodes(self.session, requested.name, replicas, requested.configs)
        except ApiError as error:
            exists = error.code is ErrorCode.TOPIC_ALREADY_EXISTS
            if exists and self.options.has("if-not-exists"):
                return
            raise kafka_2_error(error, requested, brokers, names) from None
        print_lines(f"Created topic {requested.name}.")

    async def brokers(self) -> list[Broker]:
        brokers = await registered_brokers(self.session)
        if self.options.has("disable-rack-aware"):
            return [replace(broker, rack=None) for broker in brokers]
        return brokers

    # ---- alter

    async def alter(self) -> None:
        names = await self.existing_names()
        requested = parse_requested_topic(self.options)
        deleted = [name.strip() for name in self.options.values("delete-config")]
        check_setting_names(dict.fromkeys(deleted))
        for name in names:
            if requested.configs or deleted:
                print_lines(*SETTINGS_WARNING)
                change = partial(apply_changes, added=requested.configs, deleted=deleted)
                await change_settings(self.session, name, change)
                print_lines(f"Updated config for topic {name}.")
            if requested.partitions is not None:
                await self.grow(name, requested, requested.partitions)

    async def grow(self, name: str, requested: RequestedTopic, count: int) -> None:
        if name in INTERNAL_TOPICS:
            raise RequestRejected(
                f"The number of partitions for the internal topic {name} cannot be changed."
            )
        print_lines(KEYS_WARNING)
        if await is_marked_for_deletion(self.session, name):
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic {name} is queued for deletion."
            )
        brokers = await self.brokers()

        def assign_added(topic: TopicAssignment) -> Sequence[BrokerIds]:
            size = len(topic.partitions)
            if count <= size:
                raise ApiError(
                    ErrorCode.INVALID_PARTITIONS,
                    "The number of partitions for a topic can only be increased. Topic"
                    f" {name} currently has {size} partitions, {count} would not be an increase.",
                )
            # `requested.assignment` lists the existing partitions first. If it lists no others, it is ignored.
            assignments = requested.assignment[size:] or None
            try:
                return check_added_partitions(
                    topic.partitions, count=count, assignments=assignments, brokers=brokers
                )
            except ApiError as error:
                raise with_racks_hint(error) from None

        await grow_topic(self.session, name, assign_added)
        print_lines("Adding partitions succeeded!")

    # ---- delete

    async def delete(self) -> None:
        for name in await self.existing_names():
            if name in INTERNAL_TOPICS:
                raise RequestRejected(
                    f"Topic {name} is a kafka internal topic and is not allowed to be marked for"
                    " deletion.",
                    ADMIN_OPERATION_EXCEPTION,
                )
            try:
                await self.session.create(znodes.delete_topic_path(name))
            except NodeExists:
                print_lines(f"Topic {name} is already marked for deletion.")
                continue
            print_lines(f"Topic {name} is marked for deletion.")
            print_lines("Note: This will have no impact if delete.topic.enable is not set to true.")

    # ---- list and describe

    async def list_names(self) -> None:
        for name in await self.names():
            marked = await is_marked_for_deletion(self.session, name)
            print_lines(f"{name} - marked for deletion" if marked else name)

    async def names(self) -> list[str]:
        found = await children_or_empty(self.session, znodes.TOPICS)
        return matching_topics(self.options, ((name, name in INTERNAL_TOPICS) for name in found))

    async def existing_names(self) -> list[str]:
        names = await self.names()
        text = self.options.value("topic")
        if text is not None and not names and not self.options.has("if-exists"):
            raise RequestRejected(f"Topic '{text}' does not exist as expected")
        return names

    async def describe(self) -> None:
        names = await self.existing_names()
        report = DescribeReport(self.options, await registered_broker_ids(self.session))
        for name in names:
            topic = await self.read_description(name)
            if topic is None:
                print_lines(f"Topic {name} doesn't exist!")
                continue
            print_lines(*report.lines(topic, elr=NO_ELR), keep=SEPARATOR)

    async def read_description(self, name: str) -> TopicDescription | None:
        topic = await read_topic_assignment(self.session, name)
        if topic is None:
            return None
        settings, _ = await read_settings(self.session, name)

        async def read_partition(number: int, replicas: BrokerIds) -> PartitionDescription:
            state = await read_state(self.session, TopicPartition(name, number))
            return PartitionDescription(
                partition=number,
                leader=None if state is None or state.leader == NO_LEADER else state.leader,
                replicas=replicas,
                isr=() if state is None else state.isr,
            )

        return TopicDescription(
            name=name,
            id=topic.topic_id,
            partitions=await asyncio.gather(
                *(
                    read_partition(number, assigned.replicas)
                    for number, assigned in topic.partitions.items()
                )
            ),
            configs=list(settings.items()),
            marked_for_deletion=await is_marked_for_deletion(self.session, name),
        )


# ---- checks and messages


def check_and_assign(
    requested: RequestedTopic, brokers: Sequence[Broker], names: TakenNames, marked: Sequence[str]
) -> tuple[BrokerIds, ...]:
    """Validate the topic like a broker, and return the brokers of each partition."""
    replicas = check_new_topic(
        TopicSpec(
            name=requested.name,
            partitions=requested.partitions or USE_DEFAULT,
            replication_factor=requested.replication_factor or USE_DEFAULT,
            assignments=dict(enumerate(requested.assignment)) or None,
            configs=requested.configs,
        ),
        brokers=brokers,
        in_cache=(),
        in_registry=names,
        marked_for_deletion=marked,
        defaults=TopicDefaults(),
        random=Random(),
    )
    check_topic_configs(requested.configs, TopicConfig())
    return replicas


def apply_changes(
    before: dict[str, str], *, added: dict[str, str], deleted: Sequence[str]
) -> dict[str, str]:
    after = {name: value for name, value in {**before, **added}.items() if name not in deleted}
    check_topic_settings(after)
    check_topic_configs(after, TopicConfig())
    return after


def kafka_2_error(
    error: ApiError, requested: RequestedTopic, brokers: Sequence[Broker], names: TakenNames
) -> ApiError:
    """Return the error with the message of Kafka 2.8, which scripts look for."""
    collisions = names.colliding_with(requested.name)
    match error.code:
        case ErrorCode.TOPIC_ALREADY_EXISTS if requested.name in names:
            return ApiError(error.code, f"Topic '{requested.name}' already exists.")
        case ErrorCode.INVALID_REPLICATION_FACTOR:
            larger = f"{requested.replication_factor} larger than available brokers: {len(brokers)}"
            return ApiError(error.code, f"Replication factor: {larger}.")
        case ErrorCode.INVALID_TOPIC_EXCEPTION if collisions:
            existing = ", ".join(collisions)
            return ApiError(
                error.code, f"Topic '{requested.name}' collides with existing topics: {existing}"
            )
    return with_racks_hint(error)


def with_racks_hint(error: ApiError) -> ApiError:
    if isinstance(error, MissingRacks):
        return ApiError(error.code, RACKS_HINT)
    return error
