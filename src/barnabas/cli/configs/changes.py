"""Changes of settings, for `configs alter` and `configs reset`: parse, predict, send, show.

The values after a change are predicted from those before it, also without --dry-run: other brokers, and the broker
itself, apply a change a moment after they accept it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from barnabas.cli.cluster_command import servers_hint
from barnabas.cli.configs.describe import format_settings, shown_value
from barnabas.cli.configs.entity import (
    Entity,
    entity_arguments,
    entity_document,
    entity_text,
    require_entity,
)
from barnabas.cli.configs.names import (
    find_declaration,
    is_read_only,
    known_names,
    noun,
    reject_typos,
    short_noun,
)
from barnabas.cli.configs.reading import ShownSetting, quota_text, read_settings_of
from barnabas.cli.options import is_encodable
from barnabas.cli.terminal.failure import ErrorWithHint, similar_names
from barnabas.cli.terminal.output import plural
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, QuotaEntity
from barnabas.config.setting import read_double, read_list
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.printable import printable
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation

INVALID_CHANGE = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
HIDDEN = "(hidden)"


def change_settings_of(
    cluster: Cluster, entity: Entity, changes: Sequence[ConfigChange], *, dry_run: bool
) -> dict[str, Any]:
    """Send the changes, or only validate them, and return the document to show. Raises ApiError."""
    check_changes(entity, changes)
    names = [each.name for each in changes]
    require_entity(cluster, entity)
    admin = ConfigAdmin(cluster)
    before = {each.name: each for each in read_settings_of(admin, entity, names)}
    error = send_changes(admin, entity, changes, dry_run=dry_run)
    if error is not None:
        raise explain_rejected_change(error, entity, names, before)
    return changes_document(entity, changes, before, dry_run=dry_run)


def check_changes(entity: Entity, changes: Sequence[ConfigChange]) -> None:
    """Raise ConfigError for changes that no broker accepts, before any request."""
    for each in changes:
        if not is_encodable(each.name) or not is_encodable(each.value or ""):
            raise ConfigError(each.name, "the name or the value is not valid UTF-8")
        if isinstance(entity, QuotaEntity):
            parse_quota(each)
    reject_typos(entity, [each.name for each in changes])


def send_changes(
    admin: ConfigAdmin, entity: Entity, changes: Sequence[ConfigChange], *, dry_run: bool
) -> ApiError | None:
    if isinstance(entity, QuotaEntity):
        quotas = {each.name: parse_quota(each) for each in changes}
        return admin.alter_client_quotas({entity: quotas}, validate_only=dry_run)[entity]
    return admin.incremental_alter_configs({entity: changes}, validate_only=dry_run)[entity]


def parse_quota(change: ConfigChange) -> float | None:
    """Return the number of a quota; None to remove it. Raises ConfigError."""
    if change.value is None:
        return None
    try:
        return read_double(change.value.strip())
    except ValueError:
        raise ConfigError(
            change.name, f"{change.value!r} is not a number, as in {change.name}=1048576"
        ) from None


def explain_rejected_change(
    error: ApiError, entity: Entity, names: Sequence[str], described: Collection[str]
) -> ApiError:
    """Return the error, with a hint for read-only settings and unknown names. The broker described the others."""
    read_only = [name for name in names if is_read_only(entity, name)]
    if read_only and error.code in INVALID_CHANGE and "server.properties" not in error.message:
        verb = "is" if len(read_only) == 1 else "are"
        hint = f"{', '.join(read_only)} {verb} read from server.properties; change the file and restart the broker"
        return ErrorWithHint(error, error.message, hint)
    known = known_names(entity)
    unknown = [
        name
        for name in names
        if name not in described and name not in known and find_declaration(entity, name) is None
    ]
    if error.code is not ErrorCode.INVALID_CONFIG or not unknown:
        return error
    near = [each for name in unknown for each in similar_names(name, known)]
    hint = f"`barnabas configs describe {entity_arguments(entity)}{servers_hint()} --all` lists every {noun(entity)}"
    if near:
        hint = f"did you mean {' or '.join(dict.fromkeys(near))}? {hint}"
    return ErrorWithHint(error, error.message, hint)


# ---- prediction --------------------------------------------------------------------------------------------------


def predict_value(entity: Entity, change: ConfigChange, before: ShownSetting | None) -> str | None:
    """Return the value after a change. `before` is None if the broker did not describe the setting."""
    match change.operation:
        case ConfigOperation.SET if isinstance(entity, QuotaEntity):
            return quota_text(parse_quota(change))
        case ConfigOperation.SET:
            return change.value
        case ConfigOperation.DELETE if before is not None:
            return before.default if before.is_override else before.value
        case ConfigOperation.DELETE:
            return None
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            return predict_list(entity, change, before)


def predict_list(entity: Entity, change: ConfigChange, before: ShownSetting | None) -> str:
    declared = find_declaration(entity, change.name)
    current = before.value if before is not None else None
    if declared is not None and (before is None or not before.is_override):
        # Kafka appends to the built-in default, even if the broker has another one.
        current = declared.show(declared.default)
    present = read_list(current or "")
    named = read_list(change.value or "")
    if change.operation is ConfigOperation.SUBTRACT:
        return ",".join(each for each in present if each not in named)
    return ",".join([*present, *(each for each in named if each not in present)])


# ---- output ------------------------------------------------------------------------------------------------------


def changes_document(
    entity: Entity,
    changes: Sequence[ConfigChange],
    before: Mapping[str, ShownSetting],
    *,
    dry_run: bool,
) -> dict[str, Any]:
    return {
        "entity": entity_document(entity),
        "altered": not dry_run,
        "dry_run": dry_run,
        "changes": [change_document(entity, each, before.get(each.name)) for each in changes],
    }


def change_document(
    entity: Entity, change: ConfigChange, before: ShownSetting | None
) -> dict[str, Any]:
    is_sensitive = before is not None and before.is_sensitive
    operation = (
        "reset" if change.operation is ConfigOperation.DELETE else change.operation.name.lower()
    )
    return {
        "name": change.name,
        "operation": operation,
        "before": None if before is None else before.value,
        "after": None if is_sensitive else predict_value(entity, change, before),
        "was_set": before is not None and before.is_override,
        "sensitive": is_sensitive,
    }


def changes_text(document: dict[str, Any], entity: Entity) -> str:
    """Return `altered topic orders: 2 settings`, and a table with the values before and after."""
    changes = document["changes"]
    is_reset = all(each["operation"] == "reset" for each in changes)
    verb = "reset" if is_reset else "altered"
    if document["dry_run"]:
        verb = f"would {'reset' if is_reset else 'alter'}"
    rows = [
        [
            each["name"],
            HIDDEN if each["sensitive"] else shown_value(each["before"]),
            HIDDEN if each["sensitive"] else shown_value(each["after"]),
            change_remark(each, is_quota=isinstance(entity, QuotaEntity)),
        ]
        for each in changes
    ]
    return "\n".join(
        [
            f"{verb} {printable(entity_text(entity))}: {plural(len(changes), short_noun(entity))}",
            format_settings(["setting", "before", "after", ""], rows),
        ]
    )


def change_remark(change: Mapping[str, Any], *, is_quota: bool) -> str:
    if change["operation"] == "reset":
        if not change["was_set"]:
            return "was not set"
        return "removed" if is_quota else "the default"
    if change["sensitive"] or change["before"] != change["after"]:
        return ""
    return "unchanged" if change["was_set"] else "now set explicitly"
