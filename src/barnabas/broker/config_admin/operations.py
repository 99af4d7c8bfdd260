"""Changes of settings in AlterConfigs and IncrementalAlterConfigs: request checks, and the resulting settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

from barnabas.config import BrokerConfig
from barnabas.config.setting import LIST, Setting
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation
from barnabas.wire.primitives import STRING_MAX

LIST_OPERATIONS = (ConfigOperation.APPEND, ConfigOperation.SUBTRACT)
KNOWN_OPERATIONS = frozenset(ConfigOperation)


class SettingChange(NamedTuple):
    """`value` is ignored by DELETE."""

    name: str
    operation: int
    value: str | None


class ResourceChange(NamedTuple):
    """The changes of one resource. `keeps_others` is false for AlterConfigs, which replaces all settings."""

    type: int
    name: str
    changes: tuple[SettingChange, ...]
    keeps_others: bool


def check_resources(
    requested: Sequence[ResourceChange], topics: Container[str]
) -> list[ApiError | None]:
    """Return the error of each resource that is found without its current settings, or None.

    `topics` are the existing topics.
    """
    counts = Counter((each.type, each.name) for each in requested)
    return [check_resource(each, counts[each.type, each.name], topics) for each in requested]


def check_resource(
    requested: ResourceChange, count: int, topics: Container[str]
) -> ApiError | None:
    if count > 1:
        return invalid_request(f"the resource is in the request {count} times")
    names = Counter(each.name for each in requested.changes)
    repeated = sorted(name for name, times in names.items() if times > 1)
    if repeated:
        return invalid_request(f"the request changes a setting twice: {', '.join(repeated)}")
    unknown = [each for each in requested.changes if each.operation not in KNOWN_OPERATIONS]
    if unknown:
        why = f"{unknown[0].name}: there is no operation {unknown[0].operation}"
        return invalid_request(why)
    empty = [
        each.name
        for each in requested.changes
        if each.value is None and each.operation != ConfigOperation.DELETE
    ]
    if empty:
        return invalid_request(f"a value is missing: {', '.join(empty)}")
    if requested.type == ResourceType.TOPIC and not requested.name:
        return invalid_request("the topic has no name; defaults of all topics are broker settings")
    is_known = requested.type in (ResourceType.TOPIC, ResourceType.BROKER) or (
        requested.type == ResourceType.BROKER_LOGGER and requested.keeps_others
    )
    if not is_known:
        return invalid_request(f"settings of resource type {requested.type} cannot be changed")
    if requested.type == ResourceType.TOPIC and requested.name not in topics:
        why = f"there is no topic '{requested.name}'"
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
    return None


def apply_operations(
    settings: Mapping[str, str],
    requested: ResourceChange,
    find_declared: Callable[[str], Setting | None],
) -> dict[str, str]:
    """Return the settings after a change that passed `check_resource`. They are not validated yet.

    APPEND adds the elements that the list does not have; without a setting it starts from the default. SUBTRACT
    removes elements. Raises INVALID_CONFIG if such a setting is not a list, or if the list gets too long to be read.
    """
    changed = dict(settings) if requested.keeps_others else {}
    for name, operation, value in requested.changes:
        if operation == ConfigOperation.DELETE:
            changed.pop(name, None)
            continue
        assert value is not None, "checked by check_resource"
        if operation in LIST_OPERATIONS:
            declared = find_declared(name)
            if declared is None:
                changed[name] = value  # rejected later, as an unknown setting
                continue
            if declared.kind is not LIST:
                why = f"{name}: is not a list; only lists support APPEND and SUBTRACT"
                raise ApiError(ErrorCode.INVALID_CONFIG, why)
            before = split_list(changed.get(name, declared.show(declared.default) or ""))
            if operation == ConfigOperation.APPEND:
                changed[name] = join_list(name, append(before, split_list(value)))
            else:
                changed[name] = ",".join(subtract(before, split_list(value)))
        else:
            changed[name] = value
    return changed


def split_list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")] if text.strip() else []


def join_list(name: str, elements: list[str]) -> str:
    """Return the text of a list. Raises INVALID_CONFIG if no response could contain it."""
    text = ",".join(elements)
    size = len(text.encode())
    if size > STRING_MAX:
        why = f"{name}: the list would have {size} bytes; at most {STRING_MAX} are allowed"
        raise ApiError(ErrorCode.INVALID_CONFIG, why)
    return text


def append(before: list[str], added: list[str]) -> list[str]:
    present = set(before)
    return before + [each for each in added if each not in present]


def subtract(before: list[str], removed: list[str]) -> list[str]:
    unwanted = set(removed)
    return [each for each in before if each not in unwanted]


def invalid_request(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, why)


def require_own_id(config: BrokerConfig, name: str) -> None:
    """Raise INVALID_REQUEST unless `name` is the id of this broker."""
    if not (name.isascii() and name.removeprefix("-").isdecimal()):
        raise invalid_request(f"a broker id is a number, not '{name}'")
    # One spelling only: a request could otherwise describe this broker as 1, 01, 001, and so on.
    if name != str(config.broker_id):
        why = f"this is broker {config.broker_id}; send the request to broker {name}"
        raise invalid_request(why)
