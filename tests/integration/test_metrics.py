"""/metrics, /healthz and /readyz of brokers: numbers after produce and fetch, a killed broker, start and shutdown."""

from __future__ import annotations

import json
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from barnabas import LocalCluster
from barnabas.cli.main import main
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigResource
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.errors import ApiError
from barnabas.metrics.families import FAMILIES
from barnabas.wire.messages.describe_configs import ResourceType
from support.waiting import eventually

RECORDS = 50
SETTINGS = {
    "barnabas.http.listener": "127.0.0.1:0",
    "zookeeper.session.timeout.ms": 3000,
    "replica.lag.time.max.ms": 1000,
    "replica.fetch.wait.max.ms": 100,
}


class Scrape:
    """The samples of one broker."""

    def __init__(self, text: str) -> None:
        self.types: dict[str, str] = {}
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"{key} occurs twice"
                self.samples[key] = sample.value
                self.types[family.name] = family.type

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def has(self, name: str, **labels: str) -> bool:
        return (name, frozenset(labels.items())) in self.samples


def get(cluster: LocalCluster, broker: int, path: str) -> tuple[int, str]:
    address = cluster.brokers[broker].http_address
    assert address is not None
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scrape(cluster: LocalCluster, broker: int) -> Scrape:
    status, text = get(cluster, broker, "/metrics")
    assert status == 200
    return Scrape(text)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=SETTINGS) as running:
        yield running


def create(cluster: LocalCluster, name: str, assignment: tuple[int, ...], **configs: str) -> None:
    with Cluster(cluster.bootstrap_servers) as client:
        wanted = NewTopic(name=name, assignment=[assignment], configs=configs)
        (outcome,) = Admin(client).create_topics([wanted])
        assert outcome.error is None, outcome.error


def produce(cluster: LocalCluster, topic: str, acks: str = "all") -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": acks})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush()


def consume(cluster: LocalCluster, topic: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "metrics",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    read = 0
    while read < RECORDS:
        message = consumer.poll(10.0)
        assert message is not None and message.error() is None
        read += 1
    consumer.close()


def test_produce_and_fetch_are_counted(cluster: LocalCluster) -> None:
    create(cluster, "orders", (2, 1, 3), **{"flush.messages": "10"})
    produce(cluster, "orders")
    consume(cluster, "orders")
    leader, follower = scrape(cluster, 2), scrape(cluster, 1)
    prefix = "kafka_server_brokertopicmetrics_"
    assert leader.value(f"{prefix}messagesin_total", topic="orders") == RECORDS
    assert leader.value(f"{prefix}messagesin_total") >= RECORDS
    bytes_in = leader.value(f"{prefix}bytesin_total", topic="orders")
    assert bytes_in > 60 * RECORDS
    assert leader.value(f"{prefix}bytesout_total", topic="orders") == bytes_in
    assert leader.value(f"{prefix}replicationbytesout_total") >= 2 * bytes_in
    assert follower.value(f"{prefix}replicationbytesin_total") >= bytes_in
    assert follower.value(f"{prefix}messagesin_total", topic="orders") == 0

    requests = "kafka_network_requestmetrics_"
    assert leader.value(f"{requests}requests_total", request="Produce") == RECORDS
    assert leader.value(f"{requests}totaltimems_count", request="Produce") == RECORDS
    assert leader.value(f"{requests}remotetimems_sum", request="Produce") > 0
    p99 = leader.value(f"{requests}totaltimems", request="Produce", quantile="0.99")
    assert 0 < p99 < 10_000
    assert leader.value(f"{requests}requests_total", request="FetchConsumer") > 0
    assert leader.value(f"{requests}requests_total", request="FetchFollower") > 0
    fetches = leader.value(f"{requests}requests_total", request="Fetch")
    assert fetches == sum(
        leader.value(f"{requests}requests_total", request=f"Fetch{kind}")
        for kind in ("Consumer", "Follower")
    )

    log = {"topic": "orders", "partition": "0"}
    assert leader.value("kafka_log_log_logendoffset", **log) == RECORDS
    assert leader.value("kafka_log_log_logstartoffset", **log) == 0
    assert leader.value("kafka_log_log_size", **log) == bytes_in
    assert leader.value("kafka_log_log_numlogsegments", **log) == 1
    assert leader.value("kafka_log_logflushstats_logflushrateandtimems_count") >= RECORDS / 10
    assert (
        leader.value("kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT")
        > 0
    )
    waiting = "kafka_server_delayedoperationpurgatory_purgatorysize"
    assert leader.value(waiting, delayedOperation="Fetch") >= 0


def test_lag_of_a_group_is_the_difference_of_two_metrics(cluster: LocalCluster) -> None:
    create(cluster, "lagging", (1, 2))
    produce(cluster, "lagging")
    consume(cluster, "lagging")
    produce(cluster, "lagging")
    labels = {"consumergroup": "metrics", "topic": "lagging", "partition": "0"}
    scrapes = [scrape(cluster, broker) for broker in cluster.brokers]
    name = "kafka_consumergroup_current_offset"
    (coordinator,) = (each for each in scrapes if each.has(name, **labels))
    committed = coordinator.value(name, **labels)
    end = scrapes[0].value("kafka_log_log_logendoffset", topic="lagging", partition="0")
    assert (committed, end) == (RECORDS, 2 * RECORDS)
    assert coordinator.value("kafka_consumergroup_members", consumergroup="metrics") == 0
    prefix = "kafka_coordinator_group_groupmetadatamanager_"
    assert coordinator.value(f"{prefix}numgroups") == 1
    assert coordinator.value(f"{prefix}numoffsets") >= 1


def test_open_transactions_are_shown(cluster: LocalCluster) -> None:
    create(cluster, "paid", (3, 1))
    labels = {"topic": "paid", "partition": "0"}
    lag, states = (
        "kafka_cluster_partition_laststableoffsetlag",
        "barnabas_coordinator_transaction_transactions",
    )

    def total(state: str) -> float:
        return sum(scrape(cluster, each).value(states, state=state) for each in cluster.brokers)

    with Cluster(cluster.bootstrap_servers) as client:
        producer = TransactionalProducer(client, "metrics-1")
        producer.begin()
        for _ in range(3):
            producer.send("paid", b"open")
        producer.flush()
        opened = scrape(cluster, 3)
        assert opened.value(lag, **labels) == 3
        assert opened.value("kafka_server_replicamanager_produceridcount") >= 1
        assert not scrape(cluster, 1).has(lag, **labels), "only the leader shows it"
        assert total("Ongoing") == 1
        producer.commit()
    eventually(lambda: total("CompleteCommit") == 1, "the transaction is committed")
    assert scrape(cluster, 3).value(lag, **labels) == 0
    times = "kafka_server_transaction_coordinator_metrics_partition_load_time_max"
    assert max(scrape(cluster, each).value(times) for each in cluster.brokers) > 0


def test_unsupported_version_counts_for_its_own_api(cluster: LocalCluster) -> None:
    labels = {"request": "ApiVersions", "error": "UNSUPPORTED_VERSION"}
    before = scrape(cluster, 1)
    host, port = cluster.brokers[1].address.split(":")
    frame = struct.pack(">hhih", 18, 99, 7, -1)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        assert connection.recv(100)
    after = scrape(cluster, 1)
    assert after.value("kafka_network_requestmetrics_errors_total", **labels) == 1
    name = "kafka_network_requestmetrics_requests_total"
    produces = [
        each.samples.get((name, frozenset({("request", "Produce")}))) for each in (before, after)
    ]
    assert produces[0] == produces[1]


def test_waiting_fetches_count_what_was_sent(cluster: LocalCluster) -> None:
    create(cluster, "waiting", (1,))
    settings = {"fetch.min.bytes": 1_000_000, "fetch.wait.max.ms": 20, "group.id": "x"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    name = "kafka_server_brokertopicmetrics_bytesout_total"
    consumer.assign([TopicPartition("waiting", 0, 0)])
    assert consumer.poll(0.2) is None
    produce(cluster, "waiting")
    size = scrape(cluster, 1).value("kafka_log_log_size", topic="waiting", partition="0")
    assert len(consumer.consume(RECORDS, timeout=10)) == RECORDS
    consumer.close()
    assert scrape(cluster, 1).value(name, topic="waiting") == size


def test_errors_are_counted_by_api_and_code(cluster: LocalCluster) -> None:
    create(cluster, "twice", (1,))
    controller = cluster.controller_id
    assert controller is not None
    labels = {"request": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"}
    name = "kafka_network_requestmetrics_errors_total"
    scraped = scrape(cluster, controller)
    before = scraped.value(name, **labels) if scraped.has(name, **labels) else 0
    with Cluster(cluster.bootstrap_servers) as client:
        Admin(client).create_topics([NewTopic(name="twice")])
    assert scrape(cluster, controller).value(name, **labels) == before + 1


def test_every_declared_metric_is_served_with_its_type(cluster: LocalCluster) -> None:
    assert cluster.controller_id is not None
    found: dict[str, str] = {}
    for broker in cluster.brokers:
        found |= scrape(cluster, broker).types
    # The parser removes _total from the names of counters.
    declared = {name.removesuffix("_total"): each.kind for name, each in FAMILIES.items()}
    assert found == declared


def test_deleted_topic_is_no_longer_shown_but_totals_stay(cluster: LocalCluster) -> None:
    create(cluster, "short-lived", (2,))
    produce(cluster, "short-lived", acks="1")
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    before = scrape(cluster, 2)
    assert before.value(name, topic="short-lived") == RECORDS
    with Cluster(cluster.bootstrap_servers) as client:
        Admin(client).delete_topics(["short-lived"])
    eventually(lambda: not scrape(cluster, 2).has(name, topic="short-lived"), "topic not shown")
    assert scrape(cluster, 2).value(name) >= before.value(name)


def test_settings_show_the_chosen_port(cluster: LocalCluster) -> None:
    with Cluster(cluster.bootstrap_servers) as client:
        resource = ConfigResource(ResourceType.BROKER, "1")
        entries = ConfigAdmin(client).describe_configs([resource])[resource]
    assert not isinstance(entries, ApiError)
    values = {each.name: each.value for each in entries}
    assert values["barnabas.http.listener"] == cluster.brokers[1].http_address


def run_top(servers: str, capfdbinary: pytest.CaptureFixture[bytes]) -> list[dict[str, Any]]:
    with pytest.raises(SystemExit) as done:
        main(["top", "--once", "-o", "json", "-b", servers])
    assert done.value.code == 0
    rows: list[dict[str, Any]] = json.loads(capfdbinary.readouterr().out)["brokers"]
    return rows


def test_top_shows_all_brokers(
    cluster: LocalCluster, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    rows = run_top(cluster.bootstrap_servers, capfdbinary)
    assert [row["broker"] for row in rows] == [1, 2, 3]
    assert [row["broker"] for row in rows if row["controller"]] == [cluster.controller_id]
    assert {row["source"] for row in rows} == {"metrics"}
    assert all(row["requests_per_s"] is not None for row in rows)


def test_unknown_paths_name_the_known_ones(cluster: LocalCluster) -> None:
    assert get(cluster, 1, "/")[0] == 404
    assert "/metrics" in get(cluster, 1, "/")[1]


def test_killed_broker_shows_in_the_metrics_of_the_others(cluster: LocalCluster) -> None:
    """Then its start: not ready until it is registered, which waits for the end of its former session."""
    create(cluster, "payments", (1, 3))
    produce(cluster, "payments")
    replicas = "kafka_server_replicamanager_"
    controller = "kafka_controller_kafkacontroller_"
    if cluster.controller_id == 3:
        cluster.brokers[3].stop()
        cluster.brokers[3].start()
    eventually(lambda: under_replicated(cluster, 1) == 0, "all replicas in sync")
    before = scrape(cluster, 1)
    cluster.brokers[3].kill(expire=False)
    starting = threading.Thread(target=cluster.brokers[3].start)
    starting.start()
    try:
        eventually(lambda: is_answering(cluster, 3), "broker 3 answers")
        assert get(cluster, 3, "/healthz") == (200, "ok\n")
        assert get(cluster, 3, "/readyz") == (503, "starting\n")
        eventually(lambda: under_replicated(cluster, 1) > 0, "under-replicated partitions")
    finally:
        starting.join()
    assert get(cluster, 3, "/readyz") == (200, "ready\n")
    eventually(lambda: under_replicated(cluster, 1) == 0, "all replicas in sync")
    after = scrape(cluster, 1)
    assert after.value(f"{replicas}isrexpands_total") > before.value(f"{replicas}isrexpands_total")
    active = [
        broker
        for broker in cluster.brokers
        if scrape(cluster, broker).value(f"{controller}activecontrollercount") == 1
    ]
    assert active == [cluster.controller_id]
    leads = scrape(cluster, active[0])
    assert leads.value(f"{controller}activebrokercount") == 3
    assert leads.value(f"{controller}globaltopiccount") >= 3
    assert leads.value(f"{controller}offlinepartitionscount") == 0
    elections = "kafka_controller_controllerstats_leaderelectionrateandtimems_count"
    assert leads.value(elections) >= 1


def under_replicated(cluster: LocalCluster, broker: int) -> float:
    name = "kafka_server_replicamanager_underreplicatedpartitions"
    return scrape(cluster, broker).value(name)


def is_answering(cluster: LocalCluster, broker: int) -> bool:
    try:
        get(cluster, broker, "/healthz")
    except OSError:
        return False
    return True


def test_broker_that_shuts_down_is_not_ready(cluster: LocalCluster) -> None:
    """The controller is paused, so that the controlled shutdown takes a while."""
    controller = cluster.controller_id
    assert controller is not None
    stopping = next(broker for broker in cluster.brokers if broker != controller)
    cluster.brokers[controller].pause()
    thread = threading.Thread(target=cluster.brokers[stopping].stop)
    thread.start()
    try:
        shutting_down = (503, "shutting down\n")
        eventually(lambda: get(cluster, stopping, "/readyz") == shutting_down, "shutting down")
        assert get(cluster, stopping, "/healthz") == (200, "ok\n")
        assert scrape(cluster, stopping).value("kafka_server_kafkaserver_brokerstate") == 6
    finally:
        cluster.brokers[controller].resume()
        thread.join()
    assert not is_answering(cluster, stopping)
    cluster.brokers[stopping].start()
    assert get(cluster, stopping, "/readyz")[0] == 200


def test_listener_is_off_by_default_and_top_uses_the_protocol(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    with LocalCluster() as cluster:
        assert cluster.brokers[1].http_address is None
        create(cluster, "plain", (1,))
        (row,) = run_top(cluster.bootstrap_servers, capfdbinary)
    assert (row["source"], row["leads"], row["messages_in_per_s"]) == ("protocol", 1, 0.0)
    assert row["bytes_in_per_s"] is None
