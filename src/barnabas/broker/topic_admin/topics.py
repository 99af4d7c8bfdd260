"""Topic settings as this broker knows them, and helpers for topic administration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeVar
from uuid import UUID

from barnabas.broker.control_plane import catch_up
from barnabas.broker.policies import Policies
from barnabas.config import TOPIC_SETTINGS, BrokerConfig, TopicConfig
from barnabas.controller.topic_checks import TopicDefaults
from barnabas.errors import (
    ApiError,
    ConfigError,
    ErrorCode,
    NoNode,
    RegistryError,
    RegistrySessionExpired,
    StorageError,
)
from barnabas.metadata import znodes
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import NO_LEADER
from barnabas.tasks import Turns

logger = logging.getLogger("barnabas.topics")

IN_FLIGHT_MAX = 100
ERRORS_LOGGED_MAX = 20

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")


class AppliedOverrides(NamedTuple):
    """The valid settings of a topic, and the errors of the invalid ones, which are ignored."""

    config: TopicConfig
    overrides: dict[str, str]
    errors: list[ConfigError]


def apply_overrides(defaults: TopicConfig, overrides: Mapping[str, str]) -> AppliedOverrides:
    """Apply the settings of a topic to the defaults. An invalid setting is ignored."""
    applied = AppliedOverrides(defaults, {}, [])
    for key, value in overrides.items():
        try:
            if key not in TOPIC_SETTINGS:  # without a suggestion, which takes a millisecond
                raise ConfigError(key, "no such topic setting")
            applied = applied._replace(config=applied.config.with_overrides({key: value}))
            applied.overrides[key] = value
        except ConfigError as error:
            applied.errors.append(error)
    return applied


class Topics:
    """The settings of topics, and the components that topic administration needs."""

    def __init__(
        self,
        registry: RegistryClient,
        metadata: MetadataCache,
        config: BrokerConfig,
        random: Random,
        policies: Policies | None = None,
    ) -> None:
        self.registry = registry
        self.metadata = metadata
        self.defaults = config.topic_defaults()
        self.new_topic_defaults = TopicDefaults(
            partitions=config.num_partitions, replication_factor=config.default_replication_factor
        )
        self.random = random
        self.policies = policies or Policies()
        self.overrides: dict[str, Mapping[str, str]] = {}
        """Settings of each topic that differ from the defaults. Possibly stale for topics without a replica here."""
        self.configs: dict[str, tuple[TopicConfig, Mapping[str, str], TopicConfig]] = {}
        """Defaults, overrides and result of the last `config_of` by topic. A long list takes milliseconds to validate,
        and a start or LeaderAndIsr needs the settings for each partition."""
        self.auto_creations_in_progress: dict[str, None] = {}
        """Names of the topics that this broker is creating automatically."""

    # ---- settings

    def reconfigure(self, _: BrokerConfig, config: BrokerConfig) -> None:
        self.defaults = config.topic_defaults()

    async def refresh(self, names: Iterable[str]) -> None:
        """Read the settings of these topics again: ours may be those of a deleted topic of the same name."""
        for name, found in (await self.read_registry_overrides(names)).items():
            if found is None:
                self.overrides.pop(name, None)
            else:
                self.overrides[name] = found

    async def read_registry_overrides(
        self, names: Iterable[str]
    ) -> dict[str, Mapping[str, str] | None]:
        """Read the settings of these topics from the registry. None: the topic has no config znode."""
        wanted = tuple(names)
        found = dict(zip(wanted, await run_limited(self.read_topic_overrides, wanted), strict=True))
        missing = [name for name, settings in found.items() if settings is None]
        if missing:
            # A topic has a config znode from its creation. If it is missing, our ZooKeeper server may lag: read again.
            await catch_up(self.registry)
            again = await run_limited(self.read_topic_overrides, missing)
            found.update(zip(missing, again, strict=True))
        return found

    async def read_topic_overrides(self, name: str) -> Mapping[str, str] | None:
        path = znodes.topic_config_path(name)
        try:
            data, _ = await self.registry.get(path)
        except NoNode:
            return None
        try:
            return znodes.decode_config(path, data)
        except RegistryError as error:
            # Without known settings the topic uses the defaults.
            logger.error(
                "corrupt config znode, keeping the last known settings topic=%s error=%s",
                name,
                error,
            )
            return self.overrides.get(name, {})

    def forget(self, names: Iterable[str]) -> None:
        """Remove the settings of deleted topics."""
        for name in names:
            self.overrides.pop(name, None)
            self.configs.pop(name, None)

    def config_of(self, name: str) -> TopicConfig:
        """Return the settings of a topic. Invalid settings are logged and ignored, so they do not prevent a start."""
        overrides = self.overrides.get(name)
        if not overrides:
            return self.defaults
        known = self.configs.get(name)
        if known is not None and known[0] is self.defaults and known[1] is overrides:
            return known[2]
        applied = apply_overrides(self.defaults, overrides)
        for error in applied.errors[:ERRORS_LOGGED_MAX]:
            logger.warning("ignoring setting topic=%s error=%s", name, error)
        self.configs[name] = (self.defaults, overrides, applied.config)
        return applied.config

    async def controller_version(self) -> int:
        """Return the version of /controller, for transactions that must fail while there is no controller."""
        controller = await self.registry.exists(znodes.CONTROLLER)
        if controller is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        return controller.version

    def new_topic_id(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def has_leaders(self, name: str, partitions: int) -> bool:
        topic = self.metadata.topics.get(name)
        return (
            topic is not None
            and len(topic.partitions) >= partitions
            and all(each.leader != NO_LEADER for each in topic.partitions.values())
        )

    async def wait_until_done(
        self, waiting: dict[str, int], done: Callable[[str, int], bool], timeout_ms: int
    ) -> None:
        """Remove topics from `waiting` when they are done, until it is empty or the timeout expires.

        A timeout of 0 means, as in Kafka, that the client does not wait: all topics stay in `waiting`.
        """
        if waiting and timeout_ms > 0:
            await remove_when_done(self.metadata, waiting, done, timeout_ms)


async def remove_when_done(
    metadata: MetadataCache, waiting: dict[K, V], done: Callable[[K, V], bool], timeout_ms: int
) -> None:
    """Remove items from `waiting` when the metadata cache shows that they are done, until the timeout."""

    def none_left() -> bool:
        for key in [key for key, value in waiting.items() if done(key, value)]:
            del waiting[key]
        return not waiting

    await metadata.wait_until(none_left, timeout_ms / 1000)


def not_controller() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "this broker is no longer the controller")


def to_api_error(error: ApiError | RegistryError | StorageError) -> ApiError:
    """Return the error for the client. A controller whose session has expired is no longer the controller."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RegistrySessionExpired):
        return not_controller()
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def error_fields(error: ApiError | None) -> tuple[ErrorCode, str | None]:
    """Return the error code and the error message of a response."""
    return (error.code, error.message or None) if error is not None else (ErrorCode.NONE, None)


async def run_limited(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Return the results in the order of the items. At most IN_FLIGHT_MAX items are in progress at a time."""
    results: dict[int, R] = {}
    remaining = iter(enumerate(items))
    turns = Turns()

    async def worker() -> None:
        for number, item in remaining:
            results[number] = await work(item)
            await turns.yield_if_due()

    await asyncio.gather(*(worker() for _ in range(min(IN_FLIGHT_MAX, len(items)))))
    return [results[number] for number in range(len(items))]
