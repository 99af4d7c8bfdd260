"""Settings that change while a cluster runs: logs, elections, listeners, fetchers, throttles, and absent brokers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest

from barnabas import LocalCluster
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import (
    DEFAULT_NAME,
    ConfigAdmin,
    ConfigChange,
    ConfigResource,
    QuotaEntity,
    QuotaFilter,
)
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata import znodes
from barnabas.replication.partition import Partition
from barnabas.storage.log import Log
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.describe_client_quotas import QuotaMatch
from barnabas.wire.messages.describe_configs import ConfigSource, ResourceType
from support.waiting import eventually
from tests.compatibility.raw import Raw, recent_batch_of, wait_until_known
from tests.settings import alter

NUMBERS = count()
TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
SETTINGS = {
    "log.retention.check.interval.ms": "50",
    "log.initial.task.delay.ms": "0",
    "replica.fetch.backoff.ms": "20",
    "log.segment.delete.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "zookeeper.session.timeout.ms": "1500",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Cluster]:
    start_all(cluster)
    with Cluster(cluster.bootstrap_servers) as client:
        yield client
    start_all(cluster)


@pytest.fixture
def configs(client: Cluster) -> Iterator[ConfigAdmin]:
    configs = ConfigAdmin(client)
    yield configs
    reset: dict[ConfigResource, dict[str, str | None]] = {
        ConfigResource(BROKER, name): {} for name in ("", "1", "2", "3")
    }
    configs.alter_configs(reset)


def start_all(cluster: LocalCluster) -> None:
    for broker in cluster.brokers.values():
        broker.start()


def new_topic(cluster: LocalCluster, *replicas: int, partitions: int = 1) -> str:
    name = f"dynamic-{next(NUMBERS)}"
    assigned = tuple(CreatableReplicaAssignment(n, replicas) for n in range(partitions))
    assert cluster.controller_id is not None
    with Raw(cluster.brokers[cluster.controller_id].address) as raw:
        request = CreateTopicsRequest(topics=(CreatableTopic(name, -1, -1, assigned),))
        (made,) = raw.ask(request, CreateTopicsResponse).topics
    assert made.error_code == ErrorCode.NONE, made
    wait_until_known([broker.address for broker in cluster.brokers.values()], name)
    return name


def log_of(cluster: LocalCluster, broker: int, topic: str) -> Log:
    return partition_of(cluster, broker, topic).log


def partition_of(cluster: LocalCluster, broker: int, topic: str) -> Partition:
    life = cluster.brokers[broker].instance
    assert life is not None
    assert life.broker.replicas is not None
    return life.broker.replicas.partitions[topic, 0]


def produce(cluster: LocalCluster, broker: int, topic: str, value: bytes) -> None:
    with Raw(cluster.brokers[broker].address) as raw:
        eventually(
            lambda: raw.produce(topic, recent_batch_of(value), acks=1).error_code == ErrorCode.NONE,
            "the record is written",
        )


def leader_of(client: Cluster, topic: str) -> int | None:
    return client.refresh([topic]).topics[topic].partitions[0].leader


def isr_of(client: Cluster, topic: str) -> set[int]:
    return set(client.refresh([topic]).topics[topic].partitions[0].isr)


def write_registry(cluster: LocalCluster, path: str, data: bytes) -> None:
    """Write a znode without a notification, as an interrupted tool would."""
    registry, keeper = cluster.cluster.open_registry()

    async def write() -> None:
        session = await registry.connect(10_000)
        if await session.exists(path) is None:
            await session.create(path, data)
        else:
            await session.set(path, data)
        await session.close()

    keeper.run(write())


def remove_notifications(cluster: LocalCluster) -> None:
    registry, keeper = cluster.cluster.open_registry()

    async def remove() -> None:
        session = await registry.connect(10_000)
        for name in await session.children(znodes.CONFIG_CHANGES):
            await session.delete(f"{znodes.CONFIG_CHANGES}/{name}")
        await session.close()

    keeper.run(remove())


# ---- logs


def test_retention_changes_without_restart(cluster: LocalCluster, configs: ConfigAdmin) -> None:
    topic = new_topic(cluster, 1)
    alter(configs, TOPIC, topic, segment_bytes="1000")
    log = log_of(cluster, 1, topic)
    eventually(lambda: log.config.segment_bytes == 1000, "small segments")
    for _ in range(5):
        produce(cluster, 1, topic, b"x" * 900)
    assert log.log_start_offset == 0
    alter(configs, TOPIC, topic, retention_bytes="0")
    eventually(lambda: log.log_start_offset > 0, "old segments are deleted")


def test_default_retention_changes_without_restart(
    cluster: LocalCluster, configs: ConfigAdmin
) -> None:
    topic, other = new_topic(cluster, 2), new_topic(cluster, 2)
    alter(configs, TOPIC, other, retention_bytes="-1")
    alter(configs, BROKER, "", log_segment_bytes="1000")
    log, kept = log_of(cluster, 2, topic), log_of(cluster, 2, other)
    eventually(lambda: log.config.segment_bytes == kept.config.segment_bytes == 1000, "applied")
    for _ in range(5):
        produce(cluster, 2, topic, b"x" * 900)
        produce(cluster, 2, other, b"x" * 900)
    alter(configs, BROKER, "", log_retention_bytes="0")
    eventually(lambda: log.log_start_offset > 0, "old segments are deleted")
    assert (kept.config.retention_bytes, kept.log_start_offset) == (-1, 0)


# ---- absent brokers


def test_broker_that_was_down_applies_changes_at_its_start(
    cluster: LocalCluster, configs: ConfigAdmin
) -> None:
    topic = new_topic(cluster, 3)
    cluster.brokers[3].stop()
    alter(configs, TOPIC, topic, max_message_bytes="123")
    alter(configs, BROKER, "", log_index_interval_bytes="77", max_connections="55")
    remove_notifications(cluster)
    cluster.brokers[3].start()
    config = log_of(cluster, 3, topic).config
    assert (config.max_message_bytes, config.index_interval_bytes) == (123, 77)
    (entries,) = configs.describe_configs([ConfigResource(BROKER, "3")]).values()
    assert not isinstance(entries, ApiError)
    (found,) = [entry for entry in entries if entry.name == "max.connections"]
    assert (found.value, found.source) == ("55", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_write_without_notification_is_applied_at_the_next_start(
    cluster: LocalCluster, client: Cluster
) -> None:
    topic = new_topic(cluster, 3)
    settings = znodes.encode_config({"max.message.bytes": "321"})
    write_registry(cluster, znodes.topic_config_path(topic), settings)
    assert log_of(cluster, 3, topic).config.max_message_bytes == 1_048_588
    cluster.brokers[3].kill()
    cluster.brokers[3].start()
    assert log_of(cluster, 3, topic).config.max_message_bytes == 321


def test_expired_session_reads_all_settings_again(
    cluster: LocalCluster, configs: ConfigAdmin
) -> None:
    assert cluster.controller_id is not None
    broker = next(each for each in cluster.brokers if each != cluster.controller_id)
    topic = new_topic(cluster, broker)
    log = log_of(cluster, broker, topic)
    cluster.brokers[broker].pause()
    try:
        alter(configs, TOPIC, topic, max_message_bytes="222")
        eventually(
            lambda: broker not in configs.cluster.refresh([]).brokers, "its session has expired"
        )
        remove_notifications(cluster)
    finally:
        cluster.brokers[broker].resume()
    eventually(lambda: log.config.max_message_bytes == 222, "the change is applied")
    # The new session watches for notifications too.
    alter(configs, TOPIC, topic, max_message_bytes="333")
    eventually(lambda: log.config.max_message_bytes == 333, "the next change is applied")


@pytest.mark.parametrize(
    "data", [b"not json", b'{"version":1,"config":[]}', b'{"version":1,"config":{"no.such":"1"}}']
)
def test_broker_starts_with_invalid_dynamic_settings(
    cluster: LocalCluster, configs: ConfigAdmin, data: bytes
) -> None:
    cluster.brokers[3].stop()
    write_registry(cluster, znodes.config_path("brokers", "3"), data)
    cluster.brokers[3].start()
    alter(configs, BROKER, "3", max_connections="99")
    life = cluster.brokers[3].instance
    assert life is not None
    assert life.broker.current.value.max_connections == 99


# ---- elections


@pytest.mark.parametrize("level", ["topic", "cluster"])
def test_allowed_unclean_election_brings_a_partition_online(
    cluster: LocalCluster, configs: ConfigAdmin, client: Cluster, level: str
) -> None:
    topic = new_topic(cluster, 1, 2)
    cluster.brokers[2].kill()
    eventually(lambda: isr_of(client, topic) == {1}, "broker 1 is the last in-sync replica")
    cluster.brokers[1].kill()
    cluster.brokers[2].start()
    assert leader_of(client, topic) == -1
    if level == "topic":
        alter(configs, TOPIC, topic, unclean_leader_election_enable="true")
    else:
        alter(configs, BROKER, "", unclean_leader_election_enable="true")
    eventually(lambda: leader_of(client, topic) == 2, "broker 2 leads")


# ---- components


def test_listener_is_added_moved_and_removed(cluster: LocalCluster, configs: ConfigAdmin) -> None:
    life = cluster.brokers[1].instance
    assert life is not None
    server = life.broker
    first = server.endpoints[0]
    protocols = "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"
    before = cluster.brokers[1].config.listeners[0]
    static = f"PLAINTEXT://{before.host}:{before.port}"
    alter(
        configs,
        BROKER,
        "1",
        listener_security_protocol_map=protocols,
        listeners=f"{static},EXTRA://127.0.0.1:0",
    )
    eventually(lambda: len(server.endpoints) == 2, "the listener is open")
    extra = server.endpoints[1]
    assert (server.endpoints[0], extra.listener) == (first, "EXTRA")
    with Raw(f"{extra.host}:{extra.port}") as raw:
        raw.topic_id("nowhere")

        def is_registered() -> bool:
            registry, keeper = cluster.cluster.open_registry()

            async def read() -> bytes:
                session = await registry.connect(10_000)
                data, _ = await session.get(znodes.broker_path(1))
                await session.close()
                return data

            found = znodes.decode_broker(1, keeper.run(read()))
            return [each.port for each in found.endpoints] == [first.port, extra.port]

        eventually(is_registered, "the registration has both listeners")
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        alter(configs, BROKER, "1", listeners=f"{static},EXTRA://127.0.0.1:{port}")
        eventually(lambda: server.endpoints[1].port == port, "the listener has moved")
        raw.topic_id("nowhere")  # the connection to the old port stays open
        with Raw(f"127.0.0.1:{port}") as moved:
            moved.topic_id("nowhere")
        alter(configs, BROKER, "1", listeners=None)
        eventually(lambda: len(server.endpoints) == 1, "the listener is closed")
        assert raw.is_hung_up()


def test_listener_that_cannot_be_opened_is_rejected(
    cluster: LocalCluster, configs: ConfigAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    broker = ConfigResource(BROKER, "1")
    before = cluster.brokers[1].address
    with closing(socket.create_server(("127.0.0.1", 0))) as busy:
        settings = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
            "listeners": f"PLAINTEXT://localhost:0,EXTRA://127.0.0.1:{busy.getsockname()[1]}",
        }
        changes = [ConfigChange(*item) for item in settings.items()]
        error = configs.incremental_alter_configs({broker: changes}, validate_only=True)[broker]
        assert error is not None
        assert error.code is ErrorCode.INVALID_REQUEST
        assert "is in use" in error.message
        # Tools that write to ZooKeeper do not check it. Then the broker keeps its listeners, and also starts.
        write_broker_settings(cluster, 1, settings)
        eventually(lambda: "cannot change listeners" in caplog.text, "the change has failed")
        with Raw(before) as raw:
            raw.topic_id("nowhere")
        cluster.brokers[1].stop()
        cluster.brokers[1].start()
        assert "cannot open dynamic listeners" in caplog.text
        with Raw(cluster.brokers[1].address) as raw:
            raw.topic_id("nowhere")
        alter(configs, BROKER, "1", listeners=None, listener_security_protocol_map=None)


def write_broker_settings(cluster: LocalCluster, broker: int, settings: dict[str, str]) -> None:
    """Write settings and their notification, as Kafka's tools do with --zookeeper."""
    registry, keeper = cluster.cluster.open_registry()

    async def write() -> None:
        session = await registry.connect(10_000)
        path = znodes.config_path("brokers", str(broker))
        if await session.exists(path) is None:
            await session.create(path)
        await session.set(path, znodes.encode_config(settings))
        data = znodes.encode_config_change(f"brokers/{broker}")
        await session.create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True)
        await session.close()

    keeper.run(write())


def test_number_of_fetchers_changes_without_restart(
    cluster: LocalCluster, configs: ConfigAdmin, client: Cluster
) -> None:
    topic = new_topic(cluster, 1, 2, partitions=8)
    life = cluster.brokers[2].instance
    assert life is not None
    assert life.broker.replicas is not None
    fetchers = life.broker.replicas.fetchers.fetchers
    assert {number for _, number in fetchers} == {0}
    alter(configs, BROKER, "2", num_replica_fetchers="2")
    eventually(lambda: {number for _, number in fetchers} == {0, 1}, "two fetchers per leader")
    produce(cluster, 1, topic, b"x")
    eventually(lambda: log_of(cluster, 2, topic).log_end_offset == 1, "the record is replicated")
    alter(configs, BROKER, "2", num_replica_fetchers="1")
    eventually(lambda: {number for _, number in fetchers} == {0}, "one fetcher per leader")
    produce(cluster, 1, topic, b"x")
    eventually(lambda: log_of(cluster, 2, topic).log_end_offset == 2, "the record is replicated")


def test_throttle_limits_a_replica_until_it_is_removed(
    cluster: LocalCluster, configs: ConfigAdmin, client: Cluster
) -> None:
    topic = new_topic(cluster, 1, 2)
    cluster.brokers[2].kill()
    eventually(lambda: isr_of(client, topic) == {1}, "broker 2 is out of sync")
    for _ in range(40):
        produce(cluster, 1, topic, b"x" * 500_000)
    alter(configs, TOPIC, topic, leader_replication_throttled_replicas="*")
    alter(configs, BROKER, "1", leader_replication_throttled_rate="1000")
    log = log_of(cluster, 1, topic)
    eventually(lambda: log.config.leader_replication_throttled_replicas == ("*",), "applied")
    cluster.brokers[2].start()
    life = cluster.brokers[1].instance
    assert life is not None
    replicas = life.broker.replicas
    assert replicas is not None
    quota = replicas.leader_quota
    assert quota is not None
    eventually(lambda: sum(each.size for each in quota.windows) > 1000, "the quota is used up")
    assert isr_of(client, topic) == {1}
    assert log_of(cluster, 2, topic).log_end_offset < 40
    alter(configs, BROKER, "1", leader_replication_throttled_rate=None)
    alter(configs, TOPIC, topic, leader_replication_throttled_replicas=None)
    eventually(lambda: isr_of(client, topic) == {1, 2}, "broker 2 is in sync")


# ---- client


def test_client_routes_resources_to_their_brokers(
    cluster: LocalCluster, configs: ConfigAdmin
) -> None:
    topic = new_topic(cluster, 1)
    changes = {
        ConfigResource(BROKER, "2"): [ConfigChange("max.connections", "71")],
        ConfigResource(TOPIC, topic): [ConfigChange("retention.ms", "soon")],
        ConfigResource(LOGGER, "3"): [ConfigChange("barnabas.no.such", "INFO")],
        ConfigResource(BROKER, "3"): [ConfigChange("max.connections", "72")],
        ConfigResource(BROKER, "9"): [ConfigChange("max.connections", "73")],
    }
    client = configs.cluster
    client.timeout_s = 2.0
    results = configs.incremental_alter_configs(changes)
    assert list(results) == list(changes)
    assert [error and error.code for error in results.values()] == [
        None,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_CONFIG,
        None,
        ErrorCode.BROKER_NOT_AVAILABLE,
    ]
    found = configs.describe_configs(
        [ConfigResource(BROKER, "2"), ConfigResource(BROKER, "3")],
        names=["max.connections"],
        include_synonyms=True,
        include_documentation=True,
    )
    for entries, value in zip(found.values(), ("71", "72"), strict=True):
        assert not isinstance(entries, ApiError)
        (entry,) = entries
        assert (entry.value, entry.source) == (value, ConfigSource.DYNAMIC_BROKER_CONFIG)
        assert [each.value for each in entry.synonyms] == [value, "2147483647"]
        assert entry.documentation


def test_client_changes_and_describes_quotas(configs: ConfigAdmin) -> None:
    anna = QuotaEntity(user="anna b")
    both = QuotaEntity(user="anna b", client_id=DEFAULT_NAME)
    address = QuotaEntity(ip="10.0.0.1")
    results = configs.alter_client_quotas(
        {
            anna: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
            both: {"consumer_byte_rate": 5.0},
            address: {"connection_creation_rate": 7.0},
            QuotaEntity(user="x", ip="10.0.0.1"): {"producer_byte_rate": 1.0},
        }
    )
    assert [error and error.code for error in results.values()] == [
        None,
        None,
        None,
        ErrorCode.INVALID_REQUEST,
    ]
    assert configs.describe_client_quotas() == {
        anna: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        both: {"consumer_byte_rate": 5.0},
        address: {"connection_creation_rate": 7.0},
    }
    exact = QuotaFilter("user", QuotaMatch.EXACT, "anna b")
    assert list(configs.describe_client_quotas([exact])) == [anna, both]
    assert list(configs.describe_client_quotas([exact], strict=True)) == [anna]
    removal = dict.fromkeys(("producer_byte_rate", "request_percentage"))
    configs.alter_client_quotas(
        {anna: removal, both: {"consumer_byte_rate": None}}, validate_only=True
    )
    assert len(configs.describe_client_quotas()) == 3
    configs.alter_client_quotas(
        {
            anna: removal,
            both: {"consumer_byte_rate": None},
            address: {"connection_creation_rate": None},
        }
    )
    assert configs.describe_client_quotas() == {}
    with pytest.raises(ApiError) as caught:
        configs.describe_client_quotas([QuotaFilter("group")])
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
