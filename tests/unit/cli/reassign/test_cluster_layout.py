"""The layout of a cluster for the planner."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from barnabas.cli.reassign import cluster_layout
from barnabas.cli.reassign.cluster_layout import read_layout
from barnabas.client.cluster import Cluster
from barnabas.client.reassignment_admin import OngoingReassignment
from barnabas.client.view import BrokerView, ClusterView, PartitionView, TopicView
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, TopicPartition
from tests.unit.reassignment.layouts import tp


class ScriptedCluster(Cluster):
    """Brokers 1 to 3. Partition a-0 is on brokers 1 and 2."""

    def refresh(self, topics: Iterable[str] | None = None) -> ClusterView:
        placed = PartitionView(
            partition=0, leader=BrokerId(2), leader_epoch=0, replicas=(1, 2), isr=(1, 2)
        )
        brokers = {
            BrokerId(each): BrokerView(id=BrokerId(each), host="h", port=each) for each in (1, 2, 3)
        }
        return ClusterView(brokers=brokers, topics={"a": TopicView(name="a", partitions=(placed,))})


def read_sizes(
    _cluster: Cluster, broker: int, _partitions: object
) -> dict[tuple[TopicPartition, int], int]:
    if broker == 2:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "connection refused")
    return {(tp("a-0"), 1): 500} if broker == 1 else {}


def test_broker_that_does_not_answer_counts_as_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster_layout, "read_log_sizes", read_sizes)
    layout = read_layout(ScriptedCluster("localhost:1"), {})
    assert layout.brokers == {1: None, 3: None}
    assert layout.partitions[tp("a-0")].size == 500, "the size of another replica"
    assert "broker 2 does not answer, and counts as down" in capsys.readouterr().err


def test_partition_that_moves_has_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_layout, "read_log_sizes", read_sizes)
    moving = OngoingReassignment(replicas=(3, 1, 2), adding=(3,), removing=(1,))
    layout = read_layout(ScriptedCluster("localhost:1"), {tp("a-0"): moving})
    assert layout.partitions[tp("a-0")].replicas == (3, 2)
