"""Settings of an entity, as one type for configs and quotas: value, source, default and documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from barnabas.cli.configs.entity import Entity
from barnabas.client.config_admin import (
    DEFAULT_NAME,
    QUOTA_TYPES,
    ConfigAdmin,
    ConfigEntry,
    ConfigResource,
    QuotaEntity,
    QuotaFilter,
)
from barnabas.config.broker import BROKER_SYNONYMS
from barnabas.config.client_quotas import CLIENT_QUOTAS, IP_QUOTAS
from barnabas.config.setting import java_double
from barnabas.errors import ApiError
from barnabas.wire.messages.describe_client_quotas import QuotaMatch
from barnabas.wire.messages.describe_configs import (
    ConfigSource,
    DescribeConfigsSynonym,
    ResourceType,
)

SOURCE_NAMES = {source.value: source.name for source in ConfigSource} | {
    ConfigSource.TOPIC_CONFIG.value: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.CLIENT_METRICS_CONFIG.value: "DYNAMIC_CLIENT_METRICS_CONFIG",
}
"""Names that Kafka's commands print. Two of them differ from the protocol's."""
QUOTA_SOURCE = "QUOTA"


class ShownSetting(Struct, frozen=True, kw_only=True):
    """One setting. `value` is None if it has none or is sensitive; `default` applies if the value is reset."""

    name: str
    value: str | None
    source: str
    default: str | None
    documentation: str | None
    is_set: bool
    """The value is not the built-in default."""
    is_override: bool
    """The value was set for this entity, so it can be reset."""
    is_sensitive: bool = False
    is_read_only: bool = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()


def read_settings_of(
    admin: ConfigAdmin, entity: Entity, names: Sequence[str] | None = None
) -> list[ShownSetting]:
    """Return all settings of an entity, or only `names`, in alphabetical order. Raises ApiError.

    A quota that is not set has the value None.
    """
    if isinstance(entity, QuotaEntity):
        found = admin.describe_client_quotas(quota_filters(entity), strict=True)
        settings = quota_settings(entity, found.get(entity, {}))
        return [each for each in settings if names is None or each.name in names]
    result = admin.describe_configs(
        [entity], names=names, include_synonyms=True, include_documentation=True
    )[entity]
    if isinstance(result, ApiError):
        raise result
    shown = [shown_setting(entity, entry) for entry in sorted(result, key=lambda each: each.name)]
    return with_broker_defaults(admin, shown) if entity.type is ResourceType.TOPIC else shown


# ---- configs -----------------------------------------------------------------------------------------------------


def shown_setting(entity: ConfigResource, entry: ConfigEntry) -> ShownSetting:
    return ShownSetting(
        name=entry.name,
        value=entry.value,
        source=SOURCE_NAMES.get(entry.source, "UNKNOWN"),
        default=default_value(entry),
        documentation=first_sentence(entry.documentation),
        is_set=not entry.is_default,
        is_override=entry.source in override_sources(entity),
        is_sensitive=entry.is_sensitive,
        is_read_only=entry.is_read_only,
        synonyms=entry.synonyms,
    )


def override_sources(entity: ConfigResource) -> tuple[ConfigSource, ...]:
    """Return the source of values that were set for this entity itself."""
    match entity.type:
        case ResourceType.TOPIC:
            return (ConfigSource.TOPIC_CONFIG,)
        case ResourceType.BROKER if entity.name:
            return (ConfigSource.DYNAMIC_BROKER_CONFIG,)
        case ResourceType.BROKER:
            return (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,)
        case ResourceType.BROKER_LOGGER:
            return (ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,)
        case _:
            return ()


def default_value(entry: ConfigEntry) -> str | None:
    """Return the value that applies without the one in effect: the first synonym of a lower level.

    The default of a topic setting is a broker setting, which may have another unit: log.retention.hours=168.
    """
    if entry.is_default:
        return entry.value
    for synonym in entry.synonyms:
        if synonym.source > entry.source:
            return in_unit_of(entry.name, synonym)
    return None


def in_unit_of(topic_setting: str, synonym: DescribeConfigsSynonym) -> str | None:
    """Convert the value of a broker setting to the unit of the topic setting that falls back to it."""
    for declared in BROKER_SYNONYMS.get(topic_setting, ()):
        is_number = synonym.value is not None and re.fullmatch(r"-?\d+", synonym.value)
        if declared.name == synonym.name and declared.factor != 1 and is_number:
            number = int(synonym.value or 0)
            return str(number * declared.factor if number > 0 else number)
    return synonym.value


def with_broker_defaults(admin: ConfigAdmin, settings: list[ShownSetting]) -> list[ShownSetting]:
    """Add the defaults of topic settings whose synonyms do not contain them, from the settings of a broker.

    Kafka leaves out synonyms in other units: retention.ms has no synonym log.retention.hours.
    """
    missing = [each for each in settings if each.default is None and each.name in BROKER_SYNONYMS]
    brokers = admin.cluster.view.brokers or admin.cluster.refresh([]).brokers
    if not missing or not brokers:
        return settings
    names = [declared.name for each in missing for declared in BROKER_SYNONYMS[each.name]]
    broker = ConfigResource(ResourceType.BROKER, str(min(brokers)))
    found = admin.describe_configs([broker], names=names)[broker]
    if isinstance(found, ApiError):  # the defaults stay unknown
        return settings
    values = {entry.name: entry.value for entry in found}
    return [
        replace(each, default=broker_default(each.name, values)) if each in missing else each
        for each in settings
    ]


def broker_default(topic_setting: str, values: Mapping[str, str | None]) -> str | None:
    """Return the default of a topic setting: the first of its broker settings that has a value."""
    for declared in BROKER_SYNONYMS[topic_setting]:
        value = values.get(declared.name)
        if value is not None:
            synonym = DescribeConfigsSynonym(declared.name, value, ConfigSource.DEFAULT_CONFIG)
            return in_unit_of(topic_setting, synonym)
    return None


def first_sentence(text: str | None) -> str | None:
    """Return one line of documentation. Kafka's brokers send paragraphs with HTML tags.

    >>> first_sentence("The <b>maximum</b> size. If exceeded, the log\\nrolls.")
    'The maximum size'
    """
    if not text:
        return None
    plain = " ".join(re.sub(r"</?[a-zA-Z][^>]*>", "", text).split())
    return re.split(r"(?<=[^.][^.])\.(?: |$)", plain, maxsplit=1)[0] or None


# ---- quotas ------------------------------------------------------------------------------------------------------


def quota_filters(entity: QuotaEntity) -> list[QuotaFilter]:
    """Return the filters that match exactly this entity."""
    return [
        QuotaFilter(QUOTA_TYPES[field], QuotaMatch.DEFAULT)
        if name == DEFAULT_NAME
        else QuotaFilter(QUOTA_TYPES[field], QuotaMatch.EXACT, name)
        for field, name in entity._asdict().items()
        if name is not None
    ]


def quota_settings(entity: QuotaEntity, values: Mapping[str, float]) -> list[ShownSetting]:
    documented = IP_QUOTAS if entity.ip is not None else CLIENT_QUOTAS
    return [
        ShownSetting(
            name=name,
            value=quota_text(values.get(name)),
            source=QUOTA_SOURCE,
            default=None,
            documentation=documented[name].doc if name in documented else None,
            is_set=name in values,
            is_override=name in values,
        )
        for name in sorted({*documented, *values})
    ]


def quota_text(value: float | None) -> str | None:
    """Return 1048576 for 1048576.0, and 12.5 for 12.5."""
    if value is None:
        return None
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else java_double(value)


def synonym_documents(setting: ShownSetting) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "value": each.value,
            "source": SOURCE_NAMES.get(each.source, "UNKNOWN"),
        }
        for each in setting.synonyms
    ]
