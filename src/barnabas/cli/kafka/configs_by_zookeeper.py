"""kafka-configs with --zookeeper: reads and writes the settings of topics in znodes, without a broker.

A change writes /config/topics/<t>, and a notification for the brokers in /config/changes.
"""

from __future__ import annotations

from barnabas.cli.kafka.config_options import Entities, settings_to_add, settings_to_delete
from barnabas.cli.kafka.failures import RequestRejected
from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.topics_by_zookeeper import (
    ADMIN_OPERATION_EXCEPTION,
    EFFECT_AT_RESTART,
    apply_changes,
)
from barnabas.cli.kafka.znodes import (
    change_settings,
    children_or_empty,
    read_settings,
    run_in_session,
)
from barnabas.cli.terminal.output import print_lines, print_note
from barnabas.metadata import znodes
from barnabas.world.ports import RegistrySession

TOPIC_CONFIGS = f"{znodes.CONFIG}/topics"


def run_configs_on_znodes(connect: str, options: ParsedOptions, entities: Entities) -> None:
    work = alter_configs if options.has("alter") else describe_configs
    run_in_session(connect, lambda session: work(session, options, entities))


async def describe_configs(
    session: RegistrySession, options: ParsedOptions, entities: Entities
) -> None:
    names = [entities.name] if entities.name else await children_or_empty(session, TOPIC_CONFIGS)
    for name in names:
        settings, _ = await read_settings(session, name)
        pairs = ",".join(f"{key}={value}" for key, value in settings.items())
        print_lines(f"Configs for topic '{name}' are {pairs}")


async def alter_configs(
    session: RegistrySession, options: ParsedOptions, entities: Entities
) -> None:
    name = entities.names[0]
    added = settings_to_add(options)

    def change(before: dict[str, str]) -> dict[str, str]:
        deleted = settings_to_delete(options, list(before))
        return apply_changes(before, added=added, deleted=deleted)

    if await session.exists(znodes.topic_path(name)) is None:
        raise RequestRejected(f"Topic '{name}' does not exist.", ADMIN_OPERATION_EXCEPTION)
    await change_settings(session, name, change)
    print_lines(f"Completed updating config for entity: topic '{name}'.")
    print_note(EFFECT_AT_RESTART)
