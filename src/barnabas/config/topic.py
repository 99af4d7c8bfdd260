"""Settings of one topic, and their fallbacks if they are not set.

    override of the topic  ─►  corresponding broker setting  ─►  default

`BrokerConfig.topic_defaults()` returns the last two levels as a TopicConfig. `with_overrides` applies the
overrides of a topic. A TopicConfig is immutable: a changed override creates a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from barnabas.config.setting import (
    ANY,
    BOOLEAN,
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    DOUBLE,
    GZIP_LEVEL,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LZ4_LEVEL,
    RELEASE,
    STRING,
    THROTTLED_REPLICAS,
    TIMESTAMP_TYPE,
    ZSTD_LEVEL,
    Setting,
    at_least,
    between,
    collect_settings,
    setting,
    unknown_setting_error,
)
from barnabas.errors import ConfigError


class TopicConfig(Struct, frozen=True, kw_only=True):
    """All topic settings of Kafka 3.9, with the effective values of one topic."""

    # A table: one line declares a setting, the next line describes it.
    # fmt: off
    # Segments
    segment_bytes: int = setting(INT, 1_073_741_824, at_least(14),
        "Maximum size of a segment")
    segment_ms: int = setting(LONG, 604_800_000, at_least(1),
        "Maximum age of the active segment")
    segment_jitter_ms: int = setting(LONG, 0, at_least(0),
        "Maximum random time subtracted from segment.ms, so that segments do not all roll at once")
    segment_index_bytes: int = setting(INT, 10_485_760, at_least(4),
        "Maximum size of an index file")
    index_interval_bytes: int = setting(INT, 4096, at_least(0),
        "Bytes of log between two index entries")
    preallocate: bool = setting(BOOLEAN, False, ANY,
        "Ignored: segment files are not preallocated")

    # fsync
    flush_messages: int = setting(LONG, LONG_MAX, at_least(1),
        "Number of records after which the log is fsynced")
    flush_ms: int = setting(LONG, LONG_MAX, at_least(0),
        "Maximum time before the log is fsynced")

    # Retention and compaction
    cleanup_policy: tuple[str, ...] = setting(LIST, ("delete",), CLEANUP_POLICY,
        "Delete old segments, compact by key, or both")
    retention_ms: int = setting(LONG, 604_800_000, at_least(-1),
        "Segments older than this are deleted; -1: never")
    retention_bytes: int = setting(LONG, -1, ANY,
        "Maximum size of a partition's log; the oldest segments are deleted; -1: no limit")
    file_delete_delay_ms: int = setting(LONG, 60_000, at_least(0),
        "Delay before a file marked as deleted is removed from disk")
    delete_retention_ms: int = setting(LONG, 86_400_000, at_least(0),
        "How long compaction keeps a tombstone, for consumers that read from the beginning")
    min_cleanable_dirty_ratio: float = setting(DOUBLE, 0.5, between(0, 1),
        "Minimum ratio of uncompacted to total bytes at which the log is compacted")
    min_compaction_lag_ms: int = setting(LONG, 0, at_least(0),
        "Minimum time a record stays uncompacted")
    max_compaction_lag_ms: int = setting(LONG, LONG_MAX, at_least(1),
        "Maximum time a record stays uncompacted, whatever the dirty ratio")

    # Validation and compression
    max_message_bytes: int = setting(INT, 1_048_588, at_least(0),
        "Maximum size of a record batch")
    compression_type: str = setting(STRING, "producer", COMPRESSION_TYPE,
        "Codec of the log; producer: keep the producer's codec")
    compression_gzip_level: int = setting(INT, -1, GZIP_LEVEL,
        "Compression level if compression.type is gzip")
    compression_lz4_level: int = setting(INT, 9, LZ4_LEVEL,
        "Compression level if compression.type is lz4")
    compression_zstd_level: int = setting(INT, 3, ZSTD_LEVEL,
        "Compression level if compression.type is zstd")
    message_timestamp_type: str = setting(STRING, "CreateTime", TIMESTAMP_TYPE,
        "Timestamp of a record: set by the producer, or by the leader when it appends")
    message_timestamp_difference_max_ms: int = setting(LONG, LONG_MAX, at_least(0),
        "Deprecated: default of message.timestamp.before.max.ms and message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = setting(LONG, LONG_MAX, at_least(0),
        "Maximum age of a record's timestamp, by the broker's clock")
    message_timestamp_after_max_ms: int = setting(LONG, LONG_MAX, at_least(0),
        "Maximum time a record's timestamp may be ahead of the broker's clock")
    message_format_version: str = setting(STRING, "3.0-IV1", RELEASE,
        "Deprecated and ignored: batches are always written in format 2")
    message_downconversion_enable: bool = setting(BOOLEAN, True, ANY,
        "Ignored: batches are never converted to older formats")

    # Replication
    min_insync_replicas: int = setting(INT, 1, at_least(1),
        "Minimum number of in-sync replicas for a write with acks=all")
    unclean_leader_election_enable: bool = setting(BOOLEAN, False, ANY,
        "Allow a replica that is not in sync to become leader; this loses records")
    leader_replication_throttled_replicas: tuple[str, ...] = setting(LIST, (), THROTTLED_REPLICAS,
        "Followers whose fetches the leader throttles, as partition:broker; *: all")
    follower_replication_throttled_replicas: tuple[str, ...] = setting(LIST, (), THROTTLED_REPLICAS,
        "Followers that throttle their own fetches, as partition:broker; *: all")

    # Remote storage
    remote_storage_enable: bool = setting(BOOLEAN, False, ANY,
        "Copy closed segments to remote storage; not supported: true is rejected")
    local_retention_ms: int = setting(LONG, -2, at_least(-2),
        "Ignored: age at which copied segments are deleted locally; -2: retention.ms")
    local_retention_bytes: int = setting(LONG, -2, at_least(-2),
        "Ignored: size beyond which copied segments are deleted locally; -2: retention.bytes")
    remote_log_copy_disable: bool = setting(BOOLEAN, False, ANY,
        "Copy no more segments to remote storage; not supported: true is rejected")
    remote_log_delete_on_disable: bool = setting(BOOLEAN, False, ANY,
        "Delete remote segments when remote storage is disabled; not supported: true is rejected")
    # fmt: on

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    def with_overrides(self, overrides: Mapping[str, str]) -> Self:
        """Apply overrides. Returns a new TopicConfig; raises ConfigError if an override is invalid.

        TopicConfig().with_overrides({"retention.ms": "1000"}).retention_ms == 1000
        """
        values: dict[str, Any] = {}
        for name, text in overrides.items():
            if name not in TOPIC_SETTINGS:
                raise unknown_setting_error(name, list(TOPIC_SETTINGS), "topic setting")
            declared = TOPIC_SETTINGS[name]
            values[declared.field] = declared.parse(text)
        changed = replace(self, **values)
        changed.check()
        return changed.with_timestamp_limits()

    def with_timestamp_limits(self) -> Self:
        """Apply the deprecated message.timestamp.difference.max.ms to the limits that have their default value."""
        limit_ms = self.message_timestamp_difference_max_ms
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        return replace(
            self,
            message_timestamp_before_max_ms=limit_ms if before == LONG_MAX else before,
            message_timestamp_after_max_ms=limit_ms if after == LONG_MAX else after,
        )

    def check(self) -> None:
        """Validate combinations of settings. Raises ConfigError."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            why = f"{self.min_compaction_lag_ms} is more than max.compaction.lag.ms"
            raise ConfigError(
                "min.compaction.lag.ms", f"{why}, which is {self.max_compaction_lag_ms}"
            )
        if self.remote_storage_enable:
            why = "true is not allowed: remote storage is not supported"
            raise ConfigError("remote.storage.enable", why)
        for name, is_set in (
            ("remote.log.copy.disable", self.remote_log_copy_disable),
            ("remote.log.delete.on.disable", self.remote_log_delete_on_disable),
        ):
            if is_set:
                raise ConfigError(name, "true is not allowed with cluster metadata in ZooKeeper")


TOPIC_SETTINGS: dict[str, Setting] = collect_settings(TopicConfig)
