"""kafka-configs with --zookeeper: the settings of topics are read and written in their znodes, past every broker.

Written is /config/topics/<t>, with a note in /config/changes by which brokers hear of it.
"""

from __future__ import annotations

from barnabas.cli.kafka.command import complain, properties_of, say
from barnabas.cli.kafka.config_options import Entities, settings_to_add, settings_to_delete
from barnabas.cli.kafka.failures import Refused
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.topics_by_zookeeper import OPERATION, TAKEN_UP_LATER, with_changes
from barnabas.cli.kafka.znodes import (
    change_settings,
    children,
    read_settings,
    through_zookeeper,
)
from barnabas.metadata import znodes
from barnabas.world.ports import RegistrySession

TOPIC_CONFIGS = f"{znodes.CONFIG}/topics"


def run_on_znodes(connect: str, given: ParsedOptions, entities: Entities) -> None:
    work = alter if given.has("alter") else describe
    through_zookeeper(connect, lambda session: work(session, given, entities))


async def describe(session: RegistrySession, given: ParsedOptions, entities: Entities) -> None:
    names = [entities.name] if entities.name else await children(session, TOPIC_CONFIGS)
    for name in names:
        settings, _ = await read_settings(session, name)
        written = ",".join(f"{key}={value}" for key, value in settings.items())
        say(f"Configs for topic '{name}' are {written}")


async def alter(session: RegistrySession, given: ParsedOptions, entities: Entities) -> None:
    name = entities.names[0]
    added = settings_to_add(given, properties_of)

    def changed(before: dict[str, str]) -> dict[str, str]:
        deleted = settings_to_delete(given, list(before))
        return with_changes(before, added=added, deleted=deleted)

    if await session.exists(znodes.topic_path(name)) is None:
        raise Refused(f"Topic '{name}' does not exist.", OPERATION)
    await change_settings(session, name, changed)
    say(f"Completed updating config for entity: topic '{name}'.")
    complain(TAKEN_UP_LATER)
