"""The network between the brokers fails while clients and the registry are within reach of all of them."""

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
from tests.faults.links import Links, Way

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
nobody_falls_behind = pytest.mark.parametrize("cluster", [PATIENT], indirect=True, ids=["patient"])
"""Though on a busy machine all may stand still for longer than LAG_MAX_MS."""
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
        links.mend()


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
    """With acks=all; the error code."""
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
    """As this broker was told."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    with Raw(broker.address) as raw:
        return raw.ask(request, MetadataResponse).topics[0].partitions[0]


def in_sync(broker: ClusterBroker) -> set[int]:
    return set(state(broker).isr_nodes)


def agree(cluster: LocalCluster, leader: ClusterBroker) -> list[bytes]:
    """All replicas hold the same bytes when all are in sync; what they hold."""
    eventually(lambda: in_sync(leader) == {1, 2, 3}, "all are in sync")
    write(leader, b"last")
    end = len(read(leader))

    def is_agreed() -> bool:
        copies = {
            broker: read_copy(cluster.data / f"broker-{broker}" / f"{TOPIC}-0", end)
            for broker in cluster.brokers
        }
        return not differences(copies)

    eventually(is_agreed, "all replicas are equal")
    return read(leader)[:-1]


@pytest.mark.parametrize("lost", list(Way), ids=lambda way: way.value)
def test_a_leader_whose_followers_are_out_of_reach_acknowledges_nothing(
    cluster: LocalCluster, links: Links, lost: Way
) -> None:
    leader, *others = controller_and_others(cluster)
    create(cluster, [leader, *others])
    write(leader, b"before")
    for other in others:
        links.cut(other, leader, lost)
    assert send(leader, b"meanwhile", timeout_ms=200) in UNACKNOWLEDGED
    assert read(leader) == [b"before"], "what may be taken back is shown to nobody"
    eventually(lambda: in_sync(leader) == {leader.id}, "the others have fallen behind")
    eventually(
        lambda: send(leader, b"meanwhile", timeout_ms=200) == ErrorCode.NOT_ENOUGH_REPLICAS,
        "nothing is taken any longer",
    )
    for _ in range(20):  # nor do they come and go
        assert send(leader, b"refused") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert read(leader) == [b"before"]
    links.mend()
    found = agree(cluster, leader)
    assert found[0] == b"before"
    assert set(found[1:]) <= {b"meanwhile"}


def test_a_leader_that_reaches_nobody_acknowledges_nothing(
    cluster: LocalCluster, links: Links
) -> None:
    """Not even the controller, so that nobody leaves the ISR."""
    _, leader, other = brokers = controller_and_others(cluster)
    create(cluster, [leader, *(broker for broker in brokers if broker is not leader)])
    write(leader, b"before")
    wait_until_known([other.address], TOPIC)
    eventually(lambda: in_sync(other) == {1, 2, 3}, "nobody has fallen behind before")
    links.part(leader, *(broker for broker in brokers if broker is not leader))
    for _ in range(3):
        assert send(leader, b"meanwhile", timeout_ms=LAG_MAX_MS // 2) == ErrorCode.REQUEST_TIMED_OUT
    assert read(leader) == [b"before"]
    assert in_sync(other) == {1, 2, 3}
    links.mend()
    found = agree(cluster, leader)
    assert found == [b"before"] + [b"meanwhile"] * 3


@nobody_falls_behind
def test_what_a_controller_could_not_say_is_said_when_it_can(
    cluster: LocalCluster, links: Links
) -> None:
    controller, unheard, other = controller_and_others(cluster)
    create(cluster, [other, controller, unheard])
    write(other, b"before")
    links.part(controller, unheard)
    create(cluster, [unheard, other], "later")
    assert send(unheard, b"early", "later") in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert send(other, b"meanwhile") == ErrorCode.NONE, "the others go on"
    links.mend()
    write(unheard, b"first", "later")
    assert agree(cluster, other) == [b"before", b"meanwhile"]


@nobody_falls_behind
def test_an_heir_that_hears_of_it_late_has_everything(cluster: LocalCluster, links: Links) -> None:
    """The leader dies while the controller cannot reach who is to lead next."""
    controller, leader, heir = controller_and_others(cluster)
    create(cluster, [leader, heir, controller])
    written = [b"%d" % number for number in range(20)]
    for value in written:
        write(leader, value)
    links.part(controller, heir)
    leader.kill()
    eventually(lambda: state(controller).leader_id == heir.id, "the controller has decided")
    assert send(heir, b"early", timeout_ms=200) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    links.mend()
    write(heir, b"after")
    leader.start()
    assert agree(cluster, heir) == [*written, b"after"]


def test_a_leader_that_lost_the_registry_and_does_not_know_it_acknowledges_nothing(
    cluster: LocalCluster,
) -> None:
    controller, leader, other = controller_and_others(cluster)
    create(cluster, [leader, other, controller])
    write(leader, b"before")
    lose_registry(cluster, leader)
    eventually(lambda: state(controller).leader_id not in (leader.id, -1), "another leads")
    heir = cluster.brokers[state(controller).leader_id]
    write(heir, b"after")
    for _ in range(2):
        code = send(leader, b"meanwhile", timeout_ms=LAG_MAX_MS)
        assert code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert b"meanwhile" not in read(leader)
    leader.kill()
    leader.start()
    assert agree(cluster, heir) == [b"before", b"after"]


def lose_registry(cluster: LocalCluster, broker: ClusterBroker) -> None:
    """It goes on, and hears nothing more from there; nor do the others hear of it."""
    registry, keeper = cluster.cluster.open_registry()
    assert broker.instance is not None
    for session in list(broker.instance.registry.sessions):
        keeper.call(partial(registry.abandon, session))


@nobody_falls_behind
def test_over_a_slow_network_everything_goes_on(cluster: LocalCluster, links: Links) -> None:
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
    assert agree(cluster, leader) == written


def test_a_link_that_comes_and_goes_loses_nothing_and_doubles_nothing(
    cluster: LocalCluster, links: Links
) -> None:
    controller, leader, follower = controller_and_others(cluster)
    create(cluster, [leader, follower, controller])
    acknowledged: list[bytes] = []
    has_gone_on, is_over = threading.Event(), threading.Event()

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
                has_gone_on.set()

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
            has_gone_on.clear()
            assert has_gone_on.wait(DEADLINE_S), "producers go on"
            links.part(leader, follower)
            is_over.wait(cut_s)
            links.mend()
    finally:
        links.mend()
        is_over.set()
        loading.join()
    found = agree(cluster, leader)
    assert len(acknowledged) == len({*acknowledged})
    assert found == acknowledged


@nobody_falls_behind
def test_produces_that_wait_end_when_their_leader_leaves(
    cluster: LocalCluster, links: Links
) -> None:
    controller, leader, heir = controller_and_others(cluster)
    create(cluster, [leader, heir, controller])
    write(leader, b"before")
    links.cut(heir, leader, Way.ANSWERS)
    data = PartitionProduceData(0, recent_batch_of(b"meanwhile"))
    request = ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=(TopicProduceData(TOPIC, (data,)),)
    )
    with Raw(leader.address) as raw:
        begun = raw.begin(request)
        eventually(lambda: is_copied(cluster, controller), "it was appended, and one has it")
        leaving = threading.Thread(target=leader.stop)
        leaving.start()
        try:
            answer = raw.answer(ProduceResponse, *begun)
            code = answer.responses[0].partition_responses[0].error_code
        except ConnectionError:
            code = ErrorCode.NETWORK_EXCEPTION  # it was gone before it could say so
        leaving.join()
    assert code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NONE,  # on a machine so slow that who lacks it has fallen out of sync meanwhile
    )
    links.mend()
    write(heir, b"after")
    leader.start()
    found = agree(cluster, heir)
    assert (found[0], found[-1]) == (b"before", b"after")
    assert b"meanwhile" in found or code != ErrorCode.NONE


def test_answers_that_are_lost_behind_an_append_double_nothing(
    tmp_path: Path, links: Links
) -> None:
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
        links.change({(client, port): {Way.ANSWERS}})
        send_all(range(5, 10))
        eventually(lambda: len(read_at(f"127.0.0.1:{port}")) == 10, "all are appended")
        assert len(acknowledged) == 5
        links.hang_up(client, port)
        links.mend()
        assert producer.flush(DEADLINE_S) == 0
        assert acknowledged == list(range(10))
        assert read(broker) == [b"%d" % number for number in range(10)]


def is_copied(cluster: LocalCluster, broker: ClusterBroker) -> bool:
    (segment,) = (cluster.data / f"broker-{broker.id}" / f"{TOPIC}-0").glob("*.log")
    return b"meanwhile" in segment.read_bytes()
