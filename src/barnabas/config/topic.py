"""Settings of one topic, and their fallback if they are not set.

    override of the topic  ─►  corresponding broker setting  ─►  default

`BrokerConfig.topic_defaults()` returns the last two as a TopicConfig. `with_overrides` applies the
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
    segment_bytes: int = setting("segment.bytes", INT, 1_073_741_824, at_least(14),
        "Maximum size of a segment")
    segment_ms: int = setting("segment.ms", LONG, 604_800_000, at_least(1),
        "Maximum age of the active segment")
    segment_jitter_ms: int = setting("segment.jitter.ms", LONG, 0, at_least(0),
        "Maximum random time subtracted from segment.ms, so that segments do not all roll at once")
    segment_index_bytes: int = setting("segment.index.bytes", INT, 10_485_760, at_least(4),
        "Maximum size of an index file")
    index_interval_bytes: int = setting("index.interval.bytes", INT, 4096, at_least(0),
        "Bytes of log between two index entries")
    preallocate: bool = setting("preallocate", BOOLEAN, False, ANY,
        "Ignored: segment files are not preallocated")

    # fsync
    flush_messages: int = setting("flush.messages", LONG, LONG_MAX, at_least(1),
        "Number of records after which the log is fsynced")
    flush_ms: int = setting("flush.ms", LONG, LONG_MAX, at_least(0),
        "Time after which the log is fsynced")

    # Retention and compaction
    cleanup_policy: tuple[str, ...] = setting("cleanup.policy", LIST, ("delete",), CLEANUP_POLICY,
        "Delete old segments, compact by key, or both")
    retention_ms: int = setting("retention.ms", LONG, 604_800_000, at_least(-1),
        "Segments older than this are deleted; -1: never")
    retention_bytes: int = setting("retention.bytes", LONG, -1, ANY,
        "The oldest segments beyond this log size are deleted; -1: no limit")
    file_delete_delay_ms: int = setting("file.delete.delay.ms", LONG, 60_000, at_least(0),
        "Delay before a file marked as deleted is removed from disk")
    delete_retention_ms: int = setting("delete.retention.ms", LONG, 86_400_000, at_least(0),
        "How long compaction keeps a tombstone, for consumers that read from the beginning")
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1),
        "Minimum ratio of uncompacted to total bytes before the log is compacted")
    min_compaction_lag_ms: int = setting("min.compaction.lag.ms", LONG, 0, at_least(0),
        "Minimum time a record stays uncompacted")
    max_compaction_lag_ms: int = setting("max.compaction.lag.ms", LONG, LONG_MAX, at_least(1),
        "Maximum time a record stays uncompacted, whatever the dirty ratio")

    # Validation and compression
    max_message_bytes: int = setting("max.message.bytes", INT, 1_048_588, at_least(0),
        "Maximum size of a record batch")
    compression_type: str = setting("compression.type", STRING, "producer", COMPRESSION_TYPE,
        "Codec of the log; producer: keep the producer's codec")
    compression_gzip_level: int = setting("compression.gzip.level", INT, -1, GZIP_LEVEL,
        "Compression level if compression.type is gzip")
    compression_lz4_level: int = setting("compression.lz4.level", INT, 9, LZ4_LEVEL,
        "Compression level if compression.type is lz4")
    compression_zstd_level: int = setting("compression.zstd.level", INT, 3, ZSTD_LEVEL,
        "Compression level if compression.type is zstd")
    message_timestamp_type: str = setting(
        "message.timestamp.type", STRING, "CreateTime", TIMESTAMP_TYPE,
        "Timestamp of a record: set by the producer, or by the leader when it appends")
    message_timestamp_difference_max_ms: int = setting(
        "message.timestamp.difference.max.ms", LONG, LONG_MAX, at_least(0),
        "Deprecated: default of before.max.ms and after.max.ms")
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0),
        "Maximum age of a record's timestamp, by the broker's clock")
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", LONG, LONG_MAX, at_least(0),
        "Maximum time a record's timestamp may be ahead of the broker's clock")
    message_format_version: str = setting("message.format.version", STRING, "3.0-IV1", RELEASE,
        "Deprecated and ignored: batches are always written in format 2")
    message_downconversion_enable: bool = setting(
        "message.downconversion.enable", BOOLEAN, True, ANY,
        "Ignored: batches are never converted to older formats")

    # Replication
    min_insync_replicas: int = setting("min.insync.replicas", INT, 1, at_least(1),
        "Minimum number of in-sync replicas for a write with acks=all")
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable", BOOLEAN, False, ANY,
        "Allow a replica that is not in sync to become leader; this loses records")
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS,
        "Followers whose fetches the leader throttles, as partition:broker; *: all")
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS,
        "Followers that throttle their own fetches, as partition:broker; *: all")

    # Remote storage
    remote_storage_enable: bool = setting("remote.storage.enable", BOOLEAN, False, ANY,
        "Copy closed segments to remote storage; true is rejected: there is none")
    local_retention_ms: int = setting("local.retention.ms", LONG, -2, at_least(-2),
        "Age at which a copied segment leaves the local disk; -2: the same as retention.ms")
    local_retention_bytes: int = setting("local.retention.bytes", LONG, -2, at_least(-2),
        "Size beyond which copied segments leave the local disk; -2: the same as retention.bytes")
    remote_log_copy_disable: bool = setting("remote.log.copy.disable", BOOLEAN, False, ANY,
        "Copy no more segments to remote storage; true is rejected")
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable", BOOLEAN, False, ANY,
        "Delete remote segments when remote storage is disabled; true is rejected")
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
            declared = find_topic_setting(name)
            values[declared.field] = declared.parse(text)
        changed = replace(self, **values)
        changed.check()
        return changed.with_timestamp_limits()

    def with_timestamp_limits(self) -> Self:
        """Replace default timestamp limits by the deprecated setting for both."""
        both = self.message_timestamp_difference_max_ms
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        return replace(
            self,
            message_timestamp_before_max_ms=both if before == LONG_MAX else before,
            message_timestamp_after_max_ms=both if after == LONG_MAX else after,
        )

    def check(self) -> None:
        """Validate combinations of settings. Raises ConfigError."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                "min.compaction.lag.ms",
                f"{self.min_compaction_lag_ms} is more than max.compaction.lag.ms,"
                f" which is {self.max_compaction_lag_ms}",
            )
        if self.remote_storage_enable:
            raise ConfigError(
                "remote.storage.enable", "true is not allowed: there is no remote storage"
            )
        for name, is_set in (
            ("remote.log.copy.disable", self.remote_log_copy_disable),
            ("remote.log.delete.on.disable", self.remote_log_delete_on_disable),
        ):
            if is_set:
                raise ConfigError(name, "true is not allowed with cluster metadata in ZooKeeper")


TOPIC_SETTINGS: dict[str, Setting] = collect_settings(TopicConfig)


def find_topic_setting(name: str) -> Setting:
    if name not in TOPIC_SETTINGS:
        raise unknown_setting_error(name, list(TOPIC_SETTINGS), "topic setting")
    return TOPIC_SETTINGS[name]


HOURS = 3_600_000
MINUTES = 60_000

# Broker settings that a topic setting falls back to, with the factor that converts the unit. The
# first one that is set applies. The five topic settings that are not listed have no fallback.
BROKER_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOURS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOURS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "preallocate": (("log.preallocate", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", MINUTES),
        ("log.retention.hours", HOURS),
    ),
    "retention.bytes": (("log.retention.bytes", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.difference.max.ms": (("log.message.timestamp.difference.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.format.version": (("log.message.format.version", 1),),
    "message.downconversion.enable": (("log.message.downconversion.enable", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
}
