"""`barnabas configs describe`: value, source, default and one line of documentation of each setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.configs.entity import (
    Entity,
    entity_arguments,
    entity_document,
    entity_options,
    entity_text,
    require_entity,
)
from barnabas.cli.configs.names import (
    complete_setting_names,
    known_names,
    noun,
    reject_typos,
    short_noun,
)
from barnabas.cli.configs.reading import ShownSetting, read_settings_of, synonym_documents
from barnabas.cli.options import watch_option
from barnabas.cli.terminal.failure import ErrorWithHint, suggest_names
from barnabas.cli.terminal.output import (
    GAP,
    OutputFormat,
    cut_cell,
    format_table,
    plural,
    show_or_watch,
    shrink_columns,
    table_width,
)
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, QuotaEntity
from barnabas.errors import ApiError, ErrorCode
from barnabas.printable import printable

SOURCE_WORDS = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "STATIC_BROKER_CONFIG": "file",
    "DEFAULT_CONFIG": "default",
    "DYNAMIC_BROKER_LOGGER_CONFIG": "logger",
    "QUOTA": "quota",
}
"""Words for sources in text output; JSON has Kafka's names."""


@click.command("describe")
@entity_options
@click.argument("keys", nargs=-1, metavar="[KEY]...", shell_complete=complete_setting_names)
@click.option("--all", "describe_all", is_flag=True, help="Also show settings that are not set.")
@click.option(
    "--synonyms", is_flag=True, help="Show every level that sets a value, highest precedence first."
)
@watch_option
@cluster_command
def describe_configs(
    cluster: Cluster,
    entity: Entity,
    keys: tuple[str, ...],
    describe_all: bool,
    synonyms: bool,
    watch: bool,
    output: OutputFormat,
) -> None:
    """Show settings and quotas.

    Choose one topic, broker, user, client id or IP address. Without KEYs, show the settings that are set.

    Example: barnabas configs describe --topic orders --all
    """
    reject_typos(entity, keys)
    admin = ConfigAdmin(cluster)
    require_entity(cluster, entity)

    def load() -> dict[str, Any]:
        settings = read_settings_of(admin, entity)
        shown = [each for each in settings if describe_all or each.is_set]
        if keys:
            shown = select_settings(entity, settings, keys)
        return settings_document(entity, shown, len(settings), synonyms)

    show_or_watch(watch, output, load, lambda document: settings_text(document, entity))


def select_settings(
    entity: Entity, settings: Sequence[ShownSetting], keys: Sequence[str]
) -> list[ShownSetting]:
    """Return the settings with these names, in this order. Raises INVALID_CONFIG for a name that the broker lacks."""
    by_name = {each.name: each for each in settings}
    for key in keys:
        if key not in by_name:
            otherwise = f"`barnabas configs describe {entity_arguments(entity)}{servers_hint()} --all` lists them"
            hint = suggest_names(key, [*by_name, *known_names(entity)], otherwise)
            what = f"{entity_text(entity)}: no {noun(entity)} {key!r}"
            raise ErrorWithHint(ApiError(ErrorCode.INVALID_CONFIG), what, hint)
    return [by_name[key] for key in dict.fromkeys(keys)]


def settings_document(
    entity: Entity, settings: Sequence[ShownSetting], count: int, with_synonyms: bool
) -> dict[str, Any]:
    return {
        "entity": entity_document(entity),
        "known": count,
        "settings": [setting_document(each, with_synonyms) for each in settings],
    }


def setting_document(setting: ShownSetting, with_synonyms: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": setting.name,
        "value": setting.value,
        "source": setting.source if setting.value is not None or setting.is_set else None,
        "default": setting.default,
        "documentation": setting.documentation,
        "read_only": setting.is_read_only,
        "sensitive": setting.is_sensitive,
    }
    if with_synonyms:
        document["synonyms"] = synonym_documents(setting)
    return document


def settings_text(document: dict[str, Any], entity: Entity) -> str:
    """Return a table in which the documentation of each setting, and its synonyms, follow its row."""
    settings = document["settings"]
    name = printable(entity_text(entity))
    if not settings:
        if not document["known"]:
            return f"{name}: nothing is set"
        unset = plural(document["known"], "quota" if isinstance(entity, QuotaEntity) else "value")
        effect = "" if isinstance(entity, QuotaEntity) else " in effect"
        return f"{name}: nothing is set; --all shows {unset}{effect}"
    rows = [
        [
            each["name"],
            value_text(each),
            SOURCE_WORDS.get(each["source"], each["source"]) if each["source"] else "not set",
            shown_value(each["default"]),
        ]
        for each in settings
    ]
    heads = ["setting", "value", "source", "default"]
    head, *lines = format_settings(heads, rows).split("\n")
    shown = [f"{name}: {plural(len(settings), short_noun(entity))} of {document['known']}", head]
    for line, each in zip(lines, settings, strict=True):
        shown += [line, *detail_lines(each)]
    return "\n".join(shown)


def format_settings(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in which the first column, with the names to copy, is cut only if nothing else helps."""
    width = table_width()
    widths = [max(len(line[at]) for line in (heads, *rows)) for at in range(len(heads))]
    name_width, others = widths[0], widths[1:]
    if width is not None:
        shrink_columns(others, width - name_width - len(GAP))
    return format_table(heads, [[row[0], *map(cut_cell, row[1:], others)] for row in rows])


def detail_lines(setting: dict[str, Any]) -> list[str]:
    lines = []
    if setting["documentation"]:
        lines.append(f"  {setting['documentation']}")
    for each in setting.get("synonyms", ()):
        source = SOURCE_WORDS.get(each["source"], each["source"])
        value = "(hidden)" if setting["sensitive"] else shown_value(each["value"])
        lines.append(f"    {source}: {each['name']} = {value}")
    width = table_width()
    return lines if width is None else [cut_cell(line, width) for line in lines]


def value_text(setting: dict[str, Any]) -> str:
    return "(hidden)" if setting["sensitive"] else shown_value(setting["value"])


def shown_value(value: str | None) -> str:
    """Return the value; `-` for none, and `""` for an empty text."""
    if value is None:
        return "-"
    return value or '""'
