from __future__ import annotations

import pytest

from barnabas.config import TopicConfig
from barnabas.config.load import load_broker_config
from barnabas.config.setting import LONG_MAX
from barnabas.errors import ConfigError


def defaults(**properties: str) -> TopicConfig:
    config, _ = load_broker_config({k.replace("_", "."): v for k, v in properties.items()})
    return config.topic_defaults()


def test_overrides_do_not_change_the_base() -> None:
    base = TopicConfig()
    changed = base.with_overrides({"retention.ms": "1000", "cleanup.policy": "compact, delete"})
    assert changed.retention_ms == 1000
    assert changed.cleanup_policy == ("compact", "delete")
    assert changed.compacts
    assert changed.deletes
    assert base == TopicConfig()


def test_empty_overrides_change_nothing() -> None:
    assert TopicConfig().with_overrides({}) == TopicConfig()


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        (
            {"retention.m": "1"},
            "retention.m: no such topic setting; did you mean retention.ms?",
        ),
        ({"log.dirs": "/x"}, "log.dirs: no such topic setting"),
        (
            {"cleanup.policy": "delete,shred"},
            "cleanup.policy: 'delete,shred' is not allowed, it must be a list of compact, delete",
        ),
        ({"segment.bytes": "13"}, "segment.bytes: '13' is not allowed, it must be at least 14"),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "min.compaction.lag.ms: 2 is more than max.compaction.lag.ms, which is 1",
        ),
        (
            {"remote.storage.enable": "true"},
            "remote.storage.enable: true is not allowed: remote storage is not supported",
        ),
        (
            {"remote.log.copy.disable": "true"},
            "remote.log.copy.disable: true is not allowed with cluster metadata in ZooKeeper",
        ),
    ],
)
def test_invalid_override_is_rejected_in_one_line(overrides: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TopicConfig().with_overrides(overrides)
    assert str(refused.value) == error


def test_retention_uses_finest_unit() -> None:
    assert defaults(log_retention_hours="1").retention_ms == 3_600_000
    assert defaults(log_retention_hours="1", log_retention_minutes="1").retention_ms == 60_000
    assert defaults(log_retention_minutes="1", log_retention_ms="7").retention_ms == 7
    assert defaults(log_retention_hours="-5").retention_ms == -1


def test_roll_time_uses_finest_unit() -> None:
    assert defaults(log_roll_hours="2").segment_ms == 7_200_000
    assert defaults(log_roll_hours="2", log_roll_ms="5").segment_ms == 5
    assert defaults(log_roll_jitter_hours="1").segment_jitter_ms == 3_600_000


def test_flush_interval_overrides_scheduler_interval() -> None:
    assert defaults(log_flush_scheduler_interval_ms="9").flush_ms == 9
    assert defaults(log_flush_scheduler_interval_ms="9", log_flush_interval_ms="3").flush_ms == 3


def test_broker_settings_become_topic_defaults() -> None:
    assert defaults(message_max_bytes="77").max_message_bytes == 77
    assert defaults(log_cleaner_min_cleanable_ratio="0.25").min_cleanable_dirty_ratio == 0.25
    assert defaults(log_segment_delete_delay_ms="1").file_delete_delay_ms == 1
    assert defaults(log_cleanup_policy="compact").cleanup_policy == ("compact",)


def test_deprecated_timestamp_limit_sets_both_new_ones() -> None:
    difference = {"message.timestamp.difference.max.ms": "5"}
    both = TopicConfig().with_overrides(difference)
    assert (both.message_timestamp_before_max_ms, both.message_timestamp_after_max_ms) == (5, 5)

    one = TopicConfig().with_overrides(difference | {"message.timestamp.after.max.ms": "9"})
    assert (one.message_timestamp_before_max_ms, one.message_timestamp_after_max_ms) == (5, 9)

    assert TopicConfig().message_timestamp_before_max_ms == LONG_MAX
    by_broker = defaults(log_message_timestamp_difference_max_ms="6")
    assert by_broker.message_timestamp_before_max_ms == 6
