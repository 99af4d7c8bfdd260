"""Changes of a controlled shutdown, while the broker still runs, on both registries.

The tests send ControlledShutdown in the name of a broker that keeps running. So the effects of the request are visible
apart from those of the broker's stop.
"""

from __future__ import annotations

import json
from typing import Any

from barnabas.errors import ErrorCode
from barnabas.model import NO_LEADER, BrokerId, LeaderAndIsr, TopicPartition
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from tests.compatibility.raw import Raw, recent_batch_of
from tests.lifecycle import client
from tests.lifecycle.client import brokers_known_to, create, eventually
from tests.lifecycle.conftest import brokers_fail
from tests.lifecycle.watched import DEADLINE_S, DONE, WatchedCluster

T = "t"
P0 = TopicPartition(T, 0)
SHUTDOWN_VERSION = 3
ALTER_VERSION = 3


def create_topic(cluster: WatchedCluster, *replicas: BrokerId, name: str = T) -> None:
    assert cluster.ask(create, name, [replicas]) == DONE


def others_and_controller(cluster: WatchedCluster) -> tuple[BrokerId, BrokerId, BrokerId]:
    """The two brokers that are not the controller, then the controller."""
    controller = cluster.controller()
    first, second = sorted(cluster.brokers.alive() - {controller})
    return first, second, controller


def request_shutdown(cluster: WatchedCluster, broker: BrokerId) -> list[TopicPartition]:
    """Send ControlledShutdown in the name of a broker. Returns the partitions that it still leads."""
    request = ControlledShutdownRequest(
        broker_id=broker, broker_epoch=cluster.observer.broker_epochs()[broker]
    )
    address = cluster.brokers.address(cluster.controller())
    answer = client.ask(address, request, ControlledShutdownResponse, SHUTDOWN_VERSION)
    assert answer is not None
    assert answer.error_code == ErrorCode.NONE
    return [TopicPartition(*each) for each in answer.remaining_partitions]


def propose_isr(cluster: WatchedCluster, *isr: BrokerId) -> ErrorCode:
    """Send AlterPartition for t-0 in the name of its leader."""
    epochs = cluster.observer.broker_epochs()
    topic, known = cluster.topic_znode(T), state_of(cluster)
    assert topic is not None
    assert topic.topic_id is not None
    change = AlterPartitionPartition(
        partition_index=0,
        leader_epoch=known.leader_epoch,
        partition_epoch=known.partition_epoch,
        new_isr_with_epochs=tuple(BrokerState(each, epochs[each]) for each in isr),
    )
    request = AlterPartitionRequest(
        broker_id=known.leader,
        broker_epoch=epochs[known.leader],
        topics=(AlterPartitionTopic(topic_id=topic.topic_id, partitions=(change,)),),
    )
    address = cluster.brokers.address(cluster.controller())
    answer = client.ask(address, request, AlterPartitionResponse, ALTER_VERSION)
    assert answer is not None
    assert answer.error_code == ErrorCode.NONE
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def state_of(cluster: WatchedCluster, topic: str = T) -> LeaderAndIsr:
    return cluster.observer.states(topic, 1)[0]


def recorded_changes(cluster: WatchedCluster, broker: BrokerId) -> list[dict[str, Any]]:
    """The state changes of t-0 that this broker recorded as controller during controlled shutdowns."""
    files = sorted(cluster.brokers.log_dir(broker).glob("state-changes-*.jsonl"))
    events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [
        event
        for event in events
        if event["what"] == "partition"
        and event["id"] == str(P0)
        and event["cause"].startswith("ControlledShutdownReceived")
    ]


# ---- the set of brokers that are shutting down ------------------------------------------------------------


def test_shutting_down_broker_stays_registered_but_gets_no_role_in_new_partitions(
    cluster: WatchedCluster,
) -> None:
    first, second, controller = others_and_controller(cluster)
    assert request_shutdown(cluster, first) == []
    create_topic(cluster, first, second, name="later")
    later = state_of(cluster, "later")
    assert (later.leader, later.isr) == (second, (second,)), "assigned first, but not elected"
    cluster.wait_until_led("later", 1, [first, second, controller])
    for broker in (first, second, controller):
        address = cluster.brokers.address(broker)
        (partition,) = client.topics_of(address, ["later"])["later"].partitions
        assert partition.offline_replicas == (first,)
        assert brokers_known_to(address) == {first, second, controller}


def test_shutting_down_broker_cannot_join_isr_until_another_controller_is_elected(
    cluster: WatchedCluster,
) -> None:
    """The set is only in the memory of the controller. Its successor does not know it."""
    first, second, controller = others_and_controller(cluster)
    create_topic(cluster, second, controller, first)
    cluster.wait_until_healthy(T, [[second, controller, first]])
    assert request_shutdown(cluster, first) == []
    assert state_of(cluster).isr == (second, controller)
    assert propose_isr(cluster, second, controller, first) is ErrorCode.INELIGIBLE_REPLICA
    assert state_of(cluster).isr == (second, controller)
    cluster.fail_over()
    cluster.wait_until_healthy(T, [[second, controller, first]])


# ---- partitions with one replica --------------------------------------------------------------------------


@brokers_fail
def test_partition_with_one_replica_is_served_until_its_broker_stops(
    cluster: WatchedCluster,
) -> None:
    """There is no other leader. An earlier stop would only make the outage longer."""
    first, _, controller = others_and_controller(cluster)
    create_topic(cluster, first)
    cluster.wait_until_healthy(T, [[first]])
    before = state_of(cluster)
    assert request_shutdown(cluster, first) == [], "it does not delay the shutdown"
    assert state_of(cluster) == before
    host, port = cluster.brokers.address(first)
    with Raw(f"{host}:{port}") as raw:
        assert raw.produce(T, recent_batch_of(b"late")).error_code == ErrorCode.NONE
    cluster.brokers.kill([first])
    eventually(
        lambda: state_of(cluster).leader == NO_LEADER,
        lambda: f"no leader: {state_of(cluster)}",
        DEADLINE_S,
    )
    after = state_of(cluster)
    assert (after.isr, after.leader_epoch) == ((first,), before.leader_epoch + 1)
    cluster.brokers.restart([first])
    cluster.wait_until_healthy(T, [[first]])
    assert cluster.controller() == controller


# ---- the transition of led partitions ---------------------------------------------------------------------


def test_leadership_moves_without_offline_state(cluster: WatchedCluster) -> None:
    first, second, controller = others_and_controller(cluster)
    create_topic(cluster, first, second, controller)
    cluster.wait_until_healthy(T, [[first, second, controller]])
    before = state_of(cluster)
    assert request_shutdown(cluster, first) == []
    after = state_of(cluster)
    assert (after.leader, after.isr) == (second, (second, controller))
    assert after.leader_epoch == before.leader_epoch + 1
    (change,) = recorded_changes(cluster, controller)
    assert (change["before"], change["after"]) == ("OnlinePartition", "OnlinePartition")
    assert (change["leader"], change["result"]) == (second, "done")


@brokers_fail
def test_partition_without_other_in_sync_replica_stays_online_and_is_reported(
    cluster: WatchedCluster,
) -> None:
    first, second, controller = others_and_controller(cluster)
    create_topic(cluster, first, second)
    cluster.wait_until_healthy(T, [[first, second]])
    cluster.brokers.kill([second])
    cluster.wait_until_missed(sorted([first, controller]))
    cluster.wait_until_led(T, 1, sorted([first, controller]))
    before = state_of(cluster)
    assert request_shutdown(cluster, first) == [P0]
    assert state_of(cluster) == before
    (change,) = recorded_changes(cluster, controller)
    assert (change["before"], change["result"]) == ("OnlinePartition", "failed")
    host, port = cluster.brokers.address(first)
    with Raw(f"{host}:{port}") as raw:
        assert raw.produce(T, recent_batch_of(b"late")).error_code == ErrorCode.NONE
