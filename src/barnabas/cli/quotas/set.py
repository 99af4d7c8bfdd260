"""`barnabas quotas set`."""

from __future__ import annotations

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.configs.alter import parse_change
from barnabas.cli.configs.changes import change_settings_of, changes_text
from barnabas.cli.configs.entity import quota_options
from barnabas.cli.configs.names import complete_assignments
from barnabas.cli.options import dry_run_option
from barnabas.cli.terminal.output import OutputFormat, show
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import QuotaEntity
from barnabas.errors import ConfigError
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation


@click.command("set")
@quota_options
@click.argument(
    "assignments",
    nargs=-1,
    required=True,
    metavar="QUOTA=NUMBER...",
    shell_complete=complete_assignments,
)
@dry_run_option
@cluster_command
def set_quotas(
    cluster: Cluster,
    entity: QuotaEntity,
    assignments: tuple[str, ...],
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Set quotas of a user, a client id, both, or an IP address.

    Quotas of users and client ids are producer_byte_rate, consumer_byte_rate, request_percentage and
    controller_mutation_rate. The quota of an address is connection_creation_rate.

    Example: barnabas quotas set --user alice producer_byte_rate=10000000
    """
    changes = [parse_change("QUOTA=NUMBER", pair, ConfigOperation.SET) for pair in assignments]
    names = [each.name for each in changes]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(name, "is given twice")
    document = change_settings_of(cluster, entity, changes, dry_run=dry_run)
    show(output, document, lambda shown: changes_text(shown, entity))
