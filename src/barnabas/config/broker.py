"""Settings of one broker, read from server.properties.

BrokerConfig declares the settings that Barnabas uses, and some that it ignores: their description says so. Kafka's
other settings are in without_effect.py. An unknown name is an error, because it is usually a typo. Settings that Kafka
does not have start with `barnabas.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from msgspec import Struct

from barnabas.config.listeners import parse_protocols
from barnabas.config.security import find_value
from barnabas.config.setting import (
    ANY,
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    PER_BROKER,
    READ_ONLY,
    SECURITY_PROTOCOL,
    SHORT,
    STRING,
    Setting,
    Update,
    Value,
    at_least,
    collect_settings,
    each_of,
    one_of,
    setting,
)
from barnabas.config.topic import TOPIC_SETTINGS, TopicConfig
from barnabas.model import Endpoint, SecurityProtocol

DEFAULT_PROTOCOLS = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
DEFAULT_LISTENERS = (Endpoint(listener="PLAINTEXT", host="", port=9092),)
HOURS = 3_600_000
MINUTES = 60_000


def topic_default(name: str, update: Update = CLUSTER_WIDE) -> Any:
    """Declare the broker setting that is the default of topic setting `name`. Copies type, check and description."""
    topic = TOPIC_SETTINGS[name]
    return setting(topic.kind, topic.default, topic.check, topic.doc, update, default_of=name)


class BrokerConfig(Struct, frozen=True, kw_only=True):
    """Settings of one broker. A field is named like its setting, with `_` for `.`."""

    # A table: one line declares a setting, the next line describes it. Settings with the same `default_of` must be
    # adjacent (BROKER_SYNONYMS groups them). The first one that is set applies.
    # fmt: off
    # Identity
    broker_id: int = setting(INT, -1, ANY,
        "Id of the broker, unique in the cluster; -1: the id in meta.properties, or a generated one")
    node_id: int = setting(INT, -1, ANY,
        "Another name for broker.id")
    broker_id_generation_enable: bool = setting(BOOLEAN, True, ANY,
        "If true, a broker without broker.id gets an id above reserved.broker.max.id")
    reserved_broker_max_id: int = setting(INT, 1000, at_least(0),
        "Largest broker.id in a properties file while broker.id.generation.enable is true")
    broker_rack: str | None = setting(STRING, None, ANY,
        "Rack of this broker; replicas are spread over racks")

    # Listeners and connections
    listeners: tuple[Endpoint, ...] = setting(STRING, "PLAINTEXT://:9092", ANY,
        "Addresses to bind, as NAME://host:port; an empty host binds all interfaces",
        PER_BROKER, field_default=DEFAULT_LISTENERS)
    advertised_listeners: tuple[Endpoint, ...] = setting(STRING, None, ANY,
        "Addresses that clients and brokers connect to; unset: the same as listeners",
        PER_BROKER, field_default=())
    listener_security_protocol_map: str = setting(STRING, DEFAULT_PROTOCOLS, ANY,
        "Security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", PER_BROKER)
    inter_broker_listener_name: str | None = setting(STRING, None, ANY,
        "Listener that brokers use to connect to each other")
    security_inter_broker_protocol: str = setting(STRING, "PLAINTEXT", SECURITY_PROTOCOL,
        "Listener name between brokers if inter.broker.listener.name is not set")
    socket_request_max_bytes: int = setting(INT, 104_857_600, at_least(1),
        "Maximum size of a request; a larger one closes the connection")
    socket_send_buffer_bytes: int = setting(INT, 524_288, ANY,
        "Send buffer of a connection; unset or -1: the kernel decides, the default is not applied")
    socket_receive_buffer_bytes: int = setting(INT, 262_144, ANY,
        "Receive buffer of a connection; unset or -1: the kernel decides, the default is not applied")
    max_connections: int = setting(INT, INT_MAX, at_least(0),
        "Maximum number of open connections", CLUSTER_WIDE)
    max_connections_per_ip: int = setting(INT, INT_MAX, at_least(0),
        "Maximum number of open connections from one IP address", CLUSTER_WIDE)
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = setting(STRING, "", ANY,
        "Values of max.connections.per.ip for single addresses, as host:count,…", CLUSTER_WIDE, field_default=())
    connections_max_idle_ms: int = setting(LONG, 600_000, ANY,
        "An idle connection is closed after this time; negative: never")
    queued_max_request_bytes: int = setting(LONG, -1, ANY,
        "Maximum total size of large requests in memory; at the limit, reading pauses; -1: 128 MiB")
    max_request_partition_size_limit: int = setting(INT, 2000, at_least(1),
        "Maximum number of partitions in a DescribeTopicPartitions response")
    request_timeout_ms: int = setting(INT, 30_000, ANY,
        "Ignored; see controller.socket.timeout.ms and replica.socket.timeout.ms")

    # Fetch
    fetch_max_bytes: int = setting(INT, 57_671_680, at_least(1024),
        "Maximum size of a fetch response")
    max_incremental_fetch_session_cache_slots: int = setting(INT, 1000, at_least(0),
        "Maximum number of incremental fetch sessions")

    # Topics
    num_partitions: int = setting(INT, 1, at_least(1),
        "Number of partitions of a topic created without a partition count")
    default_replication_factor: int = setting(INT, 1, ANY,
        "Replication factor of a topic created without one")
    auto_create_topics_enable: bool = setting(BOOLEAN, True, ANY,
        "Create a topic when a client first requests its metadata")
    delete_topic_enable: bool = setting(BOOLEAN, True, ANY,
        "Allow topics to be deleted")
    create_topic_policy_class_name: str | None = setting(CLASS, None, ANY,
        "Python class that validates new topics: module:Class, or an entry point of barnabas.policies")
    alter_config_policy_class_name: str | None = setting(CLASS, None, ANY,
        "Python class that validates changed settings: module:Class, or an entry point of barnabas.policies")

    # Logs on disk
    log_dir: str = setting(STRING, "/tmp/kafka-logs", ANY,
        "Log directory if log.dirs is not set")
    log_dirs: tuple[str, ...] = setting(STRING, None, ANY,
        "Comma-separated list of log directories", field_default=("/tmp/kafka-logs",))
    log_flush_offset_checkpoint_interval_ms: int = setting(INT, 60_000, at_least(0),
        "Interval between writes of the recovery point checkpoint")
    log_flush_start_offset_checkpoint_interval_ms: int = setting(INT, 60_000, at_least(0),
        "Interval between writes of the log start offset checkpoint")
    log_retention_check_interval_ms: int = setting(LONG, 300_000, at_least(1),
        "Interval between checks for segments to delete")
    log_initial_task_delay_ms: int = setting(LONG, 30_000, at_least(0),
        "Delay after start before the first retention check and checkpoint", internal=True)
    producer_id_expiration_ms: int = setting(INT, 86_400_000, at_least(1),
        "The state of an idempotent producer expires after this time without a write", CLUSTER_WIDE)
    producer_id_expiration_check_interval_ms: int = setting(INT, 600_000, at_least(1),
        "Interval between checks for expired producers", internal=True)
    log_cleaner_enable: bool = setting(BOOLEAN, True, ANY,
        "Enable log compaction")
    log_cleaner_threads: int = setting(INT, 1, at_least(0),
        "Number of logs compacted at the same time", CLUSTER_WIDE)
    log_cleaner_backoff_ms: int = setting(LONG, 15_000, at_least(0),
        "Wait before the next check if there is nothing to compact", CLUSTER_WIDE)
    log_cleaner_dedupe_buffer_size: int = setting(LONG, 134_217_728, ANY,
        "Memory for the keys of the logs being compacted, for all threads together", CLUSTER_WIDE)
    log_cleaner_io_buffer_load_factor: float = setting(DOUBLE, 0.9, ANY,
        "Maximum fill ratio of log.cleaner.dedupe.buffer.size", CLUSTER_WIDE)
    log_cleaner_io_buffer_size: int = setting(INT, 524_288, at_least(0),
        "Memory for reads and writes during compaction", CLUSTER_WIDE)
    log_cleaner_io_max_bytes_per_second: float = setting(DOUBLE, DOUBLE_MAX, ANY,
        "Maximum compaction throughput in bytes per second", CLUSTER_WIDE)

    # Topic defaults
    log_segment_bytes: int = topic_default("segment.bytes")
    log_roll_ms: int | None = setting(LONG, None, ANY,
        "Maximum age of the active segment; unset: log.roll.hours", CLUSTER_WIDE, default_of="segment.ms")
    log_roll_hours: int = setting(INT, 168, at_least(1),
        "Maximum age of the active segment, if log.roll.ms is not set",
        default_of="segment.ms", factor=HOURS)
    log_roll_jitter_ms: int | None = setting(LONG, None, ANY,
        "Maximum random time subtracted from log.roll.ms or .hours; unset: log.roll.jitter.hours",
        CLUSTER_WIDE, default_of="segment.jitter.ms")
    log_roll_jitter_hours: int = setting(INT, 0, at_least(0),
        "Maximum random time subtracted from log.roll.ms or .hours, if log.roll.jitter.ms is not set",
        default_of="segment.jitter.ms", factor=HOURS)
    log_index_size_max_bytes: int = topic_default("segment.index.bytes")
    log_index_interval_bytes: int = topic_default("index.interval.bytes")
    log_preallocate: bool = topic_default("preallocate")
    log_flush_interval_messages: int = topic_default("flush.messages")
    log_flush_interval_ms: int | None = setting(LONG, None, ANY,
        "Maximum time before a log is fsynced; unset: log.flush.scheduler.interval.ms",
        CLUSTER_WIDE, default_of="flush.ms")
    log_flush_scheduler_interval_ms: int = setting(LONG, LONG_MAX, ANY,
        "Default of log.flush.interval.ms; Barnabas checks for due fsyncs every second",
        default_of="flush.ms")
    log_cleanup_policy: tuple[str, ...] = topic_default("cleanup.policy")
    log_retention_ms: int | None = setting(LONG, None, ANY,
        "Segments older than this are deleted; -1: never; unset: log.retention.minutes",
        CLUSTER_WIDE, default_of="retention.ms")
    log_retention_minutes: int | None = setting(INT, None, ANY,
        "Segments older than this are deleted, if log.retention.ms is not set; unset: log.retention.hours",
        default_of="retention.ms", factor=MINUTES)
    log_retention_hours: int = setting(INT, 168, ANY,
        "Segments older than this are deleted, if log.retention.ms and .minutes are not set",
        default_of="retention.ms", factor=HOURS)
    log_retention_bytes: int = topic_default("retention.bytes")
    log_segment_delete_delay_ms: int = topic_default("file.delete.delay.ms")
    log_cleaner_delete_retention_ms: int = topic_default("delete.retention.ms")
    log_cleaner_min_cleanable_ratio: float = topic_default("min.cleanable.dirty.ratio")
    log_cleaner_min_compaction_lag_ms: int = topic_default("min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = topic_default("max.compaction.lag.ms")
    message_max_bytes: int = topic_default("max.message.bytes")
    compression_type: str = topic_default("compression.type")
    compression_gzip_level: int = topic_default("compression.gzip.level")
    compression_lz4_level: int = topic_default("compression.lz4.level")
    compression_zstd_level: int = topic_default("compression.zstd.level")
    log_message_timestamp_type: str = topic_default("message.timestamp.type")
    log_message_timestamp_difference_max_ms: int = topic_default("message.timestamp.difference.max.ms")
    log_message_timestamp_before_max_ms: int = topic_default("message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = topic_default("message.timestamp.after.max.ms")
    log_message_format_version: str = topic_default("message.format.version", READ_ONLY)
    log_message_downconversion_enable: bool = topic_default("message.downconversion.enable")
    min_insync_replicas: int = topic_default("min.insync.replicas")
    unclean_leader_election_enable: bool = topic_default("unclean.leader.election.enable")
    log_local_retention_ms: int = topic_default("local.retention.ms")
    log_local_retention_bytes: int = topic_default("local.retention.bytes")

    # Replication
    num_replica_fetchers: int = setting(INT, 1, ANY,
        "Number of connections from a follower to each leader", CLUSTER_WIDE)
    replica_lag_time_max_ms: int = setting(LONG, 30_000, ANY,
        "A follower that has not caught up for this long is removed from the ISR")
    replica_fetch_max_bytes: int = setting(INT, 1_048_576, at_least(0),
        "Maximum bytes per partition in the response to a follower's fetch")
    replica_fetch_response_max_bytes: int = setting(INT, 10_485_760, at_least(0),
        "Maximum size of the response to a follower's fetch")
    replica_fetch_min_bytes: int = setting(INT, 1, ANY,
        "Minimum size of the response to a follower's fetch")
    replica_fetch_wait_max_ms: int = setting(INT, 500, ANY,
        "Maximum wait of a follower's fetch at the leader")
    replica_fetch_backoff_ms: int = setting(INT, 1000, at_least(0),
        "Backoff of a follower after a failed fetch")
    replica_socket_timeout_ms: int = setting(INT, 30_000, ANY,
        "Maximum wait of a follower for the leader's response")
    replica_high_watermark_checkpoint_interval_ms: int = setting(LONG, 5000, ANY,
        "Interval between writes of the high watermark checkpoint")
    replica_selector_class: str | None = setting(STRING, None, ANY,
        "…RackAwareReplicaSelector: consumers fetch from a replica in their rack; unset: from the leader")
    leader_replication_throttled_rate: int = setting(LONG, LONG_MAX, at_least(0),
        "Maximum bytes per second that this broker sends to throttled, out-of-sync followers",
        CLUSTER_WIDE, internal=True)
    follower_replication_throttled_rate: int = setting(LONG, LONG_MAX, at_least(0),
        "Maximum bytes per second that this broker fetches for its throttled, out-of-sync replicas",
        CLUSTER_WIDE, internal=True)
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(LONG, LONG_MAX, at_least(0),
        "Maximum bytes per second that this broker copies between its log directories",
        CLUSTER_WIDE, internal=True)
    replication_quota_window_num: int = setting(INT, 11, at_least(1),
        "Number of windows over which the rate of throttled replication is measured")
    replication_quota_window_size_seconds: int = setting(INT, 1, at_least(1),
        "Length of one window for measuring the rate of throttled replication")

    # Cluster and controller
    zookeeper_connect: str | None = setting(STRING, None, ANY,
        "ZooKeeper servers as host:port,…/chroot; unset: the embedded registry")
    zookeeper_session_timeout_ms: int = setting(INT, 18_000, ANY,
        "A broker that sends nothing to ZooKeeper for this long counts as failed")
    zookeeper_connection_timeout_ms: int | None = setting(INT, None, ANY,
        "Maximum wait for the first connection to ZooKeeper; unset: zookeeper.session.timeout.ms")
    zookeeper_max_in_flight_requests: int = setting(INT, 10, at_least(1),
        "Maximum number of unanswered requests to ZooKeeper")
    controller_socket_timeout_ms: int = setting(INT, 30_000, ANY,
        "Maximum wait of the controller for a broker's response")
    controlled_shutdown_enable: bool = setting(BOOLEAN, True, ANY,
        "Move leadership to other brokers before a shutdown")
    controlled_shutdown_max_retries: int = setting(INT, 3, ANY,
        "Maximum number of retries of a controlled shutdown")
    controlled_shutdown_retry_backoff_ms: int = setting(LONG, 5000, ANY,
        "Backoff between retries of a controlled shutdown")
    auto_leader_rebalance_enable: bool = setting(BOOLEAN, True, ANY,
        "Move leadership back to the preferred replicas")
    leader_imbalance_per_broker_percentage: int = setting(INT, 10, ANY,
        "Percentage of non-preferred leaders above which leadership is moved back")
    leader_imbalance_check_interval_seconds: int = setting(LONG, 300, at_least(1),
        "Interval between checks for non-preferred leaders")

    quota_window_num: int = setting(INT, 11, at_least(1),
        "Number of windows over which the rate of a client is measured")
    quota_window_size_seconds: int = setting(INT, 1, at_least(1),
        "Length of one window for the rate of a client")
    controller_quota_window_num: int = setting(INT, 11, at_least(1),
        "Burst of controller_mutation_rate, in windows")
    controller_quota_window_size_seconds: int = setting(INT, 1, at_least(1),
        "Length of one window of controller_mutation_rate")

    # Consumer groups
    group_min_session_timeout_ms: int = setting(INT, 6000, ANY,
        "Minimum session timeout of a group member")
    group_max_session_timeout_ms: int = setting(INT, 1_800_000, ANY,
        "Maximum session timeout of a group member")
    group_initial_rebalance_delay_ms: int = setting(INT, 3000, ANY,
        "How long a new group waits for more members before its first rebalance")
    group_max_size: int = setting(INT, INT_MAX, at_least(1),
        "Maximum number of members in a group")
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(LIST, ("classic", "consumer"),
        each_of("consumer", "classic", "share", "unknown"), "Enabled group protocols")
    group_consumer_session_timeout_ms: int = setting(INT, 45_000, at_least(1),
        "Session timeout of consumer-protocol members")
    group_consumer_heartbeat_interval_ms: int = setting(INT, 5000, at_least(1),
        "Heartbeat interval of consumer-protocol members")
    group_consumer_max_size: int = setting(INT, INT_MAX, at_least(1),
        "Maximum number of members in a consumer-protocol group")
    group_consumer_migration_policy: str = setting(STRING, "bidirectional",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
        "Allowed directions of migration between the group protocols", internal=True)
    offset_metadata_max_bytes: int = setting(INT, 4096, ANY,
        "Maximum size of the metadata committed with an offset")
    offsets_load_buffer_size: int = setting(INT, 5_242_880, at_least(1),
        "Bytes per read when a coordinator loads offsets")
    offsets_topic_replication_factor: int = setting(SHORT, 3, at_least(1),
        "Replication factor of __consumer_offsets")
    offsets_topic_num_partitions: int = setting(INT, 50, at_least(1),
        "Number of partitions of __consumer_offsets")
    offsets_topic_segment_bytes: int = setting(INT, 104_857_600, at_least(1),
        "Segment size of __consumer_offsets")
    offsets_topic_compression_codec: int = setting(INT, 0, ANY,
        "Codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd")
    offsets_retention_minutes: int = setting(INT, 10_080, at_least(1),
        "How long the offsets of an empty group are kept")
    offsets_retention_check_interval_ms: int = setting(LONG, 600_000, at_least(1),
        "Interval between checks for expired offsets")
    offsets_commit_timeout_ms: int = setting(INT, 5000, at_least(1),
        "Maximum time that an offset commit waits for acknowledgement by the replicas")
    offsets_commit_required_acks: int = setting(SHORT, -1, ANY,
        "Deprecated: acks of an offset commit; -1: all in-sync replicas")

    # Transactions
    transaction_partition_verification_enable: bool = setting(BOOLEAN, True, ANY,
        "Verify that a partition was added to the transaction that writes to it", CLUSTER_WIDE)
    transaction_state_log_replication_factor: int = setting(SHORT, 3, at_least(1),
        "Replication factor of __transaction_state")
    transaction_state_log_num_partitions: int = setting(INT, 50, at_least(1),
        "Number of partitions of __transaction_state")
    transaction_state_log_min_isr: int = setting(INT, 2, at_least(1),
        "min.insync.replicas of __transaction_state")
    transaction_state_log_segment_bytes: int = setting(INT, 104_857_600, at_least(1),
        "Segment size of __transaction_state")
    transaction_state_log_load_buffer_size: int = setting(INT, 5_242_880, at_least(1),
        "Bytes per read when a coordinator loads transactions")
    transaction_max_timeout_ms: int = setting(INT, 900_000, at_least(1),
        "Maximum transaction timeout that a producer may request")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        INT, 10_000, at_least(1),
        "Interval between checks for timed-out transactions")
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        INT, 3_600_000, at_least(1),
        "Interval between checks for expired transactional ids")
    transactional_id_expiration_ms: int = setting(INT, 604_800_000, at_least(1),
        "An unused transactional id expires after this time")

    # Specific to Barnabas
    barnabas_audit_enable: bool = setting(BOOLEAN, True, ANY,
        "Log denied requests and failed logins, at most 100 per second, in the logger barnabas.audit")
    barnabas_adopt_logs: bool = setting(BOOLEAN, False, ANY,
        "At start, register stray logs (without a topic) as topics, instead of renaming them to *-stray")
    barnabas_history_topic_enable: bool = setting(BOOLEAN, True, ANY,
        "Publish state changes, and events of groups and transactions, to the topic __state_changes")
    barnabas_http_listener: Endpoint | None = setting(STRING, None, ANY,
        "Address of /metrics, /healthz and /readyz, as host:port; port 0: the system chooses one; unset: off")
    barnabas_slow_request_ms: int = setting(LONG, 1000, at_least(-1),
        "A request that takes longer is logged, without its wait for records or replicas; -1: never")
    barnabas_scrub_bytes_per_second: int = setting(LONG, 8_388_608, at_least(0),
        "Read rate of the scrub, which looks for corruption after start and weekly; 0: no scrub")
    barnabas_registry_dir: str | None = setting(STRING, None, ANY,
        "Directory of the embedded registry; unset: next to the first log directory")
    barnabas_policy_timeout_ms: int = setting(LONG, 5000, at_least(1),
        "Maximum duration of one call of a create or alter policy")
    barnabas_watchdog_exit_enable: bool = setting(BOOLEAN, True, ANY,
        "Exit with code 75 if the event loop is stuck for zookeeper.session.timeout.ms; false: only log")
    # fmt: on

    properties: Mapping[str, str] = {}
    """The properties as given, before parsing. They show which settings are set explicitly."""
    security: Mapping[str, Value] = {}
    """The settings of security.py that are set, also those with the prefix of a listener."""
    jaas_sections: Mapping[str, str] = {}
    """The sections of the JAAS file: their text by name. For listeners without a JAAS line in the properties."""

    def __repr__(self) -> str:
        """Leave out the properties: they may contain passwords."""
        return f"<BrokerConfig broker.id={self.broker_id}>"

    @property
    def registry_dir(self) -> str:
        """Directory of the embedded registry.

        By default next to the first log directory: `registry` next to `broker-1`, `kafka-logs-registry` next to
        `kafka-logs`.
        """
        logs = self.log_dirs[0].rstrip("/")
        parent, slash, name = logs.rpartition("/")
        default = f"{parent}{slash}registry" if name.startswith("broker-") else f"{logs}-registry"
        return self.barnabas_registry_dir or default

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener for connections between brokers."""
        return (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()

    @property
    def control_plane_listener(self) -> str:
        """Name of the listener for requests of the controller."""
        name = self.security_value("control.plane.listener.name")
        return str(name).upper() if name else self.inter_broker_listener

    def security_value(
        self, name: str, listener: str | None = None, mechanism: str | None = None
    ) -> Value:
        """Return the value of a setting in security.py, for a listener or a mechanism of it."""
        return find_value(self.security, name, listener, mechanism)

    def protocol_of(self, listener: str) -> SecurityProtocol:
        """Return the security protocol of a listener, of this broker or of another one."""
        name = listener.upper()
        return SecurityProtocol[
            parse_protocols("listener.security.protocol.map", self.listener_security_protocol_map)[
                name
            ]
        ]

    def topic_defaults(self) -> TopicConfig:
        """Return the configuration of a topic without overrides."""
        values = {}
        for name, synonyms in BROKER_SYNONYMS.items():
            for each in synonyms:
                value = getattr(self, each.field)
                if value is not None:
                    factor = each.factor
                    values[TOPIC_SETTINGS[name].field] = value if factor == 1 else value * factor
                    break
        values["retention_ms"] = max(values["retention_ms"], -1)
        return TopicConfig(**values).with_timestamp_limits()


BROKER_SETTINGS: dict[str, Setting] = collect_settings(BrokerConfig)

BROKER_SYNONYMS: dict[str, tuple[Setting, ...]] = {
    name: tuple(settings)
    for name, settings in groupby(BROKER_SETTINGS.values(), lambda each: each.default_of)
    if name
}
"""By topic setting: the broker settings that it falls back to, highest precedence first."""
