from __future__ import annotations

import pytest

from barnabas.cli.configs.reading import (
    default_value,
    first_sentence,
    quota_filters,
    quota_settings,
    quota_text,
    shown_setting,
)
from barnabas.client.config_admin import (
    DEFAULT_NAME,
    ConfigEntry,
    ConfigResource,
    QuotaEntity,
    QuotaFilter,
)
from barnabas.wire.messages.describe_client_quotas import QuotaMatch
from barnabas.wire.messages.describe_configs import (
    ConfigSource,
    DescribeConfigsSynonym,
    ResourceType,
)

Synonym = DescribeConfigsSynonym


def retention(*synonyms: DescribeConfigsSynonym) -> ConfigEntry:
    return ConfigEntry(
        name="retention.ms", value="5", source=ConfigSource.TOPIC_CONFIG, synonyms=synonyms
    )


OWN = Synonym("retention.ms", "5", ConfigSource.TOPIC_CONFIG)
HOURS = Synonym("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG)


def test_default_is_the_value_of_the_next_level() -> None:
    file = Synonym("log.retention.ms", "7", ConfigSource.STATIC_BROKER_CONFIG)
    assert default_value(retention(OWN, file, HOURS)) == "7"
    assert default_value(retention(OWN)) is None
    entry = ConfigEntry(name="flush.ms", value="9", source=ConfigSource.DEFAULT_CONFIG)
    assert default_value(entry) == "9"


def test_default_is_converted_to_the_unit_of_the_topic_setting() -> None:
    assert default_value(retention(OWN, HOURS)) == str(168 * 3_600_000)
    never = Synonym("log.retention.hours", "-1", ConfigSource.STATIC_BROKER_CONFIG)
    assert default_value(retention(OWN, never)) == "-1"


@pytest.mark.parametrize(
    ("resource", "source", "is_override"),
    [
        (ConfigResource(ResourceType.TOPIC, "a"), ConfigSource.TOPIC_CONFIG, True),
        (ConfigResource(ResourceType.TOPIC, "a"), ConfigSource.STATIC_BROKER_CONFIG, False),
        (ConfigResource(ResourceType.BROKER, "1"), ConfigSource.DYNAMIC_BROKER_CONFIG, True),
        (ConfigResource(ResourceType.BROKER, "1"), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, False),
        (ConfigResource(ResourceType.BROKER, ""), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, True),
    ],
)  # fmt: skip
def test_only_values_of_the_entity_itself_are_overrides(
    resource: ConfigResource, source: ConfigSource, is_override: bool
) -> None:
    entry = ConfigEntry(name="x", value="1", source=source)
    assert shown_setting(resource, entry).is_override is is_override


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, None),
        ("", None),
        ("Maximum size of a segment", "Maximum size of a segment"),
        ("Is <code>x</code> used.\nIf not, y.", "Is x used"),
        ("Version e.g. 3.9 of it. More.", "Version e.g. 3.9 of it"),
    ],
)
def test_documentation_is_cut_to_one_sentence(text: str | None, sentence: str | None) -> None:
    assert first_sentence(text) == sentence


def test_quota_filters_match_exactly_one_entity() -> None:
    assert quota_filters(QuotaEntity(user="alice", client_id=DEFAULT_NAME)) == [
        QuotaFilter("user", QuotaMatch.EXACT, "alice"),
        QuotaFilter("client-id", QuotaMatch.DEFAULT),
    ]


def test_quotas_that_are_not_set_are_known() -> None:
    found = {
        each.name: each
        for each in quota_settings(QuotaEntity(user="a"), {"producer_byte_rate": 5.0})
    }
    assert set(found) == {
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
    }
    assert (found["producer_byte_rate"].value, found["producer_byte_rate"].is_set) == ("5", True)
    assert (found["consumer_byte_rate"].value, found["consumer_byte_rate"].is_set) == (None, False)


def test_quotas_are_shown_as_whole_numbers_where_possible() -> None:
    assert (quota_text(1048576.0), quota_text(12.5), quota_text(None)) == ("1048576", "12.5", None)
