"""`barnabas configs reset`: remove settings of an entity, so that their defaults apply again."""

from __future__ import annotations

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.configs.changes import change_settings_of, changes_text
from barnabas.cli.configs.entity import Entity, entity_options
from barnabas.cli.configs.names import complete_setting_names
from barnabas.cli.options import dry_run_option
from barnabas.cli.terminal.output import OutputFormat, show
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigChange
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation


@click.command("reset")
@entity_options
@click.argument(
    "keys", nargs=-1, required=True, metavar="KEY...", shell_complete=complete_setting_names
)
@dry_run_option
@cluster_command
def reset_configs(
    cluster: Cluster, entity: Entity, keys: tuple[str, ...], dry_run: bool, output: OutputFormat
) -> None:
    """Remove settings and quotas.

    Choose one topic, broker, user, client id or IP address. The value of the next level applies again: that of all
    brokers, the file, or the default.

    Example: barnabas configs reset --topic orders retention.ms
    """
    changes = [ConfigChange(key, None, ConfigOperation.DELETE) for key in dict.fromkeys(keys)]
    document = change_settings_of(cluster, entity, changes, dry_run=dry_run)
    show(output, document, lambda shown: changes_text(shown, entity))
