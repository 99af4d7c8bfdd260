"""kafka-topics with --zookeeper: this command checks, assigns and writes itself, as it did before Kafka 3.0.

    create   /config/topics/<t> and /brokers/topics/<t>         describe, list   read only
    alter    /brokers/topics/<t>; /config/topics/<t> and a note of that in /config/changes
    delete   /admin/delete_topics/<t>

No broker is asked, and success means that it is written down: whether a controller is there to act on it, this command
does not know. The checks and the placement are those of the brokers; the words are those of the 2.8 tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random

from msgspec.structs import replace

from barnabas.cli.kafka.command import complain, say
from barnabas.cli.kafka.describing import (
    SEPARATOR,
    PartitionDescription,
    TopicDescription,
    report_of,
)
from barnabas.cli.kafka.failures import Refused
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.topic_options import (
    COLLISION_WARNING,
    RequestedTopic,
    TopicFilter,
    check_counts,
    has_collision_characters,
    requested_topic,
)
from barnabas.cli.kafka.topic_settings import (
    check_names,
    check_topic_settings,
    format_version_warning,
)
from barnabas.cli.kafka.znodes import (
    broker_ids,
    change_settings,
    children,
    create_topic,
    grow_topic,
    is_marked_for_deletion,
    read_settings,
    read_state,
    read_topic,
    registered_brokers,
    through_zookeeper,
)
from barnabas.config import TopicConfig
from barnabas.controller.assignment import MissingRacks, Replicas
from barnabas.controller.topic_checks import (
    USE_DEFAULT,
    TopicDefaults,
    TopicWish,
    already_exists,
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

OPERATION = "kafka.admin.AdminOperationException"
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
TAKEN_UP_LATER = "note: written down; brokers of Barnabas take it up when they next start"
RACKS_HINT = (
    "Not all brokers have rack information. Add --disable-rack-aware in command line to make"
    " replica assignment without rack information."
)


def run_on_znodes(connect: str, given: ParsedOptions, action: str) -> None:
    through_zookeeper(connect, lambda session: TopicsOfZnodes(session, given, connect).run(action))


class TopicsOfZnodes:
    def __init__(self, session: RegistrySession, given: ParsedOptions, connect: str) -> None:
        self.session = session
        self.given = given
        self.connect = connect

    async def run(self, action: str) -> None:
        if await self.session.exists(znodes.TOPICS) is None:
            raise Refused(
                f"no cluster has its state at {self.connect}: there is no {znodes.TOPICS}; give the"
                " host:port/chroot of the brokers' zookeeper.connect"
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
        wish = requested_topic(self.given)
        if warning := format_version_warning(wish.configs):
            say(warning)
        if has_collision_characters(wish.name):
            say(COLLISION_WARNING)
        check_counts(wish)
        brokers = await self.brokers()
        names = TakenNames(await children(self.session, znodes.TOPICS))
        marked = await children(self.session, znodes.DELETE_TOPICS)
        try:
            replicas = place(wish, brokers, names, marked)
            await self.write(wish, replicas)
        except ApiError as error:
            exists = error.code is ErrorCode.TOPIC_ALREADY_EXISTS
            if exists and self.given.has("if-not-exists"):
                return
            raise in_kafka_2_words(error, wish, brokers, names) from None
        say(f"Created topic {wish.name}.")

    async def write(self, wish: RequestedTopic, replicas: Sequence[Replicas]) -> None:
        try:
            await create_topic(self.session, wish.name, replicas, wish.configs)
        except NodeExists:
            raise already_exists(wish.name) from None

    async def brokers(self) -> list[Broker]:
        brokers = await registered_brokers(self.session)
        if self.given.has("disable-rack-aware"):
            return [replace(broker, rack=None) for broker in brokers]
        return brokers

    # ---- alter

    async def alter(self) -> None:
        names = await self.existing_names()
        wish = requested_topic(self.given)
        deleted = [name.strip() for name in self.given.values("delete-config")]
        check_names(dict.fromkeys(deleted))
        for name in names:
            if wish.configs or deleted:
                say(*SETTINGS_WARNING)
                changed = partial(with_changes, added=wish.configs, deleted=deleted)
                await change_settings(self.session, name, changed)
                say(f"Updated config for topic {name}.")
                complain(TAKEN_UP_LATER)
            if wish.partitions is not None:
                await self.grow(name, wish, wish.partitions)

    async def grow(self, name: str, wish: RequestedTopic, count: int) -> None:
        if name in INTERNAL_TOPICS:
            raise Refused(
                f"The number of partitions for the internal topic {name} cannot be changed."
            )
        say(KEYS_WARNING)
        if await is_marked_for_deletion(self.session, name):
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic {name} is queued for deletion."
            )
        brokers = await self.brokers()

        def placed(topic: TopicAssignment) -> Sequence[Replicas]:
            size = len(topic.partitions)
            if count <= size:
                raise ApiError(
                    ErrorCode.INVALID_PARTITIONS,
                    "The number of partitions for a topic can only be increased. Topic"
                    f" {name} currently has {size} partitions, {count} would not be an increase.",
                )
            # The list begins with the partitions that are there; without any beyond, it is as if it was not given.
            assignments = wish.assignment[size:] or None
            try:
                return check_added_partitions(
                    topic.partitions, count=count, assignments=assignments, brokers=brokers
                )
            except ApiError as error:
                raise with_racks_hint(error) from None

        await grow_topic(self.session, name, placed)
        say("Adding partitions succeeded!")

    # ---- delete

    async def delete(self) -> None:
        for name in await self.existing_names():
            if name in INTERNAL_TOPICS:
                raise Refused(
                    f"Topic {name} is a kafka internal topic and is not allowed to be marked for"
                    " deletion.",
                    OPERATION,
                )
            try:
                await self.session.create(znodes.delete_topic_path(name))
            except NodeExists:
                say(f"Topic {name} is already marked for deletion.")
                continue
            say(f"Topic {name} is marked for deletion.")
            say("Note: This will have no impact if delete.topic.enable is not set to true.")

    # ---- list and describe

    async def list_names(self) -> None:
        for name in await self.names():
            marked = await is_marked_for_deletion(self.session, name)
            say(f"{name} - marked for deletion" if marked else name)

    async def names(self) -> list[str]:
        chosen = TopicFilter(self.given.value("topic"), self.given.has("exclude-internal"))
        found = await children(self.session, znodes.TOPICS)
        return chosen.of((name, name in INTERNAL_TOPICS) for name in found)

    async def existing_names(self) -> list[str]:
        names = await self.names()
        text = self.given.value("topic")
        if text is not None and not names and not self.given.has("if-exists"):
            raise Refused(f"Topic '{text}' does not exist as expected")
        return names

    async def describe(self) -> None:
        names = await self.existing_names()
        report = report_of(self.given, await broker_ids(self.session))
        for name in names:
            topic = await self.shown(name)
            if topic is None:
                say(f"Topic {name} doesn't exist!")
                continue
            for line in report.lines(topic, elr=NO_ELR):
                say(line, keep=SEPARATOR)

    async def shown(self, name: str) -> TopicDescription | None:
        found = await read_topic(self.session, name)
        if found is None:
            return None
        topic, _ = found
        marked = await is_marked_for_deletion(self.session, name)
        settings, _ = await read_settings(self.session, name)

        async def partition(number: int, replicas: Replicas) -> PartitionDescription:
            state = await read_state(self.session, TopicPartition(name, number))
            has_leader = state is not None and state.leader != NO_LEADER
            return PartitionDescription(
                topic=name,
                partition=number,
                leader=state.leader if state is not None and has_leader else None,
                replicas=replicas,
                isr=() if state is None else state.isr,
                marked_for_deletion=marked,
            )

        return TopicDescription(
            name=name,
            id=topic.topic_id,
            partitions=await asyncio.gather(
                *(partition(number, held.replicas) for number, held in topic.partitions.items())
            ),
            configs=list(settings.items()),
            marked_for_deletion=marked,
        )


# ---- decisions


def place(
    wish: RequestedTopic, brokers: Sequence[Broker], names: TakenNames, marked: Sequence[str]
) -> tuple[Replicas, ...]:
    """Check the topic as a broker would, and return the brokers of each partition."""
    replicas = check_new_topic(
        TopicWish(
            name=wish.name,
            partitions=wish.partitions or USE_DEFAULT,
            replication_factor=wish.replication_factor or USE_DEFAULT,
            assignments=dict(enumerate(wish.assignment)) or None,
            configs=wish.configs,
        ),
        brokers=brokers,
        in_cache=(),
        in_registry=names,
        marked_for_deletion=marked,
        defaults=TopicDefaults(),
        random=Random(),
    )
    check_topic_configs(wish.configs, TopicConfig())
    return replicas


def with_changes(
    before: dict[str, str], *, added: dict[str, str], deleted: Sequence[str]
) -> dict[str, str]:
    after = {name: value for name, value in {**before, **added}.items() if name not in deleted}
    check_topic_settings(after)
    check_topic_configs(after, TopicConfig())
    return after


def in_kafka_2_words(
    error: ApiError, wish: RequestedTopic, brokers: Sequence[Broker], names: TakenNames
) -> ApiError:
    """Return the error with the message of Kafka 2.8, which scripts look for."""
    collisions = names.colliding_with(wish.name)
    match error.code:
        case ErrorCode.TOPIC_ALREADY_EXISTS if wish.name in names:
            return ApiError(error.code, f"Topic '{wish.name}' already exists.")
        case ErrorCode.INVALID_REPLICATION_FACTOR:
            larger = f"{wish.replication_factor} larger than available brokers: {len(brokers)}"
            return ApiError(error.code, f"Replication factor: {larger}.")
        case ErrorCode.INVALID_TOPIC_EXCEPTION if collisions:
            theirs = ", ".join(collisions)
            return ApiError(
                error.code, f"Topic '{wish.name}' collides with existing topics: {theirs}"
            )
    return with_racks_hint(error)


def with_racks_hint(error: ApiError) -> ApiError:
    if isinstance(error, MissingRacks):
        return ApiError(error.code, RACKS_HINT)
    return error
