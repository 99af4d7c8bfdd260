"""`barnabas configs alter`: set settings or quotas, or change elements of lists."""

from __future__ import annotations

from collections.abc import Sequence

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.configs.changes import change_settings_of, changes_text
from barnabas.cli.configs.entity import Entity, entity_options
from barnabas.cli.configs.names import complete_assignments, effect_note, reject_lists_of_scalars
from barnabas.cli.options import dry_run_option
from barnabas.cli.terminal.output import OutputFormat, print_note, show
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigChange
from barnabas.errors import ConfigError
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation


@click.command("alter")
@entity_options
@click.argument(
    "assignments", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=complete_assignments
)
@click.option(
    "--append",
    multiple=True,
    metavar="KEY=VALUE",
    help="Add elements to a list: cleanup.policy=compact; repeatable.",
)
@click.option(
    "--subtract",
    multiple=True,
    metavar="KEY=VALUE",
    help="Remove elements from a list; repeatable.",
)
@dry_run_option
@cluster_command
def alter_configs(
    cluster: Cluster,
    entity: Entity,
    assignments: tuple[str, ...],
    append: tuple[str, ...],
    subtract: tuple[str, ...],
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Change settings and quotas.

    Choose one topic, broker, user, client id or IP address. The change takes effect while the brokers run.

    Example: barnabas configs alter --topic orders retention.ms=3600000 --append cleanup.policy=compact
    """
    changes = parse_changes(assignments, append, subtract)
    for option, pairs in (("--append", append), ("--subtract", subtract)):
        if pairs:
            reject_lists_of_scalars(
                entity, [pair.partition("=")[0].strip() for pair in pairs], option
            )
    document = change_settings_of(cluster, entity, changes, dry_run=dry_run)
    show(output, document, lambda shown: changes_text(shown, entity))
    if note := effect_note(entity, [each.name for each in changes]):
        print_note(f"note: {note}")


def parse_changes(
    assignments: Sequence[str], append: Sequence[str], subtract: Sequence[str]
) -> list[ConfigChange]:
    """Return the changes in the order of the command line. Raises ConfigError if there are none, or two of one key."""
    changes = [
        *(parse_change("KEY=VALUE", pair, ConfigOperation.SET) for pair in assignments),
        *(parse_change("--append", pair, ConfigOperation.APPEND) for pair in append),
        *(parse_change("--subtract", pair, ConfigOperation.SUBTRACT) for pair in subtract),
    ]
    if not changes:
        raise ConfigError("alter", "name a setting: KEY=VALUE, as in retention.ms=3600000")
    names = [each.name for each in changes]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(name, "is given twice; write several list elements as KEY=A,B")
    return changes


def parse_change(option: str, pair: str, operation: ConfigOperation) -> ConfigChange:
    """Parse `KEY=VALUE`. White space around both is removed, as in a properties file."""
    name, equals, value = pair.partition("=")
    if not equals or not name.strip():
        raise ConfigError(option, f"{pair!r} is not KEY=VALUE, as in retention.ms=3600000")
    return ConfigChange(name.strip(), value.strip(), operation)
