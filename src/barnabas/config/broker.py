"""Settings of one broker, read from server.properties.

BrokerConfig declares the settings that Barnabas uses. Kafka's other settings are in
without_effect.py. They are validated too, so that a file written for Kafka works unchanged, and
one warning lists them. An unknown name is an error, because it is usually a typing error.

Settings that Kafka does not have start with `barnabas.`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from barnabas.config.setting import (
    ANY,
    BOOLEAN,
    CLEANUP_POLICY,
    CLUSTER_WIDE,
    COMPRESSION_TYPE,
    DOUBLE,
    DOUBLE_MAX,
    GZIP_LEVEL,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    LZ4_LEVEL,
    PER_BROKER,
    RELEASE,
    SECURITY_PROTOCOL,
    SHORT,
    STRING,
    TIMESTAMP_TYPE,
    ZSTD_LEVEL,
    Setting,
    at_least,
    between,
    collect_settings,
    setting,
)
from barnabas.config.topic import BROKER_SYNONYMS, TopicConfig
from barnabas.model import Endpoint

DEFAULT_PROTOCOLS = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
DEFAULT_LISTENERS = (Endpoint(listener="PLAINTEXT", host="", port=9092),)


class BrokerConfig(Struct, frozen=True, kw_only=True):
    """Settings of one broker. A field is named like its setting, with `_` for `.`."""

    # A table: one line declares a setting, the next line describes it.
    # fmt: off
    # Identity
    broker_id: int = setting("broker.id", INT, -1, ANY,
        "Id of the broker, unique in the cluster; required, because Barnabas generates no ids")
    node_id: int = setting("node.id", INT, -1, ANY,
        "Another name for broker.id")
    broker_id_generation_enable: bool = setting("broker.id.generation.enable", BOOLEAN, True, ANY,
        "Ignored, except to validate broker.id: Barnabas generates no ids")
    reserved_broker_max_id: int = setting("reserved.broker.max.id", INT, 1000, at_least(0),
        "Largest broker.id allowed while broker.id.generation.enable is true")
    broker_rack: str | None = setting("broker.rack", STRING, None, ANY,
        "Rack of this broker; replicas are spread over racks")

    # Listeners and connections
    listeners: tuple[Endpoint, ...] = setting("listeners", STRING, "PLAINTEXT://:9092", ANY,
        "Addresses to bind, as NAME://host:port; an empty host binds all interfaces",
        PER_BROKER, field_default=DEFAULT_LISTENERS)
    advertised_listeners: tuple[Endpoint, ...] = setting("advertised.listeners", STRING, None, ANY,
        "Addresses that clients and brokers connect to; unset: the same as listeners", PER_BROKER, field_default=())
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map", STRING, DEFAULT_PROTOCOLS, ANY,
        "Security protocol of each listener name; only PLAINTEXT is supported", PER_BROKER)
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name", STRING, None, ANY,
        "Listener that brokers use to connect to each other")
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol", STRING, "PLAINTEXT", SECURITY_PROTOCOL,
        "Listener name between brokers if inter.broker.listener.name is not set")
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", INT, 104_857_600, at_least(1),
        "Maximum size of a request; a larger one closes the connection")
    socket_send_buffer_bytes: int = setting("socket.send.buffer.bytes", INT, 524_288, ANY,
        "Send buffer of a connection; -1: the default of the operating system")
    socket_receive_buffer_bytes: int = setting("socket.receive.buffer.bytes", INT, 262_144, ANY,
        "Receive buffer of a connection; -1: the default of the operating system")
    socket_listen_backlog_size: int = setting("socket.listen.backlog.size", INT, 50, at_least(1),
        "Maximum number of connections that wait to be accepted")
    max_connections: int = setting("max.connections", INT, INT_MAX, at_least(0),
        "Maximum number of open connections", CLUSTER_WIDE)
    max_connections_per_ip: int = setting("max.connections.per.ip", INT, INT_MAX, at_least(0),
        "Maximum number of open connections from one IP address", CLUSTER_WIDE)
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = setting(
        "max.connections.per.ip.overrides", STRING, "", ANY,
        "Exceptions to max.connections.per.ip, as host:count,…", CLUSTER_WIDE, field_default=())
    connections_max_idle_ms: int = setting("connections.max.idle.ms", LONG, 600_000, ANY,
        "An idle connection is closed after this time; negative: never")
    queued_max_request_bytes: int = setting("queued.max.request.bytes", LONG, -1, ANY,
        "Total size of large requests in memory before reading pauses; -1: 128 MiB")
    request_timeout_ms: int = setting("request.timeout.ms", INT, 30_000, ANY,
        "Ignored; see controller.socket.timeout.ms and replica.socket.timeout.ms")

    # Fetch
    fetch_max_bytes: int = setting("fetch.max.bytes", INT, 57_671_680, at_least(1024),
        "Maximum size of a fetch response")
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0),
        "Maximum number of incremental fetch sessions")

    # Topics
    num_partitions: int = setting("num.partitions", INT, 1, at_least(1),
        "Number of partitions of a topic created without a partition count")
    default_replication_factor: int = setting("default.replication.factor", INT, 1, ANY,
        "Replication factor of a topic created without one")
    auto_create_topics_enable: bool = setting("auto.create.topics.enable", BOOLEAN, True, ANY,
        "Create a topic when a client first requests its metadata")
    delete_topic_enable: bool = setting("delete.topic.enable", BOOLEAN, True, ANY,
        "Allow topics to be deleted")

    # Logs on disk
    log_dir: str = setting("log.dir", STRING, "/tmp/kafka-logs", ANY,
        "Log directory if log.dirs is not set")
    log_dirs: tuple[str, ...] = setting("log.dirs", STRING, None, ANY,
        "Comma-separated list of log directories", field_default=("/tmp/kafka-logs",))
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir", INT, 1, at_least(1),
        "Number of logs of a directory recovered at the same time", CLUSTER_WIDE)
    log_dir_failure_timeout_ms: int = setting(
        "log.dir.failure.timeout.ms", LONG, 30_000, at_least(1),
        "A broker with a failed log directory stops after this time if it cannot report it")
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", LONG, LONG_MAX, ANY,
        "Default of log.flush.interval.ms; Barnabas checks for due fsyncs every second")
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
        "Interval between writes of the recovery point checkpoint")
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
        "Interval between writes of the log start offset checkpoint")
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", LONG, 300_000, at_least(1),
        "Interval between checks for segments to delete")
    log_initial_task_delay_ms: int = setting("log.initial.task.delay.ms", LONG, 30_000, at_least(0),
        "Delay after start before the first retention check and checkpoint", internal=True)
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", INT, 86_400_000, at_least(1),
        "The state of an idempotent producer expires after this time without a write", CLUSTER_WIDE)
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1),
        "Interval between checks for expired producers", internal=True)
    log_cleaner_enable: bool = setting("log.cleaner.enable", BOOLEAN, True, ANY,
        "Enable log compaction")
    log_cleaner_threads: int = setting("log.cleaner.threads", INT, 1, at_least(0),
        "Number of logs compacted at the same time", CLUSTER_WIDE)
    log_cleaner_backoff_ms: int = setting("log.cleaner.backoff.ms", LONG, 15_000, at_least(0),
        "Pause when there is nothing to compact", CLUSTER_WIDE)
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", LONG, 134_217_728, ANY,
        "Memory for the keys of the logs being compacted, for all threads together", CLUSTER_WIDE)
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, ANY,
        "Maximum fill ratio of log.cleaner.dedupe.buffer.size", CLUSTER_WIDE)
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size", INT, 524_288, at_least(0),
        "Memory for reads and writes during compaction", CLUSTER_WIDE)
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, ANY,
        "Maximum compaction throughput in bytes per second", CLUSTER_WIDE)

    # Topic defaults
    log_segment_bytes: int = setting("log.segment.bytes", INT, 1_073_741_824, at_least(14),
        "Maximum size of a segment", CLUSTER_WIDE)
    log_roll_ms: int | None = setting("log.roll.ms", LONG, None, ANY,
        "Maximum age of the active segment", CLUSTER_WIDE)
    log_roll_hours: int = setting("log.roll.hours", INT, 168, at_least(1),
        "Maximum age of the active segment if log.roll.ms is not set")
    log_roll_jitter_ms: int | None = setting("log.roll.jitter.ms", LONG, None, ANY,
        "Maximum random time subtracted from log.roll.ms", CLUSTER_WIDE)
    log_roll_jitter_hours: int = setting("log.roll.jitter.hours", INT, 0, at_least(0),
        "The same in hours, if log.roll.jitter.ms is not set")
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes", INT, 10_485_760, at_least(4),
        "Maximum size of an index file", CLUSTER_WIDE)
    log_index_interval_bytes: int = setting("log.index.interval.bytes", INT, 4096, at_least(0),
        "Bytes of log between two index entries", CLUSTER_WIDE)
    log_preallocate: bool = setting("log.preallocate", BOOLEAN, False, ANY,
        "Ignored: segment files are not preallocated", CLUSTER_WIDE)
    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages", LONG, LONG_MAX, at_least(1),
        "Number of records after which a log is fsynced", CLUSTER_WIDE)
    log_flush_interval_ms: int | None = setting("log.flush.interval.ms", LONG, None, ANY,
        "Time after which a log is fsynced; unset: log.flush.scheduler.interval.ms", CLUSTER_WIDE)
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy", LIST, ("delete",), CLEANUP_POLICY,
        "Delete old segments, compact by key, or both", CLUSTER_WIDE)
    log_retention_ms: int | None = setting("log.retention.ms", LONG, None, ANY,
        "Segments older than this are deleted; -1: never", CLUSTER_WIDE)
    log_retention_minutes: int | None = setting("log.retention.minutes", INT, None, ANY,
        "Segments older than this are deleted, if log.retention.ms is not set")
    log_retention_hours: int = setting("log.retention.hours", INT, 168, ANY,
        "Segments older than this are deleted, if neither ms nor minutes are set")
    log_retention_bytes: int = setting("log.retention.bytes", LONG, -1, ANY,
        "The oldest segments beyond this log size are deleted; -1: no limit", CLUSTER_WIDE)
    log_segment_delete_delay_ms: int = setting(
        "log.segment.delete.delay.ms", LONG, 60_000, at_least(0),
        "Delay before a file marked as deleted is removed from disk", CLUSTER_WIDE)
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0),
        "How long compaction keeps a tombstone", CLUSTER_WIDE)
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1),
        "Minimum ratio of uncompacted to total bytes before a log is compacted", CLUSTER_WIDE)
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0),
        "Minimum time a record stays uncompacted", CLUSTER_WIDE)
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1),
        "Maximum time a record stays uncompacted, whatever the dirty ratio", CLUSTER_WIDE)
    message_max_bytes: int = setting("message.max.bytes", INT, 1_048_588, at_least(0),
        "Maximum size of a record batch", CLUSTER_WIDE)
    compression_type: str = setting("compression.type", STRING, "producer", COMPRESSION_TYPE,
        "Codec of the log; producer: keep the producer's codec", CLUSTER_WIDE)
    compression_gzip_level: int = setting("compression.gzip.level", INT, -1, GZIP_LEVEL,
        "Compression level if compression.type is gzip", CLUSTER_WIDE)
    compression_lz4_level: int = setting("compression.lz4.level", INT, 9, LZ4_LEVEL,
        "Compression level if compression.type is lz4", CLUSTER_WIDE)
    compression_zstd_level: int = setting("compression.zstd.level", INT, 3, ZSTD_LEVEL,
        "Compression level if compression.type is zstd", CLUSTER_WIDE)
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type", STRING, "CreateTime", TIMESTAMP_TYPE,
        "Timestamp of a record: set by the producer, or by the leader when it appends", CLUSTER_WIDE)
    log_message_timestamp_difference_max_ms: int = setting(
        "log.message.timestamp.difference.max.ms", LONG, LONG_MAX, at_least(0),
        "Deprecated: default of before.max.ms and after.max.ms", CLUSTER_WIDE)
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0),
        "Maximum age of a record's timestamp, by the broker's clock", CLUSTER_WIDE)
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms", LONG, LONG_MAX, at_least(0),
        "Maximum time a record's timestamp may be ahead of the broker's clock", CLUSTER_WIDE)
    log_message_format_version: str = setting(
        "log.message.format.version", STRING, "3.0-IV1", RELEASE,
        "Deprecated and ignored: batches are always written in format 2")
    log_message_downconversion_enable: bool = setting(
        "log.message.downconversion.enable", BOOLEAN, True, ANY,
        "Ignored: batches are never converted to older formats", CLUSTER_WIDE)
    min_insync_replicas: int = setting("min.insync.replicas", INT, 1, at_least(1),
        "Minimum number of in-sync replicas for a write with acks=all", CLUSTER_WIDE)
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable", BOOLEAN, False, ANY,
        "Allow a replica that is not in sync to become leader; this loses records", CLUSTER_WIDE)
    log_local_retention_ms: int = setting("log.local.retention.ms", LONG, -2, at_least(-2),
        "Default of local.retention.ms, which needs remote storage", CLUSTER_WIDE)
    log_local_retention_bytes: int = setting("log.local.retention.bytes", LONG, -2, at_least(-2),
        "Default of local.retention.bytes, which needs remote storage", CLUSTER_WIDE)

    # Replication
    num_replica_fetchers: int = setting("num.replica.fetchers", INT, 1, ANY,
        "Number of connections from a follower to each leader", CLUSTER_WIDE)
    replica_lag_time_max_ms: int = setting("replica.lag.time.max.ms", LONG, 30_000, ANY,
        "A follower that lags longer than this is removed from the ISR")
    replica_fetch_max_bytes: int = setting("replica.fetch.max.bytes", INT, 1_048_576, at_least(0),
        "Bytes that a follower requests per partition")
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0),
        "Bytes that a follower requests per fetch")
    replica_fetch_min_bytes: int = setting("replica.fetch.min.bytes", INT, 1, ANY,
        "Minimum size of the response to a follower's fetch")
    replica_fetch_wait_max_ms: int = setting("replica.fetch.wait.max.ms", INT, 500, ANY,
        "Maximum wait of a follower's fetch at the leader")
    replica_fetch_backoff_ms: int = setting("replica.fetch.backoff.ms", INT, 1000, at_least(0),
        "Backoff after a failed fetch")
    replica_socket_timeout_ms: int = setting("replica.socket.timeout.ms", INT, 30_000, ANY,
        "Maximum wait of a follower for the leader's response")
    replica_socket_receive_buffer_bytes: int = setting(
        "replica.socket.receive.buffer.bytes", INT, 65_536, ANY,
        "Receive buffer of a follower's connection")
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms", LONG, 5000, ANY,
        "Interval between writes of the high watermark checkpoint")
    replica_selector_class: str | None = setting("replica.selector.class", STRING, None, ANY,
        "RackAwareReplicaSelector: consumers read from a replica in their rack; unset: the leader")
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0),
        "Bytes per second that leaders here send to throttled followers that are out of sync",
        PER_BROKER, internal=True)
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0),
        "Bytes per second that throttled followers here fetch while they are out of sync",
        PER_BROKER, internal=True)
    replication_quota_window_num: int = setting("replication.quota.window.num", INT, 11, at_least(1),
        "Number of windows over which the rate of throttled replication is measured")
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds", INT, 1, at_least(1),
        "Length of one such window")

    # Cluster and controller
    zookeeper_connect: str | None = setting("zookeeper.connect", STRING, None, ANY,
        "ZooKeeper servers as host:port,…/chroot; unset: the embedded registry")
    zookeeper_session_timeout_ms: int = setting("zookeeper.session.timeout.ms", INT, 18_000, ANY,
        "A broker that sends nothing to ZooKeeper for this long counts as failed")
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms", INT, None, ANY,
        "Maximum wait for the first connection; unset: the session timeout")
    zookeeper_max_in_flight_requests: int = setting(
        "zookeeper.max.in.flight.requests", INT, 10, at_least(1),
        "Maximum number of unanswered requests to ZooKeeper")
    controller_socket_timeout_ms: int = setting("controller.socket.timeout.ms", INT, 30_000, ANY,
        "Maximum wait of the controller for a broker's response")
    controlled_shutdown_enable: bool = setting("controlled.shutdown.enable", BOOLEAN, True, ANY,
        "Move leadership to other brokers before a shutdown")
    controlled_shutdown_max_retries: int = setting("controlled.shutdown.max.retries", INT, 3, ANY,
        "Retries of a failed controlled shutdown")
    controlled_shutdown_retry_backoff_ms: int = setting(
        "controlled.shutdown.retry.backoff.ms", LONG, 5000, ANY,
        "Backoff between retries of a controlled shutdown")
    auto_leader_rebalance_enable: bool = setting("auto.leader.rebalance.enable", BOOLEAN, True, ANY,
        "Move leadership back to the preferred replicas")
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage", INT, 10, ANY,
        "Share of non-preferred leaders at which leadership is moved back")
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds", LONG, 300, at_least(1),
        "Interval between checks for non-preferred leaders")
    unclean_leader_election_interval_ms: int = setting(
        "unclean.leader.election.interval.ms", LONG, 300_000, at_least(1),
        "Interval between unclean election attempts for offline partitions", internal=True)

    # Consumer groups
    group_min_session_timeout_ms: int = setting("group.min.session.timeout.ms", INT, 6000, ANY,
        "Minimum session timeout of a group member")
    group_max_session_timeout_ms: int = setting("group.max.session.timeout.ms", INT, 1_800_000, ANY,
        "Maximum session timeout of a group member")
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", INT, 3000, ANY,
        "Wait for more members before the first rebalance of a new group")
    group_max_size: int = setting("group.max.size", INT, INT_MAX, at_least(1),
        "Maximum number of members in a group")
    offset_metadata_max_bytes: int = setting("offset.metadata.max.bytes", INT, 4096, ANY,
        "Maximum size of the metadata committed with an offset")
    offsets_load_buffer_size: int = setting("offsets.load.buffer.size", INT, 5_242_880, at_least(1),
        "Bytes per read when a coordinator loads offsets")
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", SHORT, 3, at_least(1),
        "Replication factor of __consumer_offsets")
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", INT, 50, at_least(1),
        "Number of partitions of __consumer_offsets")
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", INT, 104_857_600, at_least(1),
        "Segment size of __consumer_offsets")
    offsets_topic_compression_codec: int = setting("offsets.topic.compression.codec", INT, 0, ANY,
        "Codec id of __consumer_offsets; 0: none")
    offsets_retention_minutes: int = setting("offsets.retention.minutes", INT, 10_080, at_least(1),
        "How long the offsets of an empty group are kept")
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", LONG, 600_000, at_least(1),
        "Interval between checks for expired offsets")
    offsets_commit_timeout_ms: int = setting("offsets.commit.timeout.ms", INT, 5000, at_least(1),
        "Maximum wait of a commit for its replicas")
    offsets_commit_required_acks: int = setting("offsets.commit.required.acks", SHORT, -1, ANY,
        "Deprecated: acks of an offset commit; -1: all in-sync replicas")

    # Transactions
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor", SHORT, 3, at_least(1),
        "Replication factor of __transaction_state")
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", INT, 50, at_least(1),
        "Number of partitions of __transaction_state")
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr", INT, 2, at_least(1),
        "min.insync.replicas of __transaction_state")
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1),
        "Segment size of __transaction_state")

    # Specific to Barnabas
    barnabas_adopt_logs: bool = setting("barnabas.adopt.logs", BOOLEAN, False, ANY,
        "At start, register logs that belong to no topic as topics, instead of setting them aside")
    barnabas_history_topic_enable: bool = setting("barnabas.history.topic.enable", BOOLEAN, True, ANY,
        "Publish the controller's state changes to the topic __state_changes")
    barnabas_scrub_bytes_per_second: int = setting(
        "barnabas.scrub.bytes.per.second", LONG, 8_388_608, at_least(0),
        "Read rate of the check for corrupt logs, after start and weekly; 0: check on fetch only")
    barnabas_registry_dir: str | None = setting("barnabas.registry.dir", STRING, None, ANY,
        "Directory of the embedded registry; unset: next to the first log directory")
    barnabas_watchdog_exit_enable: bool = setting("barnabas.watchdog.exit.enable", BOOLEAN, True, ANY,
        "Exit with code 75 if the event loop is stuck longer than a session; false: only log it")
    # fmt: on

    # The properties as they were given. Each field above is one of them or a default.
    properties: Mapping[str, str] = {}

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

    def topic_defaults(self) -> TopicConfig:
        """Configuration of a topic without overrides."""
        values = {}
        for topic_name, synonyms in BROKER_SYNONYMS.items():
            for broker_name, factor in synonyms:
                value = getattr(self, broker_name.replace(".", "_"))
                if value is not None:
                    values[topic_name.replace(".", "_")] = value if factor == 1 else value * factor
                    break
        values["retention_ms"] = max(values["retention_ms"], -1)
        return TopicConfig(**values).with_timestamp_limits()


BROKER_SETTINGS: dict[str, Setting] = collect_settings(BrokerConfig)
