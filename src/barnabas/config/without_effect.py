"""Kafka's settings that Barnabas reads, checks and does not act on.

A file written for Kafka is taken as it is: these settings are accepted and named in one warning, so
that nobody believes they do something. When one begins to, its row moves to broker.py.

A row: name | type | default | what is allowed | how it may be updated (read-only where not said),
and under it what it does in Kafka. Settings Kafka does not document are marked internal.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from barnabas.config.setting import (
    ANY,
    NOT_EMPTY,
    READ_ONLY,
    RELEASE,
    Check,
    Kind,
    Setting,
    Update,
    at_least,
    between,
    each_of,
    one_of,
)

TABLE = """
# Threads, queues and sockets
num.network.threads | int | 3 | at least 1 | cluster-wide
    threads of Kafka's that read requests and write answers
num.io.threads | int | 8 | at least 1 | cluster-wide
    threads of Kafka's that work on requests
background.threads | int | 10 | at least 1 | cluster-wide
    threads of Kafka's for deferred work
num.replica.alter.log.dirs.threads | int | null | any value
    threads that move replicas between log directories
queued.max.requests | int | 500 | at least 1
    requests waiting for a thread before reading pauses
max.connection.creation.rate | int | 2147483647 | at least 0 | cluster-wide
    new connections accepted in a second
max.request.partition.size.limit | int | 2000 | at least 1
    partitions one request may describe
socket.connection.setup.timeout.ms | long | 10000 | any value
    first wait for a connection to another broker
socket.connection.setup.timeout.max.ms | long | 30000 | any value
    longest wait for a connection to another broker
control.plane.listener.name | string | null | any value
    a listener kept for the controller's requests
early.start.listeners | string | null | any value
    listeners opened before the authorizer is ready
fetch.purgatory.purge.interval.requests | int | 1000 | any value
    how often answered fetches are cleared out, counted in requests
producer.purgatory.purge.interval.requests | int | 1000 | any value
    how often answered produces are cleared out, counted in requests
delete.records.purgatory.purge.interval.requests | int | 1 | any value
    how often answered record deletions are cleared out, in requests
inter.broker.protocol.version | string | 3.9-IV0 | a Kafka release
    release whose protocol brokers speak with each other
unstable.api.versions.enable | boolean | false | any value | internal
    offer versions of APIs that are not released
unstable.feature.versions.enable | boolean | false | any value | internal
    allow feature levels that are not released

# Policies
create.topic.policy.class.name | class | null | any value
    class that may refuse the creation of a topic
alter.config.policy.class.name | class | null | any value
    class that may refuse a change of settings
alter.config.policy.kraft.compatibility.enable | boolean | false | any value
    tell that class of a change as brokers without ZooKeeper do
authorizer.class.name | string | "" | any value
    class that decides who may do what; empty: everybody may do everything

# Transactions
transaction.max.timeout.ms | int | 900000 | at least 1
    longest transaction a producer may ask for
transactional.id.expiration.ms | int | 604800000 | at least 1
    a transactional id unused this long is forgotten
transaction.partition.verification.enable | boolean | true | any value | cluster-wide
    check that a partition was added to the transaction writing to it
transaction.abort.timed.out.transaction.cleanup.interval.ms | int | 10000 | at least 1
    how often transactions past their time are aborted
transaction.remove.expired.transaction.cleanup.interval.ms | int | 3600000 | at least 1
    how often forgotten transactional ids are cleared out
transaction.state.log.load.buffer.size | int | 5242880 | at least 1
    bytes read at a time when transactions are loaded

# The newer group protocols
group.coordinator.rebalance.protocols | list | classic | a list of consumer, classic, share, unknown
    group protocols that are offered
group.coordinator.new.enable | boolean | false | any value | internal
    use Kafka's newer group coordinator
group.coordinator.threads | int | 1 | at least 1
    threads of the newer group coordinator
group.coordinator.append.linger.ms | int | 10 | at least 0
    wait for more group records before they are written
group.consumer.session.timeout.ms | int | 45000 | at least 1
    session timeout of consumer-protocol members
group.consumer.min.session.timeout.ms | int | 45000 | at least 1
    lowest session timeout a consumer-protocol group may set
group.consumer.max.session.timeout.ms | int | 60000 | at least 1
    highest session timeout a consumer-protocol group may set
group.consumer.heartbeat.interval.ms | int | 5000 | at least 1
    heartbeat interval of consumer-protocol members
group.consumer.min.heartbeat.interval.ms | int | 5000 | at least 1
    lowest heartbeat interval a consumer-protocol group may set
group.consumer.max.heartbeat.interval.ms | int | 15000 | at least 1
    highest heartbeat interval a consumer-protocol group may set
group.consumer.max.size | int | 2147483647 | at least 1
    members of one consumer-protocol group
group.consumer.assignors | list | \
org.apache.kafka.coordinator.group.assignor.UniformAssignor,\
org.apache.kafka.coordinator.group.assignor.RangeAssignor | any value
    classes that assign partitions on the broker, the first by default
group.consumer.migration.policy | string | disabled | \
one of bidirectional, upgrade, downgrade, disabled | internal
    which ways groups may move between the protocols
group.share.enable | boolean | false | any value | internal
    offer share groups
group.share.session.timeout.ms | int | 45000 | at least 1
    session timeout of share-group members
group.share.min.session.timeout.ms | int | 45000 | at least 1
    lowest session timeout a share group may set
group.share.max.session.timeout.ms | int | 60000 | at least 1
    highest session timeout a share group may set
group.share.heartbeat.interval.ms | int | 5000 | at least 1
    heartbeat interval of share-group members
group.share.min.heartbeat.interval.ms | int | 5000 | at least 1
    lowest heartbeat interval a share group may set
group.share.max.heartbeat.interval.ms | int | 15000 | at least 1
    highest heartbeat interval a share group may set
group.share.max.size | short | 200 | from 10 to 1000
    members of one share group
group.share.max.groups | short | 10 | from 1 to 100
    share groups on one broker
group.share.delivery.count.limit | int | 5 | from 2 to 10
    attempts to deliver a record to a share group
group.share.record.lock.duration.ms | int | 30000 | from 1000 to 60000
    how long a member holds a record it was given
group.share.min.record.lock.duration.ms | int | 15000 | from 1000 to 30000
    lowest hold on a record a share group may set
group.share.max.record.lock.duration.ms | int | 60000 | from 30000 to 3600000
    highest hold on a record a share group may set
group.share.partition.max.record.locks | int | 200 | from 100 to 10000
    records of one partition held at one time

# KRaft
process.roles | list | "" | a list of broker, controller
    roles of a KRaft node; empty: metadata in ZooKeeper
controller.listener.names | string | null | any value
    listeners of a KRaft controller
controller.quorum.voters | list | "" | a list of id@host:port
    the KRaft voters, as id@host:port,…
controller.quorum.bootstrap.servers | list | "" | a list of host:port
    where KRaft voters are found, as host:port,…
controller.quorum.election.timeout.ms | int | 1000 | any value
    silence of the leader before a KRaft election
controller.quorum.fetch.timeout.ms | int | 2000 | any value
    longest time between a KRaft voter's fetches
controller.quorum.election.backoff.max.ms | int | 1000 | any value
    longest rest between KRaft elections
controller.quorum.append.linger.ms | int | 25 | any value
    wait of the KRaft leader for more records
controller.quorum.request.timeout.ms | int | 2000 | any value
    how long KRaft nodes wait for an answer
controller.quorum.retry.backoff.ms | int | 20 | any value
    rest before a KRaft request is repeated
initial.broker.registration.timeout.ms | int | 60000 | any value
    how long a KRaft broker tries to register
broker.heartbeat.interval.ms | int | 2000 | any value
    heartbeats of a KRaft broker
broker.session.timeout.ms | int | 9000 | any value
    a KRaft broker silent this long is fenced
server.max.startup.time.ms | long | 9223372036854775807 | at least 0 | internal
    longest start of a KRaft node
metadata.log.dir | string | null | any value
    directory of the KRaft log
metadata.log.segment.bytes | int | 1073741824 | at least 12
    segment size of the KRaft log
metadata.log.segment.min.bytes | int | 8388608 | at least 12 | internal
    smallest segment size of the KRaft log
metadata.log.segment.ms | long | 604800000 | any value
    segment age of the KRaft log
metadata.log.max.record.bytes.between.snapshots | long | 20971520 | at least 1
    bytes of the KRaft log that call for a snapshot
metadata.log.max.snapshot.interval.ms | long | 3600000 | at least 0
    time after which the KRaft log calls for a snapshot
metadata.max.retention.bytes | long | 104857600 | any value
    size of KRaft log and snapshots before old ones go
metadata.max.retention.ms | long | 604800000 | any value
    age of KRaft log and snapshots before they go
metadata.max.idle.interval.ms | int | 500 | at least 0
    how often an idle KRaft leader writes a no-op
eligible.leader.replicas.enable | boolean | false | any value
    keep a list of eligible leaders beside the in-sync replicas
zookeeper.metadata.migration.enable | boolean | false | any value
    move the metadata from ZooKeeper to KRaft
zookeeper.metadata.migration.min.batch.size | int | 200 | at least 1 | internal
    records per batch of a move from ZooKeeper to KRaft
sasl.mechanism.controller.protocol | string | GSSAPI | any value
    SASL mechanism towards KRaft controllers

# ZooKeeper over TLS
zookeeper.set.acl | boolean | false | any value
    write znodes with access lists
zookeeper.clientCnxnSocket | string | null | any value
    class of the ZooKeeper client's socket
zookeeper.ssl.client.enable | boolean | false | any value
    connect to ZooKeeper over TLS
zookeeper.ssl.protocol | string | TLSv1.2 | any value
    TLS version towards ZooKeeper
zookeeper.ssl.enabled.protocols | list | null | any value
    TLS versions allowed towards ZooKeeper
zookeeper.ssl.cipher.suites | list | null | any value
    ciphers allowed towards ZooKeeper
zookeeper.ssl.endpoint.identification.algorithm | string | HTTPS | any value
    how ZooKeeper's host name is checked
zookeeper.ssl.crl.enable | boolean | false | any value
    ask revocation lists about ZooKeeper's certificate
zookeeper.ssl.ocsp.enable | boolean | false | any value
    ask OCSP about ZooKeeper's certificate
zookeeper.ssl.keystore.location | string | null | any value
    key store towards ZooKeeper
zookeeper.ssl.keystore.password | password | null | any value
    password of the key store towards ZooKeeper
zookeeper.ssl.keystore.type | string | null | any value
    format of the key store towards ZooKeeper
zookeeper.ssl.truststore.location | string | null | any value
    trust store towards ZooKeeper
zookeeper.ssl.truststore.password | password | null | any value
    password of the trust store towards ZooKeeper
zookeeper.ssl.truststore.type | string | null | any value
    format of the trust store towards ZooKeeper

# TLS
ssl.protocol | string | TLSv1.3 | any value | per-broker
    TLS version
ssl.enabled.protocols | list | TLSv1.2,TLSv1.3 | any value | per-broker
    TLS versions allowed
ssl.cipher.suites | list | "" | any value | per-broker
    ciphers allowed for TLS
ssl.provider | string | null | any value | per-broker
    security provider for TLS
ssl.client.auth | string | none | one of required, requested, none | per-broker
    whether clients must show a certificate
ssl.keystore.type | string | JKS | any value | per-broker
    format of the key store
ssl.keystore.location | string | null | any value | per-broker
    file of the key store
ssl.keystore.password | password | null | any value | per-broker
    password of the key store
ssl.keystore.key | password | null | any value | per-broker
    private key, in place of a key store file
ssl.keystore.certificate.chain | password | null | any value | per-broker
    certificate chain, in place of a key store file
ssl.key.password | password | null | any value | per-broker
    password of the private key
ssl.truststore.type | string | JKS | any value | per-broker
    format of the trust store
ssl.truststore.location | string | null | any value | per-broker
    file of the trust store
ssl.truststore.password | password | null | any value | per-broker
    password of the trust store
ssl.truststore.certificates | password | null | any value | per-broker
    trusted certificates, in place of a trust store file
ssl.keymanager.algorithm | string | SunX509 | any value | per-broker
    algorithm of the key manager
ssl.trustmanager.algorithm | string | PKIX | any value | per-broker
    algorithm of the trust manager
ssl.endpoint.identification.algorithm | string | https | any value | per-broker
    how a server's host name is checked
ssl.secure.random.implementation | string | null | any value | per-broker
    source of random numbers for TLS
ssl.engine.factory.class | class | null | any value | per-broker
    class that makes TLS engines
ssl.principal.mapping.rules | string | DEFAULT | any value
    rules from a certificate's name to a user's
ssl.allow.dn.changes | boolean | false | any value
    let a renewed certificate carry another distinguished name
ssl.allow.san.changes | boolean | false | any value
    let a renewed certificate carry other alternative names

# SASL and users
sasl.enabled.mechanisms | list | GSSAPI | any value | per-broker
    mechanisms offered
sasl.mechanism.inter.broker.protocol | string | GSSAPI | any value | per-broker
    mechanism brokers use with each other
sasl.jaas.config | password | null | any value | per-broker
    login module and its options
sasl.server.callback.handler.class | class | null | any value
    class that answers the server's login questions
sasl.client.callback.handler.class | class | null | any value
    class that answers the client's login questions
sasl.server.max.receive.size | int | 524288 | any value
    largest message before a client is known
sasl.login.class | class | null | any value
    class that logs in
sasl.login.callback.handler.class | class | null | any value
    class that answers the login module's questions
sasl.login.refresh.window.factor | double | 0.8 | any value | per-broker
    part of a login's life after which it is renewed
sasl.login.refresh.window.jitter | double | 0.05 | any value | per-broker
    random part added to the time of a login's renewal
sasl.login.refresh.min.period.seconds | short | 60 | any value | per-broker
    shortest time between renewals
sasl.login.refresh.buffer.seconds | short | 300 | any value | per-broker
    time kept free before a login ends
sasl.login.connect.timeout.ms | int | null | any value
    wait for a connection to the token endpoint
sasl.login.read.timeout.ms | int | null | any value
    wait for the token endpoint's answer
sasl.login.retry.backoff.ms | long | 100 | any value
    first rest before the token endpoint is asked again
sasl.login.retry.backoff.max.ms | long | 10000 | any value
    longest rest before the token endpoint is asked again
sasl.kerberos.service.name | string | null | any value | per-broker
    Kerberos principal the brokers run as
sasl.kerberos.kinit.cmd | string | /usr/bin/kinit | any value | per-broker
    path of kinit
sasl.kerberos.ticket.renew.window.factor | double | 0.8 | any value | per-broker
    part of a ticket's life after which it is renewed
sasl.kerberos.ticket.renew.jitter | double | 0.05 | any value | per-broker
    random part added to the time of a ticket's renewal
sasl.kerberos.min.time.before.relogin | long | 60000 | any value | per-broker
    shortest time between Kerberos logins
sasl.kerberos.principal.to.local.rules | list | DEFAULT | any value | per-broker
    rules from a Kerberos principal to a user's name
sasl.oauthbearer.scope.claim.name | string | scope | any value
    claim that holds the scope
sasl.oauthbearer.sub.claim.name | string | sub | any value
    claim that holds the subject
sasl.oauthbearer.token.endpoint.url | string | null | any value
    where tokens are fetched
sasl.oauthbearer.jwks.endpoint.url | string | null | any value
    where signing keys are fetched
sasl.oauthbearer.jwks.endpoint.refresh.ms | long | 3600000 | any value
    how often signing keys are fetched anew
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | long | 100 | any value
    first rest before keys are asked for again
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | long | 10000 | any value
    longest rest before keys are asked for again
sasl.oauthbearer.clock.skew.seconds | int | 30 | any value
    difference of clocks that is forgiven
sasl.oauthbearer.expected.audience | list | null | any value
    audiences a token may be meant for
sasl.oauthbearer.expected.issuer | string | null | any value
    issuer a token must come from
connections.max.reauth.ms | long | 0 | any value
    time after which a client must log in again; 0: never
connection.failed.authentication.delay.ms | int | 100 | at least 0
    wait before a failed login's connection is closed
principal.builder.class | class | \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder | any value | per-broker
    class that tells who a client is
security.providers | string | null | any value
    further Java security providers
delegation.token.secret.key | password | null | any value
    key that signs delegation tokens
delegation.token.master.key | password | null | any value
    older name of delegation.token.secret.key
delegation.token.max.lifetime.ms | long | 604800000 | at least 1
    longest life of a delegation token
delegation.token.expiry.time.ms | long | 86400000 | at least 1
    life of a delegation token before it must be renewed
delegation.token.expiry.check.interval.ms | long | 3600000 | at least 1
    how often ended tokens are cleared out
password.encoder.secret | password | null | any value
    secret that encrypts passwords stored in ZooKeeper
password.encoder.old.secret | password | null | any value
    the former password.encoder.secret, while it is replaced
password.encoder.keyfactory.algorithm | string | null | any value
    key factory for the passwords stored in ZooKeeper
password.encoder.cipher.algorithm | string | AES/CBC/PKCS5Padding | any value
    cipher for the passwords stored in ZooKeeper
password.encoder.key.length | int | 128 | at least 8
    key length for the passwords stored in ZooKeeper
password.encoder.iterations | int | 4096 | at least 1024
    rounds of encryption for the passwords stored in ZooKeeper

# Quotas
quota.window.num | int | 11 | at least 1
    windows remembered for client quotas
quota.window.size.seconds | int | 1 | at least 1
    length of one window of client quotas
alter.log.dirs.replication.quota.window.num | int | 11 | at least 1
    windows remembered for moves between log directories
alter.log.dirs.replication.quota.window.size.seconds | int | 1 | at least 1
    length of one window of quotas on moves between log directories
controller.quota.window.num | int | 11 | at least 1
    windows remembered for controller quotas
controller.quota.window.size.seconds | int | 1 | at least 1
    length of one window of controller quotas
client.quota.callback.class | class | null | any value
    class that decides a client's quota

# Metrics
metrics.num.samples | int | 2 | at least 1
    samples a metric is computed from
metrics.sample.window.ms | long | 30000 | at least 1
    time one sample covers
metrics.recording.level | string | INFO | any value
    how much is measured
metric.reporters | list | "" | any value | cluster-wide
    classes that report metrics
auto.include.jmx.reporter | boolean | true | any value
    report by JMX whatever metric.reporters says
kafka.metrics.reporters | list | "" | any value
    classes that report the older metrics
kafka.metrics.polling.interval.secs | int | 10 | at least 1
    how often kafka.metrics.reporters poll
telemetry.max.bytes | int | 1048576 | at least 1
    largest telemetry a client may push

# Remote storage
remote.log.storage.system.enable | boolean | false | any value
    keep closed segments in remote storage as well
remote.log.storage.manager.class.name | string | null | not empty
    class that stores segments remotely
remote.log.storage.manager.class.path | string | null | any value
    where remote.log.storage.manager.class.name is found
remote.log.storage.manager.impl.prefix | string | rsm.config. | not empty
    prefix of the settings handed to the remote storage class
remote.log.metadata.manager.class.name | string | \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager | not empty
    class that remembers what is stored remotely
remote.log.metadata.manager.class.path | string | null | any value
    where remote.log.metadata.manager.class.name is found
remote.log.metadata.manager.impl.prefix | string | rlmm.config. | not empty
    prefix of the settings handed to the remote metadata class
remote.log.metadata.manager.listener.name | string | null | not empty
    listener the remote metadata class connects to
remote.log.metadata.custom.metadata.max.bytes | int | 128 | at least 0
    largest note the storage may keep with a segment
remote.log.index.file.cache.total.size.bytes | long | 1073741824 | at least 1 | cluster-wide
    local room for indexes of remote segments
remote.log.manager.thread.pool.size | int | 10 | at least 1
    threads that move and expire remote segments
remote.log.manager.copier.thread.pool.size | int | -1 | -1 or at least 1
    threads that copy segments; -1: remote.log.manager.thread.pool.size
remote.log.manager.expiration.thread.pool.size | int | -1 | -1 or at least 1
    threads that expire segments; -1: remote.log.manager.thread.pool.size
remote.log.manager.task.interval.ms | long | 30000 | at least 1
    how often segments to move are looked for
remote.log.manager.task.retry.backoff.ms | long | 500 | at least 1 | internal
    first rest after a failed move
remote.log.manager.task.retry.backoff.max.ms | long | 30000 | at least 1 | internal
    longest rest after a failed move
remote.log.manager.task.retry.jitter | double | 0.2 | from 0 to 0.5 | internal
    random part of the rest after a failed move
remote.log.manager.copy.max.bytes.per.second | long | 9223372036854775807 | \
at least 1 | cluster-wide
    speed limit of copying to remote storage
remote.log.manager.copy.quota.window.num | int | 11 | at least 1
    windows remembered for the limit on copying
remote.log.manager.copy.quota.window.size.seconds | int | 1 | at least 1
    length of one window of the limit on copying
remote.log.manager.fetch.max.bytes.per.second | long | 9223372036854775807 | \
at least 1 | cluster-wide
    speed limit of reading from remote storage
remote.log.manager.fetch.quota.window.num | int | 11 | at least 1
    windows remembered for the limit on reading
remote.log.manager.fetch.quota.window.size.seconds | int | 1 | at least 1
    length of one window of the limit on reading
remote.log.reader.threads | int | 10 | at least 1
    threads that read remote segments
remote.log.reader.max.pending.tasks | int | 100 | at least 1
    remote reads that may wait
remote.fetch.max.wait.ms | int | 500 | at least 1 | cluster-wide
    longest wait of a fetch for remote storage
"""

# Settings that classes loaded into Kafka read for themselves, of which Kafka keeps no list.
PLUGIN_SETTINGS = ("super.users", "allow.everyone.if.no.acl.found", "config.providers")
PLUGIN_PREFIXES = ("authorizer.", "config.providers.", "metrics.context.", "rlmm.", "rsm.")


# Declared in broker.py, since what must hold between settings is checked; until something acts on them they are named
# in the warning as well.
NOT_YET = frozenset(
    [
        "socket.listen.backlog.size",
        "num.recovery.threads.per.data.dir",
        "log.dir.failure.timeout.ms",
        "replica.socket.receive.buffer.bytes",
        "unclean.leader.election.interval.ms",
    ]
)


def is_for_a_plugin(name: str) -> bool:
    return name in PLUGIN_SETTINGS or name.startswith(PLUGIN_PREFIXES)


def read_table(table: str) -> dict[str, Setting]:
    lines = [line for line in table.splitlines() if line and not line.startswith("#")]
    rows = zip(lines[::2], lines[1::2], strict=True)
    return {declared.name: declared for declared in (read_row(row, doc) for row, doc in rows)}


def read_row(row: str, doc: str) -> Setting:
    name, kind, default, allowed, *update = row.split(" | ")
    declared = Setting(
        name=name,
        kind=Kind[kind.upper()],
        default=None,
        check=read_check(allowed),
        doc=doc.strip(),
        update=Update(update[0]) if update and update[0] != "internal" else READ_ONLY,
        internal=update == ["internal"],
    )
    if default == "null":
        return declared
    return replace(declared, default=declared.parse("" if default == '""' else default))


def read_check(allowed: str) -> Check:
    if allowed in NAMED_CHECKS:
        return NAMED_CHECKS[allowed]
    if match := re.fullmatch("at least (.+)", allowed):
        return at_least(int(match[1]))
    if match := re.fullmatch("from (.+) to (.+)", allowed):
        low, high = match.groups()
        return between(int(low), float(high) if "." in high else int(high))
    if match := re.fullmatch("one of (.+)", allowed):
        return one_of(*match[1].split(", "))
    match = re.fullmatch("a list of (.+)", allowed)
    assert match, f"no check is called {allowed!r}"
    return each_of(*match[1].split(", "))


def each_like(pattern: str, allowed: str) -> Check:
    return Check(allowed, lambda value: all(re.fullmatch(pattern, each) for each in value))


NAMED_CHECKS = {
    check.allowed: check
    for check in (
        ANY,
        NOT_EMPTY,
        RELEASE,
        Check("-1 or at least 1", lambda value: value == -1 or value >= 1),
        each_like(r"\d+@.+:\d+", "a list of id@host:port"),
        each_like(r".+:\d+", "a list of host:port"),
    )
}

WITHOUT_EFFECT: dict[str, Setting] = read_table(TABLE)
