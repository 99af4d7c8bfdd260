"""The brokers that get each request of the controller, read from the connections, on both registries."""

from __future__ import annotations

from barnabas.model import BrokerId
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.messages.stop_replica import StopReplicaRequest
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest
from tests.lifecycle.client import create, delete
from tests.lifecycle.watched import DONE, WatchedCluster

T = "t"
LEADER_DURING_DELETE = -2


class Recipients:
    """The requests about the topic since the last call of `check_requests`, by kind."""

    def __init__(self, cluster: WatchedCluster) -> None:
        brokers = cluster.brokers.ports()
        self.leader_and_isr: set[BrokerId] = set()
        self.update_metadata: dict[BrokerId, set[int]] = {}
        """Leaders that each broker was sent."""
        self.stop_replica: dict[BrokerId, list[bool]] = {}
        """Whether each request to a broker deletes the replica, in the order sent."""
        for exchange in cluster.check_requests():
            to, request = brokers[exchange.port], exchange.request
            for topic in request.topic_states:
                if topic.topic_name == T:
                    self.add(to, request)

    def add(
        self,
        to: BrokerId,
        request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest,
    ) -> None:
        match request:
            case LeaderAndIsrRequest():
                self.leader_and_isr.add(to)
            case UpdateMetadataRequest():
                self.update_metadata.setdefault(to, set()).update(
                    each.leader for topic in request.topic_states for each in topic.partition_states
                )
            case StopReplicaRequest():
                self.stop_replica.setdefault(to, []).extend(
                    each.delete_partition
                    for topic in request.topic_states
                    for each in topic.partition_states
                )


def test_replicas_get_leader_and_isr_and_all_brokers_get_metadata(cluster: WatchedCluster) -> None:
    first, second, third = sorted(cluster.brokers.alive())
    cluster.check_requests()
    assert cluster.ask(create, T, [[first, second]]) == DONE
    cluster.wait_until_healthy(T, [[first, second]])
    sent = Recipients(cluster)
    assert sent.leader_and_isr == {first, second}
    assert sent.update_metadata == {first: {first}, second: {first}, third: {first}}
    assert sent.stop_replica == {}


def test_replicas_of_deleted_topic_are_stopped_then_deleted(cluster: WatchedCluster) -> None:
    first, second, third = sorted(cluster.brokers.alive())
    assert cluster.ask(create, T, [[first, second]]) == DONE
    cluster.wait_until_healthy(T, [[first, second]])
    cluster.check_requests()
    assert cluster.ask(delete, T) == DONE
    cluster.wait_until_gone(T)
    cluster.wait_until_hidden(T, [first, second, third])
    sent = Recipients(cluster)
    assert sent.leader_and_isr == set()
    assert sent.update_metadata.keys() == {first, second, third}
    assert set.union(*sent.update_metadata.values()) == {LEADER_DURING_DELETE}
    assert sent.stop_replica == {first: [False, True], second: [False, True]}
