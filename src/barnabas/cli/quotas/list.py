"""`barnabas quotas list`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.configs.entity import quota_filter_options, quota_names
from barnabas.cli.configs.reading import quota_filters, quota_text
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.output import OutputFormat, format_table, show_or_watch
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, QuotaEntity

NO_QUOTAS = "no quotas; set one with `barnabas quotas set`"
NO_MATCH = "no quota matches"
TYPES = ("user", "client-id", "ip")
DEFAULT_TEXT = "(default)"


@click.command("list")
@quota_filter_options
@watch_option
@cluster_command
def list_quotas(
    cluster: Cluster, entity: QuotaEntity | None, watch: bool, output: OutputFormat
) -> None:
    """List the quotas of all users, client ids and IP addresses, or of those that match.

    Example: barnabas quotas list --user alice
    """
    admin = ConfigAdmin(cluster)
    filters = [] if entity is None else quota_filters(entity)

    def load() -> dict[str, Any]:
        found = admin.describe_client_quotas(filters)
        entries = sorted(found.items(), key=lambda item: tuple(name or "" for name in item[0]))
        return {"quotas": [quota_document(*each) for each in entries]}

    nothing = NO_QUOTAS if entity is None else NO_MATCH
    show_or_watch(watch, output, load, lambda document: quota_table(document) or nothing)


def quota_document(entity: QuotaEntity, values: Mapping[str, float]) -> dict[str, Any]:
    """Return the names of an entity by type, and its quotas. The name of a default is None."""
    return {"entity": quota_names(entity), "quotas": dict(sorted(values.items()))}


def quota_table(document: dict[str, Any]) -> str:
    """Return a table with one row per quota; empty if there are none."""
    rows = [
        [*(name_text(each["entity"], kind) for kind in TYPES), name, quota_text(value)]
        for each in document["quotas"]
        for name, value in each["quotas"].items()
    ]
    return format_table(["user", "client id", "ip", "quota", "value"], rows) if rows else ""


def name_text(names: Mapping[str, str | None], kind: str) -> str:
    if kind not in names:
        return "-"
    name = names[kind]
    return DEFAULT_TEXT if name is None else name
