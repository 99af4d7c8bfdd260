"""The topics as one broker has to do with them: what each sets for itself, and the wishes of clients to create and
delete them.

    create   check ─► /config/topics/<t> and /brokers/topics/<t> in one transaction ─┐
    delete   /admin/delete_topics/<t> ───────────────────────────────────────────────┴─► wait for the metadata cache

A wish is only written down. The controller notices and does the rest, and tells every broker, this one too; when the
metadata cache shows it, the client is answered. Whoever gives up waiting is told that the time is over, and what it
asked for happens all the same. Only the controller's own broker writes: the transaction holds as long as /controller is
what it was when the request began. How a topic grows is in expansion.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeVar
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.broker.control_plane import catch_up
from barnabas.config import TopicConfig
from barnabas.controller.assignment import Replicas
from barnabas.controller.topic_checks import (
    TopicDefaults,
    TopicWish,
    already_exists,
    check_new_topic,
    check_topic_configs,
)
from barnabas.errors import (
    ApiError,
    ConfigError,
    ErrorCode,
    MultiFailed,
    NodeExists,
    NoNode,
    RegistryError,
    SessionExpired,
    StorageError,
)
from barnabas.metadata import znodes
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.registry_client import RegistryClient
from barnabas.metadata.topic_names import TakenNames
from barnabas.model import NO_LEADER, ZERO_ID
from barnabas.tasks import Turns, aside
from barnabas.world.ports import Check, Create, SetData

logger = logging.getLogger("barnabas.topics")

IN_FLIGHT_MAX = 100
CHECKED_PER_TURN = 50
CONTROLLER_CHECK, CONFIG_WRITE, TOPIC_WRITE = range(3)

T = TypeVar("T")
R = TypeVar("R")


class TopicOutcome(Struct, frozen=True, kw_only=True):
    """What became of the wish for one topic; without an error it is there, or would be, if only checking was asked."""

    name: str
    error: ApiError | None = None
    topic_id: UUID = ZERO_ID
    replicas: tuple[Replicas, ...] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)


class Known(NamedTuple):
    """What the registry says when a request begins."""

    names: TakenNames
    marked_for_deletion: frozenset[str]
    controller_version: int


class AppliedOverrides(NamedTuple):
    """The settings of a topic that are in force, and the errors of those that are ignored."""

    config: TopicConfig
    overrides: dict[str, str]
    errors: list[ConfigError]


def apply_overrides(defaults: TopicConfig, overrides: Mapping[str, str]) -> AppliedOverrides:
    """Lay a topic's own settings over the defaults. An invalid setting is ignored."""
    applied = AppliedOverrides(defaults, {}, [])
    for key, value in overrides.items():
        try:
            applied = applied._replace(config=applied.config.with_overrides({key: value}))
            applied.overrides[key] = value
        except ConfigError as error:
            applied.errors.append(error)
    return applied


class Topics:
    def __init__(
        self,
        registry: RegistryClient,
        metadata: MetadataCache,
        *,
        defaults: TopicConfig,
        new_topics: TopicDefaults,
        random: Random,
    ) -> None:
        self.registry = registry
        self.metadata = metadata
        self.defaults = defaults
        self.new_topics = new_topics
        self.random = random
        self.overrides: dict[str, Mapping[str, str]] = {}
        """What each topic sets for itself, over the broker's defaults. In force for topics with a replica here."""
        self.created_automatically: dict[str, None] = {}
        """Names whose creation was begun because a client asked for them, and has not been answered yet."""

    # ---- settings

    async def read_overrides(self) -> None:
        """Of all topics, before the logs are opened."""
        await self.learn(await self.registry.children(znodes.TOPICS))

    async def learn(self, names: Iterable[str]) -> None:
        """Read what these topics set for themselves, anew: the name may have belonged to another topic before."""
        for name, found in (await self.read(names)).items():
            if found is None:
                self.overrides.pop(name, None)
            else:
                self.overrides[name] = found

    async def read(self, names: Iterable[str]) -> dict[str, Mapping[str, str] | None]:
        """Read the settings of these topics from the registry. None stands for a topic without a config znode."""
        wanted = tuple(names)
        found = dict(zip(wanted, await at_most(IN_FLIGHT_MAX, self.read_one, wanted), strict=True))
        missing = [name for name, settings in found.items() if settings is None]
        if missing:
            # A topic is created together with its settings: our server of the registry may be behind.
            await catch_up(self.registry)
            again = await at_most(IN_FLIGHT_MAX, self.read_one, missing)
            found.update(zip(missing, again, strict=True))
        return found

    async def read_one(self, name: str) -> Mapping[str, str] | None:
        path = znodes.topic_config_path(name)
        try:
            data, _ = await self.registry.get(path)
        except NoNode:
            return None
        try:
            return znodes.decode_config(path, data)
        except RegistryError as error:
            # Its bytes make no sense. The topic goes on with what is known of it, or with the defaults.
            logger.error("ignoring the settings of topic=%s error=%s", name, error)
            return self.overrides.get(name, {})

    def forget(self, names: Iterable[str]) -> None:
        """They are deleted."""
        for name in names:
            self.overrides.pop(name, None)

    def config_of(self, name: str) -> TopicConfig:
        """A setting that was legal when it was written must not keep a broker from starting."""
        applied = apply_overrides(self.defaults, self.overrides.get(name, {}))
        for error in applied.errors:
            logger.warning("ignoring setting topic=%s error=%s", name, error)
        return applied.config

    # ---- creating

    async def create(
        self, wishes: Sequence[TopicWish], *, timeout_ms: int, validate_only: bool = False
    ) -> list[TopicOutcome]:
        """The outcomes stand as the wishes do. RegistryError if the registry cannot be asked at all."""
        known = await self.read_known()
        outcomes = []
        for index, wish in enumerate(wishes):
            if index % CHECKED_PER_TURN == CHECKED_PER_TURN - 1:
                await asyncio.sleep(0)  # others have their turn in between
            size = max(wish.partitions, len(wish.assignments or ()))
            outcomes.append(await aside(size, self.check, wish, known))
            if outcomes[-1].error is None and not validate_only:
                known.names.add(wish.name)
        if validate_only:
            return outcomes

        async def write(outcome: TopicOutcome) -> TopicOutcome:
            return await self.write(outcome, known.controller_version)

        outcomes = await at_most(IN_FLIGHT_MAX, write, outcomes)
        waiting = {each.name: len(each.replicas) for each in outcomes if each.error is None}
        await self.wait_until_none(waiting, self.has_leaders, timeout_ms)
        return [timed_out(each) if each.name in waiting else each for each in outcomes]

    async def read_known(self) -> Known:
        names, marked, controller_version = await asyncio.gather(
            self.registry.children(znodes.TOPICS),
            self.registry.children(znodes.DELETE_TOPICS),
            self.controller_version(),
        )
        return Known(TakenNames(names), frozenset(marked), controller_version)

    async def controller_version(self) -> int:
        """For the check that what is written is still the controller's to write."""
        controller = await self.registry.exists(znodes.CONTROLLER)
        if controller is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        return controller.version

    def check(self, wish: TopicWish, known: Known) -> TopicOutcome:
        try:
            replicas = check_new_topic(
                wish,
                brokers=tuple(self.metadata.brokers.values()),
                in_cache=self.metadata.topics,
                in_registry=known.names,
                marked_for_deletion=known.marked_for_deletion,
                defaults=self.new_topics,
                random=self.random,
            )
            overrides = check_topic_configs(wish.configs, self.defaults)
        except ApiError as error:
            return TopicOutcome(name=wish.name, error=error)
        return TopicOutcome(name=wish.name, replicas=replicas, overrides=overrides)

    async def write(self, outcome: TopicOutcome, controller_version: int) -> TopicOutcome:
        if outcome.error is not None:
            return outcome
        topic_id = self.new_topic_id()
        try:
            await self.write_topic(outcome, topic_id, controller_version)
        except ApiError as error:
            return replace(outcome, error=error)
        except (RegistryError, StorageError) as error:
            logger.error("cannot create topic=%s error=%s", outcome.name, error)
            return replace(outcome, error=why_not(error))
        partitions = len(outcome.replicas)
        logger.info("created topic=%s partitions=%d id=%s", outcome.name, partitions, topic_id)
        return replace(outcome, topic_id=topic_id)

    async def write_topic(
        self, outcome: TopicOutcome, topic_id: UUID, controller_version: int
    ) -> None:
        name = outcome.name
        path = znodes.topic_config_path(name)
        settings = znodes.encode_config(outcome.overrides)
        assignment = await aside(len(outcome.replicas), encoded, topic_id, outcome.replicas)
        check = Check(path=znodes.CONTROLLER, version=controller_version)
        create = Create(path=znodes.topic_path(name), data=assignment)
        # Settings without a topic are what a creation by Kafka leaves that was interrupted: they are overwritten.
        for config in (Create(path=path, data=settings), SetData(path=path, data=settings)):
            try:
                await self.registry.multi([check, config, create])
                return
            except MultiFailed as failed:
                if failed.index == CONTROLLER_CHECK:
                    raise another_is_in_charge() from failed
                if failed.index == TOPIC_WRITE and isinstance(failed.error, NodeExists):
                    if await self.is_written(name, topic_id):
                        return
                    raise already_exists(name) from failed
                if failed.index != CONFIG_WRITE or not isinstance(
                    failed.error, NodeExists | NoNode
                ):
                    raise
        raise already_exists(
            name
        )  # its settings come and go under our hands: somebody else is at it

    async def is_written(self, name: str, topic_id: UUID) -> bool:
        """Whether the topic that stands there is ours: what had no answer when a connection was lost is sent again, and
        may have been carried out before."""
        try:
            data, _ = await self.registry.get(znodes.topic_path(name))
            return znodes.decode_topic(name, data).topic_id == topic_id
        except RegistryError:
            return False

    def new_topic_id(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def has_leaders(self, name: str, partitions: int) -> bool:
        topic = self.metadata.topics.get(name)
        return (
            topic is not None
            and len(topic.partitions) >= partitions
            and all(each.leader != NO_LEADER for each in topic.partitions.values())
        )

    # ---- deleting

    async def delete(self, names: Sequence[str], *, timeout_ms: int) -> dict[str, ApiError | None]:
        """Mark them. One that is marked already is waited for like the others."""
        distinct = await aside(len(names), dict.fromkeys, names)
        outcomes = dict(await at_most(IN_FLIGHT_MAX, self.mark, tuple(distinct)))
        waiting = {name: 0 for name, error in outcomes.items() if error is None}
        await self.wait_until_none(waiting, self.is_gone, timeout_ms)
        return outcomes | dict.fromkeys(waiting, ApiError(ErrorCode.REQUEST_TIMED_OUT))

    async def mark(self, name: str) -> tuple[str, ApiError | None]:
        missing = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        if name not in self.metadata.topics:
            return name, missing
        try:
            if await self.registry.exists(znodes.topic_path(name)) is None:
                return name, missing
            await self.registry.create(znodes.delete_topic_path(name))
        except NodeExists:
            return name, None
        except (RegistryError, StorageError) as error:
            logger.error("cannot mark for deletion topic=%s error=%s", name, error)
            return name, why_not(error)
        logger.info("marked for deletion topic=%s", name)
        return name, None

    def is_gone(self, name: str, _: int) -> bool:
        return name not in self.metadata.topics

    # ---- waiting

    async def wait_until_none(
        self, waiting: dict[str, int], done: Callable[[str, int], bool], timeout_ms: int
    ) -> None:
        """Until every one is done, and out of `waiting`, or the time is over. No time at all is Kafka's way to say
        "do it, and do not wait": all are told that it is over."""

        def none_left() -> bool:
            for name in [name for name, size in waiting.items() if done(name, size)]:
                del waiting[name]
            return not waiting

        if waiting and timeout_ms > 0:
            await self.metadata.wait_until(none_left, timeout_ms / 1000)


def another_is_in_charge() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "another broker is in charge by now")


def why_not(error: RegistryError | StorageError) -> ApiError:
    """A controller whose session is over is none, only it may not have heard of that: others are to be asked."""
    if isinstance(error, SessionExpired):
        return another_is_in_charge()
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def encoded(topic_id: UUID, replicas: Sequence[Replicas]) -> bytes:
    """The znode of a new topic."""
    partitions = {
        index: znodes.ReplicaAssignment(replicas=each) for index, each in enumerate(replicas)
    }
    return znodes.encode_topic(znodes.TopicAssignment(topic_id=topic_id, partitions=partitions))


def timed_out(outcome: TopicOutcome) -> TopicOutcome:
    """Without a message, as in Kafka."""
    return replace(outcome, error=ApiError(ErrorCode.REQUEST_TIMED_OUT))


async def at_most(limit: int, work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """The results in the order of the items, at most `limit` of which are worked on at a time."""
    results: dict[int, R] = {}
    remaining = iter(enumerate(items))
    turns = Turns()

    async def worker() -> None:
        for number, item in remaining:
            results[number] = await work(item)
            await turns.leave()

    await asyncio.gather(*(worker() for _ in range(min(limit, len(items)))))
    return [results[number] for number in range(len(items))]
