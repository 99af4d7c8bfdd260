"""A leader that is also controller is paused until it is replaced. Then it resumes without knowing.

Requests that clients sent meanwhile are in its sockets. It handles them before it learns anything from ZooKeeper or its
successors. None of its actions may take effect, and no client may read records that will be truncated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from barnabas.errors import ErrorCode
from barnabas.wire.codec import Message
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.messages.produce import ProduceResponse
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.world.registry.zookeeper import ZooKeeperRegistry
from support.cluster import ClusterProcesses
from support.waiting import eventually
from tests.compatibility.raw import Raw, fetch_request, produce_request, recent_batch_of, values_in
from tests.faults.chaos.replicas import read_copy
from tests.lifecycle.invariants import Invariants
from tests.lifecycle.observer import Observer

Answer = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
TOPIC, GHOST = "letters", "ghost"
DEADLINE_S = 30.0
FETCH_BY_NAME = 12
SETTINGS = {"zookeeper.session.timeout.ms": "1500", "barnabas.history.topic.enable": "false"}


@pytest.fixture
def cluster(tmp_path: Path, chroot: str) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, chroot, brokers=3, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def observer(cluster: ClusterProcesses, chroot: str) -> Iterator[Observer]:
    registry = ZooKeeperRegistry(chroot, connection_timeout_ms=20_000, in_flight_max=50)
    looking = Observer(registry, Invariants())
    looking.begin()
    yield looking
    looking.end()
    assert not looking.invariants.broken


def at(cluster: ClusterProcesses, broker: int) -> Raw:
    return Raw(cluster.brokers[broker].bootstrap_servers)


def create(cluster: ClusterProcesses, controller: int) -> None:
    """Create the topic with the controller as leader."""
    others = [each for each in cluster.brokers if each != controller]
    wanted = CreatableTopic(
        TOPIC,
        -1,
        -1,
        (CreatableReplicaAssignment(0, (controller, *others)),),
        (CreatableTopicConfig("min.insync.replicas", "2"),),
    )
    with at(cluster, controller) as raw:
        answer = raw.ask(CreateTopicsRequest(topics=(wanted,)), CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        write(raw, b"before")


def write(raw: Raw, value: bytes) -> None:
    def is_written() -> bool:
        return raw.produce(TOPIC, recent_batch_of(value)).error_code == ErrorCode.NONE

    eventually(is_written, f"{value!r} is acknowledged", DEADLINE_S)


def leader_at(cluster: ClusterProcesses, broker: int) -> int:
    view = cluster.brokers[broker].view()
    return (
        -1 if view is None or TOPIC not in view.topics else view.topics[TOPIC].partitions[0].leader
    )


def controller_at(cluster: ClusterProcesses, broker: int) -> int:
    view = cluster.brokers[broker].view()
    return -1 if view is None else view.controller


def is_healthy(cluster: ClusterProcesses, broker: int) -> bool:
    view = cluster.brokers[broker].view()
    return view is not None and not view.topics[TOPIC].partitions[0].is_under_replicated


def test_resumed_former_leader_and_controller_is_fenced(
    cluster: ClusterProcesses, observer: Observer
) -> None:
    zombie = cluster.controller_id
    others = [each for each in cluster.brokers if each != zombie]
    create(cluster, zombie)
    epoch = observer.controller_epoch()
    with ExitStack() as opened:
        one, all_, creating, deleting, reading = (
            opened.enter_context(at(cluster, zombie)) for _ in range(5)
        )
        cluster.brokers[zombie].pause()
        eventually(
            lambda: all(
                leader_at(cluster, each) not in (-1, zombie)
                and controller_at(cluster, each) not in (-1, zombie)
                for each in others
            ),
            "others lead and govern",
            DEADLINE_S,
        )
        with at(cluster, leader_at(cluster, others[0])) as raw:
            write(raw, b"after")

        with_one = one.begin(produce_request(TOPIC, recent_batch_of(b"zombie 1"), acks=1))
        with_all = all_.begin(produce_request(TOPIC, recent_batch_of(b"zombie all"), acks=-1))
        made = creating.begin(
            CreateTopicsRequest(topics=(CreatableTopic(GHOST, 1, 3),), timeout_ms=5000)
        )
        unmade = deleting.begin(
            DeleteTopicsRequest(topics=(DeleteTopicState(TOPIC),), timeout_ms=5000)
        )
        read = reading.begin(fetch_request(TOPIC, {0: 0}), FETCH_BY_NAME)
        cluster.brokers[zombie].resume()

        one.answer(ProduceResponse, *with_one)  # any result: acks=1 promises nothing
        answer = all_.answer(ProduceResponse, *with_all)
        assert answer.responses[0].partition_responses[0].error_code != ErrorCode.NONE
        fetched = reading.answer(FetchResponse, *read).responses[0].partitions[0]
        assert values_in(fetched) in ([], [b"before"], [b"before", b"after"])
        created = creating.answer(CreateTopicsResponse, *made).topics[0].error_code
        deleted = deleting.answer(DeleteTopicsResponse, *unmade).responses[0].error_code
        assert created == deleted == ErrorCode.NOT_CONTROLLER

        def is_back() -> bool:
            """Check that it serves fetches all the time."""
            seen = values_in(reading.fetch(TOPIC, 0))
            assert seen in ([], [b"before"], [b"before", b"after"])
            return seen == [b"before", b"after"] and is_healthy(cluster, others[0])

        eventually(is_back, "it follows and has all records", DEADLINE_S)
    assert observer.get(f"/brokers/topics/{GHOST}") is None
    assert observer.get(f"/admin/delete_topics/{TOPIC}") is None
    copies = {
        number: read_copy(broker.log_dir / f"{TOPIC}-0", 2)
        for number, broker in cluster.brokers.items()
    }
    assert len({copy.data for copy in copies.values()}) == 1
    assert copies[zombie].values == [b"before", b"after"]
    assert b"zombie" not in b"".join(
        path.read_bytes() for path in cluster.brokers[zombie].log_dir.glob(f"{TOPIC}-0/*.log")
    )
    assert observer.controller_epoch() > epoch
    assert_stale_controller_is_rejected(cluster, zombie, epoch, observer)


def assert_stale_controller_is_rejected(
    cluster: ClusterProcesses, old: int, epoch: int, observer: Observer
) -> None:
    """Send requests of the old controller, in flight when it paused, to brokers that know the new one."""
    deletion = StopReplicaTopicState(TOPIC, (StopReplicaPartitionState(0, 100, True),))
    for broker, life in observer.broker_epochs().items():
        orders: tuple[tuple[Message, type[Answer]], ...] = (
            (
                LeaderAndIsrRequest(controller_id=old, controller_epoch=epoch, broker_epoch=life),
                LeaderAndIsrResponse,
            ),
            (
                UpdateMetadataRequest(controller_id=old, controller_epoch=epoch, broker_epoch=life),
                UpdateMetadataResponse,
            ),
            (
                StopReplicaRequest(
                    controller_id=old,
                    controller_epoch=epoch,
                    broker_epoch=life,
                    topic_states=(deletion,),
                ),
                StopReplicaResponse,
            ),
        )
        with at(cluster, broker) as raw:
            for request, response in orders:
                assert raw.ask(request, response).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert (cluster.brokers[broker].log_dir / f"{TOPIC}-0").is_dir()
