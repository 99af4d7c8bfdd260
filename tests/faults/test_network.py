"""The network between brokers fails, while clients and the registry can still reach all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from barnabas import LocalCluster
from barnabas.cluster.in_process import ClusterBroker
from barnabas.errors import ErrorCode
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from support.ports import free_port
from support.waiting import eventually
from tests.compatibility.raw import Raw, fetch_request, recent_batch_of, values_in, wait_until_known
from tests.faults.chaos.replicas import differences, read_copy
from tests.faults.links import Direction, Links

TOPIC = "letters"
LAG_MAX_MS = 1_000
DEADLINE_S = 30.0
SETTINGS = {
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": LAG_MAX_MS,
    "controlled.shutdown.max.retries": 0,
    "zookeeper.session.timeout.ms": 1_000,
}
PATIENT = {**SETTINGS, "replica.lag.time.max.ms": 30_000}
without_isr_shrinks = pytest.mark.parametrize("cluster", [PATIENT], indirect=True, ids=["patient"])
"""On a busy machine, all brokers may stall for longer than LAG_MAX_MS."""
UNACKNOWLEDGED = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


@pytest.fixture
def links() -> Iterator[Links]:
    with Links() as wires:
        yield wires


@pytest.fixture
def cluster(tmp_path: Path, links: Links, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    settings = getattr(request, "param", SETTINGS)
    with LocalCluster(brokers=3, data=tmp_path, settings=settings) as running:
        yield running
        links.heal()


def controller_and_others(cluster: LocalCluster) -> list[ClusterBroker]:
    first = cluster.controller_id
    return sorted(cluster.brokers.values(), key=lambda broker: broker.id != first)


def create(cluster: LocalCluster, replicas: Sequence[ClusterBroker], topic: str = TOPIC) -> None:
    held = CreatableReplicaAssignment(0, tuple(broker.id for broker in replicas))
    request = CreateTopicsRequest(topics=(CreatableTopic(topic, -1, -1, (held,)),))
    with Raw(controller_and_others(cluster)[0].address) as raw:
        answer = raw.ask(request, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer


def send(leader: ClusterBroker, value: bytes, topic: str = TOPIC, timeout_ms: int = 30_000) -> int:
    """Produce with acks=all; returns the error code."""
    data = PartitionProduceData(0, recent_batch_of(value))
    request = ProduceRequest(
        acks=-1, timeout_ms=timeout_ms, topic_data=(TopicProduceData(topic, (data,)),)
    )
    with Raw(leader.address) as raw:
        answer = raw.ask(request, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def write(leader: ClusterBroker, value: bytes, topic: str = TOPIC) -> None:
    eventually(lambda: send(leader, value, topic) == ErrorCode.NONE, f"{value!r} is acknowledged")


def read(leader: ClusterBroker) -> list[bytes]:
    return read_at(leader.address)


def read_at(address: str) -> list[bytes]:
    with Raw(address) as raw:
        answer = raw.ask(fetch_request(TOPIC, {0: 0}), FetchResponse, 12)
    return [value or b"" for value in values_in(answer.responses[0].partitions[0])]


def state(broker: ClusterBroker, topic: str = TOPIC) -> MetadataResponsePartition:
    """The partition's state as this broker knows it."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    with Raw(broker.address) as raw:
        return raw.ask(request, MetadataResponse).topics[0].partitions[0]


def in_sync(broker: ClusterBroker) -> set[int]:
    return set(state(broker).isr_nodes)


def wait_for_identical_replicas(cluster: LocalCluster, leader: ClusterBroker) -> list[bytes]:
    """Wait until all replicas are in sync and identical; returns their values."""
    eventually(lambda: in_sync(leader) == {1, 2, 3}, "all are in sync")
    write(leader, b"last")
    end = len(read(leader))

    def are_identical() -> bool:
        copies = {
            broker: read_copy(cluster.data / f"broker-{broker}" / f"{TOPIC}-0", end)
            for broker in cluster.brokers
        }
        return not differences(copies)

    eventually(are_identical, "all replicas are equal")
    return read(leader)[:-1]


@pytest.mark.parametrize("lost", list(Direction), ids=lambda direction: direction.value)
def test_leader_without_reachable_followers_acknowledges_nothing(
    cluster: LocalCluster, links: Links, lost: Direction
) -> None:
    leader, *others = controller_and_others(cluster)
    create(cluster, [leader, *others])
    write(leader, b"before")
    for other in others:
        links.cut(other, leader, lost)
    assert send(leader, b"meanwhile", timeout_ms=200) in UNACKNOWLEDGED
    assert read(leader) == [b"before"], "uncommitted records are not readable"
    eventually(lambda: in_sync(leader) == {leader.id}, "the others have fallen behind")
    eventually(
        lambda: send(leader, b"meanwhile", timeout_ms=200) == ErrorCode.NOT_ENOUGH_REPLICAS,
        "produce is rejected",
    )
    for _ in range(20):  # and the ISR does not flap
        assert send(leader, b"refused") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert read(leader) == [b"before"]
    links.heal()
    found = wait_for_identical_replicas(cluster, leader)
    assert found[0] == b"before"
    assert set(found[1:]) <= {b"meanwhile"}


def test_isolated_leader_acknowledges_nothing(cluster: LocalCluster, links: Links) -> None:
    """It cannot reach the controller either, so the ISR cannot shrink."""
    _, leader, other = brokers = controller_and_others(cluster)
    create(cluster, [leader, *(broker for broker in brokers if broker is not leader)])
    write(leader, b"before")
    wait_until_known([other.address], TOPIC)
    eventually(lambda: in_sync(other) == {1, 2, 3}, "all replicas are in sync")
    links.isolate(leader, *(broker for broker in brokers if broker is not leader))
    for _ in range(3):
        assert send(leader, b"meanwhile", timeout_ms=LAG_MAX_MS // 2) == ErrorCode.REQUEST_TIMED_OUT
    assert read(leader) == [b"before"]
    assert in_sync(other) == {1, 2, 3}
    links.heal()
    found = wait_for_identical_replicas(cluster, leader)
    assert found == [b"before"] + [b"meanwhile"] * 3


@without_isr_shrinks
def test_controller_requests_are_resent_after_network_heals(
    cluster: LocalCluster, links: Links
) -> None:
    controller, isolated, other = controller_and_others(cluster)
    create(cluster, [other, controller, isolated])
    write(other, b"before")
    links.isolate(controller, isolated)
    create(cluster, [isolated, other], "later")
    assert send(isolated, b"early", "later") in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert send(other, b"meanwhile") == ErrorCode.NONE, "the other brokers continue"
    links.heal()
    write(isolated, b"first", "later")
    assert wait_for_identical_replicas(cluster, other) == [b"before", b"meanwhile"]


@without_isr_shrinks
def test_late_informed_new_leader_has_all_records(cluster: LocalCluster, links: Links) -> None:
    """The leader crashes while the controller cannot reach its successor."""
    controller, leader, successor = controller_and_others(cluster)
    create(cluster, [leader, successor, controller])
    written = [b"%d" % number for number in range(20)]
    for value in written:
        write(leader, value)
    links.isolate(controller, successor)
    leader.kill()
    eventually(lambda: state(controller).leader_id == successor.id, "the controller has decided")
    assert send(successor, b"early", timeout_ms=200) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    links.heal()
    write(successor, b"after")
    leader.start()
    assert wait_for_identical_replicas(cluster, successor) == [*written, b"after"]


def test_leader_with_expired_session_acknowledges_nothing(
    cluster: LocalCluster,
) -> None:
    controller, leader, other = controller_and_others(cluster)
    create(cluster, [leader, other, controller])
    write(leader, b"before")
    lose_registry(cluster, leader)
    eventually(lambda: state(controller).leader_id not in (leader.id, -1), "another broker leads")
    successor = cluster.brokers[state(controller).leader_id]
    write(successor, b"after")
    for _ in range(2):
        code = send(leader, b"meanwhile", timeout_ms=LAG_MAX_MS)
        assert code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert b"meanwhile" not in read(leader)
    leader.kill()
    leader.start()
    assert wait_for_identical_replicas(cluster, successor) == [b"before", b"after"]


def lose_registry(cluster: LocalCluster, broker: ClusterBroker) -> None:
    """Expire the broker's session without the broker noticing; it gets no more watch events."""
    registry, keeper = cluster.cluster.open_registry()
    assert broker.instance is not None
    for session in list(broker.instance.registry.sessions):
        keeper.call(partial(registry.abandon, session))


@without_isr_shrinks
def test_replication_works_over_slow_network(cluster: LocalCluster, links: Links) -> None:
    leader, *others = controller_and_others(cluster)
    create(cluster, [leader, *others])
    write(leader, b"before")
    links.delay_s = 0.1
    written = [b"before"]
    for number in range(5):
        written.append(b"%d" % number)
        assert send(leader, written[-1]) == ErrorCode.NONE
    others[0].kill()
    others[0].start()
    assert wait_for_identical_replicas(cluster, leader) == written


def test_flapping_link_loses_and_duplicates_nothing(cluster: LocalCluster, links: Links) -> None:
    controller, leader, follower = controller_and_others(cluster)
    create(cluster, [leader, follower, controller])
    acknowledged: list[bytes] = []
    has_resumed, is_over = threading.Event(), threading.Event()

    def load() -> None:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,
            }
        )

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                acknowledged.append(message.value() or b"")
                has_resumed.set()

        number = 0
        while not is_over.is_set():
            producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=delivered)
            number += 1
            producer.poll(0.002)
        assert producer.flush(DEADLINE_S) == 0

    loading = threading.Thread(target=load)
    loading.start()
    try:
        for cut_s in (0.1, 0.2, LAG_MAX_MS / 1000 + 0.5, 0.1, 0.3):
            has_resumed.clear()
            assert has_resumed.wait(DEADLINE_S), "producers resume"
            links.isolate(leader, follower)
            is_over.wait(cut_s)
            links.heal()
    finally:
        links.heal()
        is_over.set()
        loading.join()
    found = wait_for_identical_replicas(cluster, leader)
    assert len(acknowledged) == len({*acknowledged})
    assert found == acknowledged


@without_isr_shrinks
def test_waiting_produce_ends_when_leader_stops(cluster: LocalCluster, links: Links) -> None:
    controller, leader, successor = controller_and_others(cluster)
    create(cluster, [leader, successor, controller])
    write(leader, b"before")
    links.cut(successor, leader, Direction.RESPONSES)
    data = PartitionProduceData(0, recent_batch_of(b"meanwhile"))
    request = ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=(TopicProduceData(TOPIC, (data,)),)
    )
    with Raw(leader.address) as raw:
        begun = raw.begin(request)
        eventually(lambda: is_copied(cluster, controller), "one follower has the record")
        leaving = threading.Thread(target=leader.stop)
        leaving.start()
        try:
            answer = raw.answer(ProduceResponse, *begun)
            code = answer.responses[0].partition_responses[0].error_code
        except ConnectionError:
            code = ErrorCode.NETWORK_EXCEPTION  # the broker stopped before it could respond
        leaving.join()
    assert code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NONE,  # on a slow machine, the lagging follower has left the ISR meanwhile
    )
    links.heal()
    write(successor, b"after")
    leader.start()
    found = wait_for_identical_replicas(cluster, successor)
    assert (found[0], found[-1]) == (b"before", b"after")
    assert b"meanwhile" in found or code != ErrorCode.NONE


def test_lost_produce_responses_duplicate_nothing(tmp_path: Path, links: Links) -> None:
    client, port = 0, free_port()
    seen = links.thread.run(links.port_of(client, "127.0.0.1", port))
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{seen}"}
    with LocalCluster(data=tmp_path, port=port, settings=settings) as alone:
        (broker,) = alone.brokers.values()
        create(alone, [broker])
        producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{seen}",
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        acknowledged: list[int] = []

        def send_all(numbers: range) -> None:
            for number in numbers:

                def delivered(error: KafkaError | None, _: Message, number: int = number) -> None:
                    assert error is None
                    acknowledged.append(number)

                producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=delivered)

        send_all(range(5))
        assert producer.flush(DEADLINE_S) == 0
        links.change({(client, port): {Direction.RESPONSES}})
        send_all(range(5, 10))
        eventually(lambda: len(read_at(f"127.0.0.1:{port}")) == 10, "all are appended")
        assert len(acknowledged) == 5
        links.hang_up(client, port)
        links.heal()
        assert producer.flush(DEADLINE_S) == 0
        assert acknowledged == list(range(10))
        assert read(broker) == [b"%d" % number for number in range(10)]


def is_copied(cluster: LocalCluster, broker: ClusterBroker) -> bool:
    (segment,) = (cluster.data / f"broker-{broker.id}" / f"{TOPIC}-0").glob("*.log")
    return b"meanwhile" in segment.read_bytes()
