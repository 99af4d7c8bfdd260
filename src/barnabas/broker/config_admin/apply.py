"""Application of changed settings to a running broker.

    topics     every local log of the topic uses the new settings from its next append, roll or retention check on
    brokers    CurrentConfig publishes the new configuration to the components; new log defaults go to all logs
    clients,   rates apply from the next request on; partition rates are read for each request
    users
    ips        rates apply from the next connection on

The settings are read and applied with the lock of controller requests held. So a LeaderAndIsr request cannot create a
log with settings that were read before a change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.broker.config_admin.quotas import list_clients, list_names
from barnabas.broker.config_admin.write import Entity, read_entity
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.topics import run_limited
from barnabas.config.current import CurrentConfig
from barnabas.metadata import znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.metadata.topic_names import topic_name_error
from barnabas.model import TopicPartition
from barnabas.tasks import Turns

logger = logging.getLogger("barnabas.config")

SHOWN_MAX = 100
UNCLEAN_ELECTION = "unclean.leader.election.enable"


async def read_settings(
    registry: RegistryClient, entity_type: str, entity: str
) -> dict[str, str] | None:
    """Return the settings of an entity: {} without a znode, and None if its znode is invalid, which is logged."""
    found = await read_entity(registry, Entity(entity_type, entity))
    if found.error is None:
        return found.settings
    logger.error("ignoring settings error=%s", found.error)
    return None


async def read_dynamic_settings(
    registry: RegistryClient, broker_id: int, current: CurrentConfig
) -> None:
    """Read the dynamic settings of a broker at its start. An invalid znode is ignored."""
    current.update_default(await read_settings(registry, "brokers", znodes.DEFAULT_ENTITY) or {})
    current.update_broker(await read_settings(registry, "brokers", str(broker_id)) or {})


async def read_quotas(registry: RegistryClient) -> dict[str, dict[str, str]]:
    """Return the settings of all users, client ids and addresses, by the path of their znode.

    Invalid znodes are left out.
    """
    entities = [Entity(kind, "/".join(names)) for kind, *names in await list_clients(registry, {})]
    entities += [Entity("ips", name) for name in await list_names(registry, "ips", None)]
    found = await run_limited(lambda entity: read_settings(registry, *entity), entities)
    return {
        entity.path: settings for entity, settings in zip(entities, found, strict=True) if settings
    }


class ConfigApplier:
    """Applies the settings of topics and brokers to one running broker."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context

    async def apply(self, entity_type: str, entity: str) -> None:
        match entity_type:
            case "topics" if topic_name_error(entity) is None:
                await self.apply_topic(entity)
            case "brokers":
                await self.apply_broker(entity)
            case "clients" | "users" | "ips":
                settings = await read_settings(self.context.registry, entity_type, entity)
                path = znodes.config_path(entity_type, entity)
                self.context.client_quotas.update(path, settings or {})
                if entity_type == "users":
                    self.context.security.logins.credentials.update(entity, settings or {})
            case _:
                logger.warning(
                    "ignoring change of unknown settings type=%s entity=%s", entity_type, entity
                )

    async def apply_all(self) -> None:
        await self.apply_broker(znodes.DEFAULT_ENTITY)
        await self.apply_broker(str(self.context.config.broker_id))
        self.context.client_quotas.replace_all(await read_quotas(self.context.registry))
        await self.context.security.logins.credentials.load()
        logs = self.context.replicas.logs.logs
        async with self.context.control.lock:
            await self.context.topics.refresh(sorted({tp.topic for tp in logs}))
            await self.update_all_logs()

    # ---- topics

    async def apply_topic(self, name: str) -> None:
        """Read the settings of a topic and apply them to its local logs."""
        context = self.context
        async with context.control.lock:
            await context.topics.refresh([name])
            settings = context.topics.overrides.get(name, {})
            if await self.update_logs(name):
                logger.info(
                    "applied settings topic=%s settings=%s", name, format_settings(settings)
                )
            elif name not in context.metadata.topics:
                context.topics.forget([name])
        if settings.get(UNCLEAN_ELECTION, "").strip().lower() == "true":
            context.controller.allow_unclean_elections(name)

    async def update_logs(self, name: str) -> int:
        """Apply the known settings of a topic to its local logs. Returns the number of logs."""
        context = self.context
        config = context.topics.config_of(name)
        known = context.metadata.topics.get(name)
        if known is None:
            partitions = [tp for tp in context.replicas.logs.logs if tp.topic == name]
        else:
            partitions = [TopicPartition(name, index) for index in known.partitions]
        count = 0
        turns = Turns()
        for partition in partitions:
            log = context.replicas.logs.get(partition)
            if log is not None:
                log.use_config(config)
                count += 1
            await turns.yield_if_due()
        return count

    async def update_all_logs(self) -> None:
        """Apply the known settings of all topics to all logs. Each topic's settings are computed once."""
        topics, logs = self.context.topics, self.context.replicas.logs
        configs = {name: topics.config_of(name) for name in {tp.topic for tp in logs.logs}}
        turns = Turns()
        for partition, log in list(logs.logs.items()):
            log.use_config(configs[partition.topic])
            await turns.yield_if_due()

    # ---- brokers

    async def apply_broker(self, entity: str) -> None:
        """Read the dynamic settings of this broker, or of all brokers, and apply them."""
        context, current = self.context, self.context.current_config
        is_default = entity == znodes.DEFAULT_ENTITY
        if not is_default and entity != str(context.config.broker_id):
            return
        async with context.control.lock:
            settings = await read_settings(context.registry, "brokers", entity)
            if settings is None:
                return
            defaults = context.topics.defaults
            if is_default:
                current.update_default(settings)
            else:
                current.update_broker(settings)
            if context.topics.defaults != defaults:
                await self.update_all_logs()


def format_settings(settings: Mapping[str, str]) -> str:
    """Return settings for a log line. Long values are cut."""
    return ",".join(f"{key}={value[:SHOWN_MAX]}" for key, value in sorted(settings.items())) or "-"
