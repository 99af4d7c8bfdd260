"""`barnabas quotas unset`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.configs.changes import change_settings_of, changes_text
from barnabas.cli.configs.entity import entity_text, quota_options
from barnabas.cli.configs.names import complete_setting_names
from barnabas.cli.configs.reading import read_settings_of
from barnabas.cli.options import dry_run_option
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import OutputFormat, show
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, QuotaEntity
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation


@click.command("unset")
@quota_options
@click.argument("names", nargs=-1, metavar="[QUOTA]...", shell_complete=complete_setting_names)
@click.option("--all", "unset_all", is_flag=True, help="Remove all quotas of the entity.")
@dry_run_option
@cluster_command
def unset_quotas(
    cluster: Cluster,
    entity: QuotaEntity,
    names: tuple[str, ...],
    unset_all: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Remove quotas of a user, a client id, both, or an IP address.

    The quota of the next level applies then, for example that of all users.

    Example: barnabas quotas unset --user alice producer_byte_rate
    """
    if bool(names) == unset_all:
        raise ConfigError("unset", "name the quotas to remove, or use --all")
    removed = find_set_quotas(cluster, entity) if unset_all else names
    changes = [ConfigChange(name, None, ConfigOperation.DELETE) for name in dict.fromkeys(removed)]
    document = change_settings_of(cluster, entity, changes, dry_run=dry_run)
    show(output, document, lambda shown: changes_text(shown, entity))


def find_set_quotas(cluster: Cluster, entity: QuotaEntity) -> Sequence[str]:
    """Return the names of all quotas of an entity. Raises RESOURCE_NOT_FOUND if it has none."""
    settings = read_settings_of(ConfigAdmin(cluster), entity)
    names = [each.name for each in settings if each.is_set]
    if not names:
        raise ErrorWithHint(
            ApiError(ErrorCode.RESOURCE_NOT_FOUND),
            f"{entity_text(entity)} has no quotas",
            f"`barnabas quotas list{servers_hint()}` shows all quotas",
        )
    return names
