"""Kafka settings that Barnabas validates but does not use.

A file written for Kafka works unchanged: these settings are accepted, and one warning lists those that are set. When
Barnabas starts to use a setting, its row moves to broker.py or security.py. table.py explains the rows.
"""

from __future__ import annotations

from barnabas.config.setting import Setting
from barnabas.config.table import read_table

TABLE = """
# Threads, queues and sockets
num.network.threads | int | 3 | at least 1 | cluster-wide
    Number of threads that read requests and write responses
num.io.threads | int | 8 | at least 1 | cluster-wide
    Number of threads that handle requests
background.threads | int | 10 | at least 1 | cluster-wide
    Number of threads for background tasks
num.replica.alter.log.dirs.threads | int | null | any value
    Number of threads that move replicas between log directories
num.recovery.threads.per.data.dir | int | 1 | at least 1 | cluster-wide
    Number of logs of a directory recovered at the same time
queued.max.requests | int | 500 | at least 1
    Maximum number of queued requests; at the limit, reading pauses
socket.listen.backlog.size | int | 50 | at least 1
    Maximum number of connections that wait to be accepted
socket.connection.setup.timeout.ms | long | 10000 | any value
    Initial timeout of a connection attempt to another broker
socket.connection.setup.timeout.max.ms | long | 30000 | any value
    Maximum timeout of a connection attempt to another broker
early.start.listeners | string | null | any value
    Listeners that open before the authorizer is ready
fetch.purgatory.purge.interval.requests | int | 1000 | any value
    Completed fetches are purged every N requests
producer.purgatory.purge.interval.requests | int | 1000 | any value
    Completed produce requests are purged every N requests
delete.records.purgatory.purge.interval.requests | int | 1 | any value
    Completed DeleteRecords requests are purged every N requests
inter.broker.protocol.version | string | 3.9-IV0 | a Kafka release
    Protocol version that brokers use with each other
unstable.api.versions.enable | boolean | false | any value | internal
    Enable API versions that are not released yet
unstable.feature.versions.enable | boolean | false | any value | internal
    Enable feature versions that are not released yet

# Logs, replication and elections
log.dir.failure.timeout.ms | long | 30000 | at least 1
    A broker with a failed log directory stops after this time if it cannot report the failure
replica.socket.receive.buffer.bytes | int | 65536 | any value
    Receive buffer of a follower's connection
unclean.leader.election.interval.ms | long | 300000 | at least 1 | internal
    Interval between unclean election attempts for offline partitions

# Policies
alter.config.policy.kraft.compatibility.enable | boolean | false | any value
    Call the class of alter.config.policy.class.name the way KRaft brokers do

# The new group coordinator, consumer protocol and share groups
group.coordinator.new.enable | boolean | false | any value | internal
    Use the new group coordinator
group.coordinator.threads | int | 1 | at least 1
    Number of threads of the new group coordinator
group.coordinator.append.linger.ms | int | 10 | at least 0
    How long the new group coordinator waits for more records before a write
group.consumer.min.session.timeout.ms | int | 45000 | at least 1
    Minimum session timeout of a consumer-protocol group
group.consumer.max.session.timeout.ms | int | 60000 | at least 1
    Maximum session timeout of a consumer-protocol group
group.consumer.min.heartbeat.interval.ms | int | 5000 | at least 1
    Minimum heartbeat interval of a consumer-protocol group
group.consumer.max.heartbeat.interval.ms | int | 15000 | at least 1
    Maximum heartbeat interval of a consumer-protocol group
group.consumer.assignors | list | \
org.apache.kafka.coordinator.group.assignor.UniformAssignor,\
org.apache.kafka.coordinator.group.assignor.RangeAssignor | any value
    Classes that assign partitions on the broker; the first is the default
group.share.enable | boolean | false | any value | internal
    Enable share groups
group.share.session.timeout.ms | int | 45000 | at least 1
    Session timeout of share-group members
group.share.min.session.timeout.ms | int | 45000 | at least 1
    Minimum session timeout of a share group
group.share.max.session.timeout.ms | int | 60000 | at least 1
    Maximum session timeout of a share group
group.share.heartbeat.interval.ms | int | 5000 | at least 1
    Heartbeat interval of share-group members
group.share.min.heartbeat.interval.ms | int | 5000 | at least 1
    Minimum heartbeat interval of a share group
group.share.max.heartbeat.interval.ms | int | 15000 | at least 1
    Maximum heartbeat interval of a share group
group.share.max.size | short | 200 | from 10 to 1000
    Maximum number of members in a share group
group.share.max.groups | short | 10 | from 1 to 100
    Maximum number of share groups per broker
group.share.delivery.count.limit | int | 5 | from 2 to 10
    Maximum number of delivery attempts for a record of a share group
group.share.record.lock.duration.ms | int | 30000 | from 1000 to 60000
    How long a member of a share group locks a delivered record
group.share.min.record.lock.duration.ms | int | 15000 | from 1000 to 30000
    Minimum record lock duration of a share group
group.share.max.record.lock.duration.ms | int | 60000 | from 30000 to 3600000
    Maximum record lock duration of a share group
group.share.partition.max.record.locks | int | 200 | from 100 to 10000
    Maximum number of locked records per partition of a share group

# KRaft
process.roles | list | "" | a list of broker, controller
    Roles of a KRaft node; empty: ZooKeeper mode
controller.listener.names | string | null | any value
    Listeners of a KRaft controller
controller.quorum.voters | list | "" | a list of id@host:port
    KRaft voters, as id@host:port,…
controller.quorum.bootstrap.servers | list | "" | a list of host:port
    Addresses to discover the KRaft quorum, as host:port,…
controller.quorum.election.timeout.ms | int | 1000 | any value
    Maximum wait without a leader before a KRaft election
controller.quorum.fetch.timeout.ms | int | 2000 | any value
    Maximum time between successful fetches from the KRaft leader
controller.quorum.election.backoff.max.ms | int | 1000 | any value
    Maximum backoff between KRaft elections
controller.quorum.append.linger.ms | int | 25 | any value
    How long the KRaft leader waits for more records before a write
controller.quorum.request.timeout.ms | int | 2000 | any value
    Maximum wait of a KRaft node for a response
controller.quorum.retry.backoff.ms | int | 20 | any value
    Backoff before a KRaft request is retried
initial.broker.registration.timeout.ms | int | 60000 | any value
    Timeout of a KRaft broker's first registration
broker.heartbeat.interval.ms | int | 2000 | any value
    Heartbeat interval of a KRaft broker
broker.session.timeout.ms | int | 9000 | any value
    A KRaft broker without a heartbeat for this long is fenced
server.max.startup.time.ms | long | 9223372036854775807 | at least 0 | internal
    Maximum startup time of a KRaft node
metadata.log.dir | string | null | any value
    Directory of the KRaft log
metadata.log.segment.bytes | int | 1073741824 | at least 12
    Segment size of the KRaft log
metadata.log.segment.min.bytes | int | 8388608 | at least 12 | internal
    Minimum segment size of the KRaft log
metadata.log.segment.ms | long | 604800000 | any value
    Maximum age of a segment of the KRaft log
metadata.log.max.record.bytes.between.snapshots | long | 20971520 | at least 1
    Bytes in the KRaft log after which a snapshot is taken
metadata.log.max.snapshot.interval.ms | long | 3600000 | at least 0
    Maximum time between snapshots of the KRaft log
metadata.max.retention.bytes | long | 104857600 | any value
    Maximum size of the KRaft log and its snapshots
metadata.max.retention.ms | long | 604800000 | any value
    Maximum age of the KRaft log and its snapshots
metadata.max.idle.interval.ms | int | 500 | at least 0
    Interval between no-op records of an idle KRaft leader
eligible.leader.replicas.enable | boolean | false | any value
    Track eligible leader replicas in addition to the ISR
zookeeper.metadata.migration.enable | boolean | false | any value
    Migrate the metadata from ZooKeeper to KRaft
zookeeper.metadata.migration.min.batch.size | int | 200 | at least 1 | internal
    Records per batch of the migration from ZooKeeper to KRaft
sasl.mechanism.controller.protocol | string | GSSAPI | any value
    SASL mechanism for connections to KRaft controllers

# ZooKeeper
zookeeper.ssl.crl.enable | boolean | false | any value
    Check ZooKeeper's certificate against revocation lists
zookeeper.ssl.ocsp.enable | boolean | false | any value
    Check ZooKeeper's certificate with OCSP

# TLS
ssl.provider | string | null | any value | per-broker
    Security provider for TLS
ssl.keymanager.algorithm | string | SunX509 | any value | per-broker
    Algorithm of the key manager
ssl.trustmanager.algorithm | string | PKIX | any value | per-broker
    Algorithm of the trust manager
ssl.secure.random.implementation | string | null | any value | per-broker
    Random number generator for TLS
ssl.engine.factory.class | class | null | any value | per-broker
    Class that creates TLS engines

# SASL and users
sasl.server.callback.handler.class | class | null | any value
    SASL callback handler class of the broker as a server
sasl.client.callback.handler.class | class | null | any value
    SASL callback handler class of the broker as a client
sasl.login.class | class | null | any value
    Class that performs SASL logins
sasl.login.callback.handler.class | class | null | any value
    Callback handler class of SASL logins
sasl.login.refresh.window.factor | double | 0.8 | any value | per-broker
    Fraction of a credential's lifetime after which it is refreshed
sasl.login.refresh.window.jitter | double | 0.05 | any value | per-broker
    Random fraction of the lifetime added to the refresh time
sasl.login.refresh.min.period.seconds | short | 60 | any value | per-broker
    Minimum time between refreshes of a credential
sasl.login.refresh.buffer.seconds | short | 300 | any value | per-broker
    Minimum time between a refresh and the expiry of the credential
sasl.login.connect.timeout.ms | int | null | any value
    Connection timeout of the token endpoint
sasl.login.read.timeout.ms | int | null | any value
    Read timeout of the token endpoint
sasl.login.retry.backoff.ms | long | 100 | any value
    Initial backoff between login attempts at the token endpoint
sasl.login.retry.backoff.max.ms | long | 10000 | any value
    Maximum backoff between login attempts at the token endpoint
sasl.kerberos.service.name | string | null | any value | per-broker
    Kerberos principal of the brokers
sasl.kerberos.kinit.cmd | string | /usr/bin/kinit | any value | per-broker
    Path of kinit
sasl.kerberos.ticket.renew.window.factor | double | 0.8 | any value | per-broker
    Fraction of a ticket's lifetime after which it is renewed
sasl.kerberos.ticket.renew.jitter | double | 0.05 | any value | per-broker
    Random fraction of the lifetime added to the renewal time
sasl.kerberos.min.time.before.relogin | long | 60000 | any value | per-broker
    Minimum time between Kerberos logins
sasl.kerberos.principal.to.local.rules | list | DEFAULT | any value | per-broker
    Rules that map a Kerberos principal to a user name
principal.builder.class | class | \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder | any value | per-broker
    Class that determines the principal of a client
security.providers | string | null | any value
    Additional Java security providers
password.encoder.secret | password | null | any value
    Secret that encrypts passwords stored in ZooKeeper
password.encoder.old.secret | password | null | any value
    Previous password.encoder.secret, during a change
password.encoder.keyfactory.algorithm | string | null | any value
    Key factory algorithm for passwords stored in ZooKeeper
password.encoder.cipher.algorithm | string | AES/CBC/PKCS5Padding | any value
    Cipher for passwords stored in ZooKeeper
password.encoder.key.length | int | 128 | at least 8
    Key length for passwords stored in ZooKeeper
password.encoder.iterations | int | 4096 | at least 1024
    Encryption iterations for passwords stored in ZooKeeper

# Quotas
alter.log.dirs.replication.quota.window.num | int | 11 | at least 1
    Number of windows kept for the quota of moves between log directories
alter.log.dirs.replication.quota.window.size.seconds | int | 1 | at least 1
    Length of a window for the quota of moves between log directories
client.quota.callback.class | class | null | any value
    Class that determines the quotas of clients

# Metrics
metrics.num.samples | int | 2 | at least 1
    Number of samples that a metric is computed from
metrics.sample.window.ms | long | 30000 | at least 1
    Length of one sample of a metric
metrics.recording.level | string | INFO | any value
    Highest recording level of metrics
metric.reporters | list | "" | any value | cluster-wide
    Classes that report metrics
auto.include.jmx.reporter | boolean | true | any value
    Always enable the JMX reporter, also if metric.reporters does not list it
kafka.metrics.reporters | list | "" | any value
    Classes that report Yammer metrics
kafka.metrics.polling.interval.secs | int | 10 | at least 1
    Polling interval of kafka.metrics.reporters
telemetry.max.bytes | int | 1048576 | at least 1
    Maximum size of the telemetry that a client pushes

# Remote storage
remote.log.storage.system.enable | boolean | false | any value
    Enable tiered storage
remote.log.storage.manager.class.name | string | null | not empty
    Class that stores segments remotely
remote.log.storage.manager.class.path | string | null | any value
    Class path of remote.log.storage.manager.class.name
remote.log.storage.manager.impl.prefix | string | rsm.config. | not empty
    Prefix of the settings passed to the remote storage class
remote.log.metadata.manager.class.name | string | \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager | not empty
    Class that stores metadata of remote segments
remote.log.metadata.manager.class.path | string | null | any value
    Class path of remote.log.metadata.manager.class.name
remote.log.metadata.manager.impl.prefix | string | rlmm.config. | not empty
    Prefix of the settings passed to the remote metadata class
remote.log.metadata.manager.listener.name | string | null | not empty
    Listener that the remote metadata class connects to
remote.log.metadata.custom.metadata.max.bytes | int | 128 | at least 0
    Maximum size of custom metadata of a remote segment
remote.log.index.file.cache.total.size.bytes | long | 1073741824 | at least 1 | cluster-wide
    Local disk space for the indexes of remote segments
remote.log.manager.thread.pool.size | int | 10 | at least 1
    Number of threads that copy and expire remote segments
remote.log.manager.copier.thread.pool.size | int | -1 | -1 or at least 1
    Number of threads that copy segments to remote storage; -1: remote.log.manager.thread.pool.size
remote.log.manager.expiration.thread.pool.size | int | -1 | -1 or at least 1
    Number of threads that expire remote segments; -1: remote.log.manager.thread.pool.size
remote.log.manager.task.interval.ms | long | 30000 | at least 1
    Interval between checks for segments to copy to remote storage
remote.log.manager.task.retry.backoff.ms | long | 500 | at least 1 | internal
    Initial backoff after a failed copy to remote storage
remote.log.manager.task.retry.backoff.max.ms | long | 30000 | at least 1 | internal
    Maximum backoff after a failed copy to remote storage
remote.log.manager.task.retry.jitter | double | 0.2 | from 0 to 0.5 | internal
    Random fraction of the backoff after a failed copy to remote storage
remote.log.manager.copy.max.bytes.per.second | long | 9223372036854775807 | \
at least 1 | cluster-wide
    Maximum bytes per second copied to remote storage
remote.log.manager.copy.quota.window.num | int | 11 | at least 1
    Number of windows kept for the quota of copies to remote storage
remote.log.manager.copy.quota.window.size.seconds | int | 1 | at least 1
    Length of a window for the quota of copies to remote storage
remote.log.manager.fetch.max.bytes.per.second | long | 9223372036854775807 | \
at least 1 | cluster-wide
    Maximum bytes per second read from remote storage
remote.log.manager.fetch.quota.window.num | int | 11 | at least 1
    Number of windows kept for the quota of reads from remote storage
remote.log.manager.fetch.quota.window.size.seconds | int | 1 | at least 1
    Length of a window for the quota of reads from remote storage
remote.log.reader.threads | int | 10 | at least 1
    Number of threads that read remote segments
remote.log.reader.max.pending.tasks | int | 100 | at least 1
    Maximum number of pending remote reads
remote.fetch.max.wait.ms | int | 500 | at least 1 | cluster-wide
    Maximum wait of a fetch for remote storage
"""

# Settings that Kafka passes to plugin classes. Kafka has no list of them.
PLUGIN_SETTINGS = ("super.users", "allow.everyone.if.no.acl.found", "config.providers")
PLUGIN_PREFIXES = ("authorizer.", "config.providers.", "metrics.context.", "rlmm.", "rsm.")


def is_plugin_setting(name: str) -> bool:
    return name in PLUGIN_SETTINGS or name.startswith(PLUGIN_PREFIXES)


WITHOUT_EFFECT: dict[str, Setting] = read_table(TABLE)
