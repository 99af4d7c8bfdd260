"""What can be set for one broker, read from server.properties.

BrokerConfig holds the settings that change what Barnabas does; Kafka's other settings stand in
without_effect.py: they are read and checked as well, so that a file written for Kafka works
unchanged, and are named in one warning. A name that Kafka does not have is an error, since it is
nearly always a misspelt one that Kafka does have.

Barnabas' own additions begin with `barnabas.`.
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
    setting,
    settings_of,
)
from barnabas.config.topic import BROKER_SYNONYMS, TopicConfig
from barnabas.model import Endpoint

DEFAULT_PROTOCOLS = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
DEFAULT_LISTENERS = (Endpoint(listener="PLAINTEXT", host="", port=9092),)


class BrokerConfig(Struct, frozen=True, kw_only=True):
    """One broker's settings. A field is a setting's name with `_` for `.`."""

    # A table: what a setting is stands on one line, what it does on the next.
    # fmt: off
    # Who this broker is
    broker_id: int = setting("broker.id", INT, -1, ANY,
        "the broker's number in the cluster; -1: one is taken from the registry")
    node_id: int = setting("node.id", INT, -1, ANY,
        "another name of broker.id")
    broker_id_generation_enable: bool = setting("broker.id.generation.enable", BOOLEAN, True, ANY,
        "whether a broker without an id may take a generated one")
    reserved_broker_max_id: int = setting("reserved.broker.max.id", INT, 1000, at_least(0),
        "generated ids begin above this number")
    broker_rack: str | None = setting("broker.rack", STRING, None, ANY,
        "the rack this broker stands in, for spreading replicas")

    # Where it listens and whom it serves
    listeners: tuple[Endpoint, ...] = setting("listeners", STRING, "PLAINTEXT://:9092", ANY,
        "addresses to bind, as NAME://host:port; an empty host binds them all",
        PER_BROKER, held_as=DEFAULT_LISTENERS)
    advertised_listeners: tuple[Endpoint, ...] = setting("advertised.listeners", STRING, None, ANY,
        "addresses given to clients and brokers; unset: the listeners", PER_BROKER, held_as=())
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map", STRING, DEFAULT_PROTOCOLS, ANY,
        "security protocol of each listener name; only PLAINTEXT is served", PER_BROKER)
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name", STRING, None, ANY,
        "the listener brokers reach each other by")
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol", STRING, "PLAINTEXT", SECURITY_PROTOCOL,
        "names the listener between brokers when inter.broker.listener.name does not")
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", INT, 104_857_600, at_least(1),
        "largest request read; a longer one closes the connection")
    socket_send_buffer_bytes: int = setting("socket.send.buffer.bytes", INT, 524_288, ANY,
        "send buffer of a connection; -1: the operating system's choice")
    socket_receive_buffer_bytes: int = setting("socket.receive.buffer.bytes", INT, 262_144, ANY,
        "receive buffer of a connection; -1: the operating system's choice")
    socket_listen_backlog_size: int = setting("socket.listen.backlog.size", INT, 50, at_least(1),
        "connections that may wait to be accepted")
    max_connections: int = setting("max.connections", INT, INT_MAX, at_least(0),
        "connections open at one time", CLUSTER_WIDE)
    max_connections_per_ip: int = setting("max.connections.per.ip", INT, INT_MAX, at_least(0),
        "connections open at one time from one address", CLUSTER_WIDE)
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = setting(
        "max.connections.per.ip.overrides", STRING, "", ANY,
        "other limits for single addresses, as host:count,…", CLUSTER_WIDE, held_as=())
    connections_max_idle_ms: int = setting("connections.max.idle.ms", LONG, 600_000, ANY,
        "a connection silent for this long is closed; negative: never")
    queued_max_request_bytes: int = setting("queued.max.request.bytes", LONG, -1, ANY,
        "bytes of large requests in work before reading pauses; -1: 128 MiB")
    request_timeout_ms: int = setting("request.timeout.ms", INT, 30_000, ANY,
        "how long this broker waits for another one's answer")

    # Fetching
    fetch_max_bytes: int = setting("fetch.max.bytes", INT, 57_671_680, at_least(1024),
        "most bytes in the answer to one fetch")
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0),
        "incremental fetch sessions remembered")

    # Topics
    num_partitions: int = setting("num.partitions", INT, 1, at_least(1),
        "partitions of a topic that is created without a number")
    default_replication_factor: int = setting("default.replication.factor", INT, 1, ANY,
        "replicas of a topic that is created without a number")
    auto_create_topics_enable: bool = setting("auto.create.topics.enable", BOOLEAN, True, ANY,
        "create a topic when a client first asks for it")
    delete_topic_enable: bool = setting("delete.topic.enable", BOOLEAN, True, ANY,
        "whether topics can be deleted")

    # Logs on disk
    log_dir: str = setting("log.dir", STRING, "/tmp/kafka-logs", ANY,
        "the directory of the logs when log.dirs is not set")
    log_dirs: tuple[str, ...] = setting("log.dirs", STRING, None, ANY,
        "the directories of the logs, by comma", held_as=("/tmp/kafka-logs",))
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir", INT, 1, at_least(1),
        "logs of a directory recovered at the same time", CLUSTER_WIDE)
    log_dir_failure_timeout_ms: int = setting(
        "log.dir.failure.timeout.ms", LONG, 30_000, at_least(1),
        "a broker whose directory failed stops after this if nobody was told")
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", LONG, LONG_MAX, ANY,
        "how often logs are looked at for a flush that is due")
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
        "how often recovery points are written down")
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
        "how often log start offsets are written down")
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", LONG, 300_000, at_least(1),
        "how often old segments are looked for")
    log_initial_task_delay_ms: int = setting("log.initial.task.delay.ms", LONG, 30_000, at_least(0),
        "wait after start before the first flush, check and checkpoint", internal=True)
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", INT, 86_400_000, at_least(1),
        "an idempotent producer silent this long is forgotten", CLUSTER_WIDE)
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1),
        "how often silent producers are looked for", internal=True)
    log_cleaner_enable: bool = setting("log.cleaner.enable", BOOLEAN, True, ANY,
        "whether logs are compacted at all")
    log_cleaner_threads: int = setting("log.cleaner.threads", INT, 1, at_least(0),
        "logs compacted at the same time", CLUSTER_WIDE)
    log_cleaner_backoff_ms: int = setting("log.cleaner.backoff.ms", LONG, 15_000, at_least(0),
        "rest when there was nothing to compact", CLUSTER_WIDE)
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", LONG, 134_217_728, ANY,
        "memory for the keys of the logs being compacted", CLUSTER_WIDE)
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, ANY,
        "how full log.cleaner.dedupe.buffer.size may become", CLUSTER_WIDE)
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size", INT, 524_288, at_least(0),
        "memory for reading and writing while compacting", CLUSTER_WIDE)
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, ANY,
        "speed limit of compaction", CLUSTER_WIDE)

    # Defaults of topics
    log_segment_bytes: int = setting("log.segment.bytes", INT, 1_073_741_824, at_least(14),
        "size at which a segment is closed", CLUSTER_WIDE)
    log_roll_ms: int | None = setting("log.roll.ms", LONG, None, ANY,
        "age at which a segment is closed", CLUSTER_WIDE)
    log_roll_hours: int = setting("log.roll.hours", INT, 168, at_least(1),
        "age at which a segment is closed, when log.roll.ms is not set")
    log_roll_jitter_ms: int | None = setting("log.roll.jitter.ms", LONG, None, ANY,
        "at most this much is taken off log.roll.ms at random", CLUSTER_WIDE)
    log_roll_jitter_hours: int = setting("log.roll.jitter.hours", INT, 0, at_least(0),
        "the same as log.roll.jitter.ms, when that is not set")
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes", INT, 10_485_760, at_least(4),
        "size of an index file when it is full", CLUSTER_WIDE)
    log_index_interval_bytes: int = setting("log.index.interval.bytes", INT, 4096, at_least(0),
        "bytes of log between two index entries", CLUSTER_WIDE)
    log_preallocate: bool = setting("log.preallocate", BOOLEAN, False, ANY,
        "reserve the whole segment on disk when it is begun", CLUSTER_WIDE)
    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages", LONG, LONG_MAX, at_least(1),
        "records after which a log is fsynced", CLUSTER_WIDE)
    log_flush_interval_ms: int | None = setting("log.flush.interval.ms", LONG, None, ANY,
        "time after which a log is fsynced; unset: the scheduler's interval", CLUSTER_WIDE)
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy", LIST, ("delete",), CLEANUP_POLICY,
        "delete old segments, compact by key, or both", CLUSTER_WIDE)
    log_retention_ms: int | None = setting("log.retention.ms", LONG, None, ANY,
        "delete segments older than this; -1: never", CLUSTER_WIDE)
    log_retention_minutes: int | None = setting("log.retention.minutes", INT, None, ANY,
        "delete segments older than this, when log.retention.ms is not set")
    log_retention_hours: int = setting("log.retention.hours", INT, 168, ANY,
        "delete segments older than this, when neither ms nor minutes are set")
    log_retention_bytes: int = setting("log.retention.bytes", LONG, -1, ANY,
        "delete the oldest segments beyond this size; -1: no limit", CLUSTER_WIDE)
    log_segment_delete_delay_ms: int = setting(
        "log.segment.delete.delay.ms", LONG, 60_000, at_least(0),
        "time between marking a file deleted and removing it", CLUSTER_WIDE)
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms", LONG, 86_400_000, at_least(0),
        "how long compaction keeps a tombstone", CLUSTER_WIDE)
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1),
        "uncompacted share that makes compacting worthwhile", CLUSTER_WIDE)
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0),
        "a record stays uncompacted at least so long", CLUSTER_WIDE)
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1),
        "a record is open to compaction after this time", CLUSTER_WIDE)
    message_max_bytes: int = setting("message.max.bytes", INT, 1_048_588, at_least(0),
        "largest record batch accepted", CLUSTER_WIDE)
    compression_type: str = setting("compression.type", STRING, "producer", COMPRESSION_TYPE,
        "codec logs are written with; producer: as it arrived", CLUSTER_WIDE)
    compression_gzip_level: int = setting("compression.gzip.level", INT, -1, GZIP_LEVEL,
        "level when compression.type is gzip", CLUSTER_WIDE)
    compression_lz4_level: int = setting("compression.lz4.level", INT, 9, LZ4_LEVEL,
        "level when compression.type is lz4", CLUSTER_WIDE)
    compression_zstd_level: int = setting("compression.zstd.level", INT, 3, ZSTD_LEVEL,
        "level when compression.type is zstd", CLUSTER_WIDE)
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type", STRING, "CreateTime", TIMESTAMP_TYPE,
        "whose clock stamps a record", CLUSTER_WIDE)
    log_message_timestamp_difference_max_ms: int = setting(
        "log.message.timestamp.difference.max.ms", LONG, LONG_MAX, at_least(0),
        "deprecated: stands in for before.max.ms and after.max.ms left unset", CLUSTER_WIDE)
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0),
        "how far a timestamp may lie in the past", CLUSTER_WIDE)
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms", LONG, LONG_MAX, at_least(0),
        "how far a timestamp may lie in the future", CLUSTER_WIDE)
    log_message_format_version: str = setting(
        "log.message.format.version", STRING, "3.0-IV1", RELEASE,
        "deprecated and ignored: batches are written in format 2")
    log_message_downconversion_enable: bool = setting(
        "log.message.downconversion.enable", BOOLEAN, True, ANY,
        "whether batches are rewritten for old consumers", CLUSTER_WIDE)
    min_insync_replicas: int = setting("min.insync.replicas", INT, 1, at_least(1),
        "replicas in sync for a write with acks=all to be taken", CLUSTER_WIDE)
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable", BOOLEAN, False, ANY,
        "let a replica lead that was not in sync", CLUSTER_WIDE)
    log_local_retention_ms: int = setting("log.local.retention.ms", LONG, -2, at_least(-2),
        "default of local.retention.ms, which asks for remote storage", CLUSTER_WIDE)
    log_local_retention_bytes: int = setting("log.local.retention.bytes", LONG, -2, at_least(-2),
        "default of local.retention.bytes, which asks for remote storage", CLUSTER_WIDE)

    # Replication
    num_replica_fetchers: int = setting("num.replica.fetchers", INT, 1, ANY,
        "connections a follower opens to each leader", CLUSTER_WIDE)
    replica_lag_time_max_ms: int = setting("replica.lag.time.max.ms", LONG, 30_000, ANY,
        "a follower this far behind leaves the in-sync replicas")
    replica_fetch_max_bytes: int = setting("replica.fetch.max.bytes", INT, 1_048_576, at_least(0),
        "bytes a follower asks for, per partition")
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0),
        "bytes a follower asks for, per fetch")
    replica_fetch_min_bytes: int = setting("replica.fetch.min.bytes", INT, 1, ANY,
        "bytes a follower's fetch waits for")
    replica_fetch_wait_max_ms: int = setting("replica.fetch.wait.max.ms", INT, 500, ANY,
        "longest wait of a follower's fetch")
    replica_fetch_backoff_ms: int = setting("replica.fetch.backoff.ms", INT, 1000, at_least(0),
        "rest after a failed fetch")
    replica_socket_timeout_ms: int = setting("replica.socket.timeout.ms", INT, 30_000, ANY,
        "how long a follower waits for its leader's answer")
    replica_socket_receive_buffer_bytes: int = setting(
        "replica.socket.receive.buffer.bytes", INT, 65_536, ANY,
        "receive buffer of a follower's connection")
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms", LONG, 5000, ANY,
        "how often high watermarks are written down")
    replica_selector_class: str | None = setting("replica.selector.class", STRING, None, ANY,
        "whom a consumer that names its rack reads from: RackAwareReplicaSelector; unset: the leader")
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0),
        "bytes a second for throttled followers of leaders here, while they are out of sync",
        PER_BROKER, internal=True)
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0),
        "bytes a second that throttled followers here copy, while they are out of sync",
        PER_BROKER, internal=True)
    replication_quota_window_num: int = setting("replication.quota.window.num", INT, 11, at_least(1),
        "windows that the rate of throttled replication is taken over")
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds", INT, 1, at_least(1),
        "length of one of these windows")

    # Cluster and controller
    zookeeper_connect: str | None = setting("zookeeper.connect", STRING, None, ANY,
        "ZooKeeper servers as host:port,…/chroot; unset: the embedded registry")
    zookeeper_session_timeout_ms: int = setting("zookeeper.session.timeout.ms", INT, 18_000, ANY,
        "a broker silent this long is taken for dead")
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms", INT, None, ANY,
        "wait for the first connection; unset: the session timeout")
    zookeeper_max_in_flight_requests: int = setting(
        "zookeeper.max.in.flight.requests", INT, 10, at_least(1),
        "requests sent to ZooKeeper without waiting")
    controller_socket_timeout_ms: int = setting("controller.socket.timeout.ms", INT, 30_000, ANY,
        "how long the controller waits for a broker's answer")
    controlled_shutdown_enable: bool = setting("controlled.shutdown.enable", BOOLEAN, True, ANY,
        "hand leadership over before stopping")
    controlled_shutdown_max_retries: int = setting("controlled.shutdown.max.retries", INT, 3, ANY,
        "attempts after the first to hand leadership over")
    controlled_shutdown_retry_backoff_ms: int = setting(
        "controlled.shutdown.retry.backoff.ms", LONG, 5000, ANY,
        "rest between attempts to hand leadership over")
    auto_leader_rebalance_enable: bool = setting("auto.leader.rebalance.enable", BOOLEAN, True, ANY,
        "give leadership back to preferred replicas")
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage", INT, 10, ANY,
        "share of misplaced leaders a broker may hold")
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds", LONG, 300, at_least(1),
        "how often misplaced leaders are looked for")
    unclean_leader_election_interval_ms: int = setting(
        "unclean.leader.election.interval.ms", LONG, 300_000, at_least(1),
        "how often leaderless partitions are tried again", internal=True)

    # Consumer groups
    group_min_session_timeout_ms: int = setting("group.min.session.timeout.ms", INT, 6000, ANY,
        "shortest session timeout a member may ask for")
    group_max_session_timeout_ms: int = setting("group.max.session.timeout.ms", INT, 1_800_000, ANY,
        "longest session timeout a member may ask for")
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", INT, 3000, ANY,
        "wait for more members before a new group's first round")
    group_max_size: int = setting("group.max.size", INT, INT_MAX, at_least(1),
        "members of one group")
    offset_metadata_max_bytes: int = setting("offset.metadata.max.bytes", INT, 4096, ANY,
        "longest note a client may commit with an offset")
    offsets_load_buffer_size: int = setting("offsets.load.buffer.size", INT, 5_242_880, at_least(1),
        "bytes read at a time when offsets are loaded")
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", SHORT, 3, at_least(1),
        "replicas of __consumer_offsets")
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", INT, 50, at_least(1),
        "partitions of __consumer_offsets")
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", INT, 104_857_600, at_least(1),
        "segment size of __consumer_offsets")
    offsets_topic_compression_codec: int = setting("offsets.topic.compression.codec", INT, 0, ANY,
        "codec of __consumer_offsets, by number; 0: none")
    offsets_retention_minutes: int = setting("offsets.retention.minutes", INT, 10_080, at_least(1),
        "offsets of an empty group are kept this long")
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", LONG, 600_000, at_least(1),
        "how often old offsets are looked for")
    offsets_commit_timeout_ms: int = setting("offsets.commit.timeout.ms", INT, 5000, at_least(1),
        "how long a commit waits for its replicas")
    offsets_commit_required_acks: int = setting("offsets.commit.required.acks", SHORT, -1, ANY,
        "deprecated: acknowledgements a commit waits for")

    # Transactions
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor", SHORT, 3, at_least(1),
        "replicas of __transaction_state")
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", INT, 50, at_least(1),
        "partitions of __transaction_state")
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr", INT, 2, at_least(1),
        "in-sync replicas __transaction_state needs for a write")
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1),
        "segment size of __transaction_state")

    # Barnabas' own
    barnabas_adopt_logs: bool = setting("barnabas.adopt.logs", BOOLEAN, False, ANY,
        "logs in the log directories that no topic has become topics at the start, instead of being set aside")
    barnabas_history_topic_enable: bool = setting("barnabas.history.topic.enable", BOOLEAN, True, ANY,
        "publish the state changes of the controller to the topic __state_changes")
    barnabas_scrub_bytes_per_second: int = setting(
        "barnabas.scrub.bytes.per.second", LONG, 8_388_608, at_least(0),
        "how fast logs are read through for damage after a start and every week; 0: only what is fetched is")
    barnabas_registry_dir: str | None = setting("barnabas.registry.dir", STRING, None, ANY,
        "where the embedded registry lives; unset: beside the first log directory")
    barnabas_watchdog_exit_enable: bool = setting("barnabas.watchdog.exit.enable", BOOLEAN, True, ANY,
        "exit with code 75 if the loop is stuck longer than a registry session; false: only log it")
    # fmt: on

    # What was set, as it was written; the rest of the fields are these or defaults.
    properties: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Without the properties: there are passwords among them."""
        return f"<BrokerConfig broker.id={self.broker_id}>"

    @staticmethod
    def load(
        properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
    ) -> tuple[BrokerConfig, list[str]]:
        """The configuration these properties make, and what the operator should be told about it.

        `overrides` are properties too and win, as flags win over the file. ConfigError if the
        broker must not start with them.
        """
        from barnabas.config.load import load  # written in terms of this class

        return load({**properties, **(overrides or {})})

    @property
    def registry_dir(self) -> str:
        """Beside the first log directory: `registry` beside `broker-1`, `kafka-logs-registry` beside `kafka-logs`."""
        logs = self.log_dirs[0].rstrip("/")
        parent, slash, name = logs.rpartition("/")
        beside = f"{parent}{slash}registry" if name.startswith("broker-") else f"{logs}-registry"
        return self.barnabas_registry_dir or beside

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener brokers reach each other by."""
        return (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()

    def topic_defaults(self) -> TopicConfig:
        """What holds for a topic without settings of its own."""
        values = {}
        for topic_name, synonyms in BROKER_SYNONYMS.items():
            for broker_name, factor in synonyms:
                value = getattr(self, broker_name.replace(".", "_"))
                if value is not None:
                    values[topic_name.replace(".", "_")] = value if factor == 1 else value * factor
                    break
        values["retention_ms"] = max(values["retention_ms"], -1)
        return TopicConfig(**values).settled()


BROKER_SETTINGS: dict[str, Setting] = settings_of(BrokerConfig)
