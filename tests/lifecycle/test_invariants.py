"""The checkers can fail: each invariant is violated once and reported."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.metadata import znodes
from barnabas.model import BrokerId, ControllerEpoch, LeaderAndIsr, LeaderEpoch, TopicPartition
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.world.ports import ZnodeStat
from tests.lifecycle.invariants import Invariants
from tests.lifecycle.wire import ControlRequest, Exchange

TOPIC_ID = UUID(int=7)
P0 = TopicPartition("t", 0)


def stat(
    *, czxid: int = 1, mzxid: int | None = None, version: int = 0, owner: int = 0
) -> ZnodeStat:
    return ZnodeStat(czxid, mzxid or czxid, czxid, 0, 0, version, 0, owner, 0, 0)


class Observations:
    """Feeds observations to the invariants in order."""

    def __init__(self) -> None:
        self.invariants = Invariants()

    def see(self, path: str, data: bytes, stat: ZnodeStat, at_ns: int = 0) -> None:
        self.invariants.see(path, data, stat, at_ns)

    def topic(
        self,
        *partitions: tuple[int, ...],
        first: int = 0,
        topic_id: UUID = TOPIC_ID,
        czxid: int = 1,
        mzxid: int | None = None,
    ) -> None:
        assignment = znodes.TopicAssignment(
            topic_id=topic_id,
            partitions={
                index: znodes.ReplicaAssignment(replicas=tuple(map(BrokerId, replicas)))
                for index, replicas in enumerate(partitions, first)
            },
        )
        data = znodes.encode_topic(assignment)
        self.see(znodes.topic_path("t"), data, stat(czxid=czxid, mzxid=mzxid))

    def state(
        self,
        leader: int,
        isr: tuple[int, ...],
        epoch: int,
        version: int = 0,
        *,
        czxid: int = 1,
        mzxid: int | None = None,
    ) -> None:
        state = LeaderAndIsr(
            leader=BrokerId(leader),
            isr=tuple(map(BrokerId, isr)),
            leader_epoch=LeaderEpoch(epoch),
            controller_epoch=ControllerEpoch(1),
        )
        written = stat(czxid=czxid, mzxid=mzxid, version=version)
        self.see(znodes.state_path(P0), znodes.encode_state(state), written)

    def marker(self, *, czxid: int) -> None:
        self.see(znodes.delete_topic_path("t"), b"", stat(czxid=czxid))

    def epoch(self, epoch: int, version: int, *, mzxid: int = 1) -> None:
        data = znodes.encode_controller_epoch(epoch)
        self.see(znodes.CONTROLLER_EPOCH, data, stat(mzxid=mzxid, version=version))

    def controller(self, broker: int, *, czxid: int) -> None:
        data = znodes.encode_controller(broker, timestamp_ms=0)
        self.see(znodes.CONTROLLER, data, stat(czxid=czxid, owner=broker))

    def registered(self, broker: int, *, epoch: int, at_ns: int) -> None:
        self.see(znodes.broker_path(broker), b"{}", stat(czxid=epoch), at_ns)

    def request(
        self, request: ControlRequest, *, at_ns: int = 0, error_code: int | None = 0
    ) -> None:
        exchange = Exchange(
            at_ns=at_ns, port=9092, frame=b"", request=request, error_code=error_code
        )
        self.invariants.check_exchanges([exchange], {9092: BrokerId(2)})

    def broken(self) -> set[str]:
        return {each.partition(":")[0] for each in self.invariants.broken}


@pytest.fixture
def observations() -> Observations:
    return Observations()


def metadata(*, leader: int, epoch: int) -> ControlRequest:
    state = UpdateMetadataPartitionState(partition_index=0, leader=leader)
    return UpdateMetadataRequest(
        controller_id=epoch,
        controller_epoch=epoch,
        broker_epoch=1,
        topic_states=(UpdateMetadataTopicState("t", TOPIC_ID, (state,)),),
    )


def leader_request(
    controller: int, epoch: int, *, broker_epoch: int = 1, leader: int = 1
) -> ControlRequest:
    state = LeaderAndIsrPartitionState(partition_index=0, leader=leader, leader_epoch=0)
    return LeaderAndIsrRequest(
        controller_id=controller,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        topic_states=(LeaderAndIsrTopicState("t", TOPIC_ID, (state,)),),
    )


def test_correct_history_violates_nothing(observations: Observations) -> None:
    observations.epoch(1, 1)
    observations.controller(1, czxid=5)
    observations.topic((1, 2, 3), (2, 3, 1))
    observations.state(1, (1, 2, 3), 0)
    observations.state(-1, (2, 3), 1, version=1)
    observations.state(2, (2, 3), 2, version=2)
    observations.state(2, (2, 3, 1), 2, version=3)
    observations.epoch(2, 2)
    observations.controller(2, czxid=9)
    observations.topic((1, 2, 3), (2, 3, 1), (3, 1, 2))
    observations.registered(2, epoch=7, at_ns=10)
    observations.request(leader_request(1, 1, broker_epoch=7), at_ns=20)
    observations.request(leader_request(1, 1, broker_epoch=3), at_ns=20, error_code=77)
    assert observations.broken() == set()
    assert observations.invariants.states_seen == 4
    assert observations.invariants.states_missed == 0


def test_missed_versions_are_counted(observations: Observations) -> None:
    observations.topic((1, 2, 3))
    observations.state(1, (1, 2, 3), 0)
    observations.state(1, (1, 2), 1, version=2)
    assert (observations.invariants.states_seen, observations.invariants.states_missed) == (2, 1)


def test_decreasing_controller_epoch_violates_1(observations: Observations) -> None:
    observations.epoch(2, 2)
    observations.epoch(1, 1)
    assert observations.broken() == {"invariant 1"}


def test_election_raising_epoch_by_two_violates_1(observations: Observations) -> None:
    observations.epoch(1, 1)
    observations.epoch(3, 2)
    assert observations.broken() == {"invariant 1"}


def test_controller_change_without_election_violates_1(observations: Observations) -> None:
    observations.controller(1, czxid=5)
    observations.controller(2, czxid=5)
    assert observations.broken() == {"invariant 1"}


def test_two_controllers_in_one_epoch_violate_1(observations: Observations) -> None:
    observations.request(leader_request(1, 4))
    observations.request(leader_request(2, 4))
    assert observations.broken() == {"invariant 1"}


def test_decreasing_leader_epoch_violates_2(observations: Observations) -> None:
    observations.topic((1, 2, 3))
    observations.state(1, (1, 2, 3), 1)
    observations.state(1, (1, 2, 3), 0, version=1)
    assert observations.broken() == {"invariant 2"}


def test_two_leaders_in_one_epoch_violate_2(observations: Observations) -> None:
    observations.topic((1, 2, 3))
    observations.state(1, (1, 2, 3), 0)
    observations.state(2, (1, 2, 3), 0, version=1)
    assert observations.broken() == {"invariant 2"}


def test_leader_named_only_by_request_violates_2(observations: Observations) -> None:
    observations.topic((1, 2, 3))
    observations.state(1, (1, 2, 3), 0)
    observations.request(leader_request(1, 1, leader=2))
    assert observations.broken() == {"invariant 2"}


def test_changed_topic_id_violates_2(observations: Observations) -> None:
    observations.topic((1, 2, 3))
    observations.topic((1, 2, 3), topic_id=UUID(int=8))
    assert observations.broken() == {"invariant 2"}


@pytest.mark.parametrize(
    ("leader", "isr"), [(1, (2, 3)), (1, (1, 4)), (-1, ())], ids=["outsider", "stranger", "empty"]
)
def test_impossible_isr_violates_3(
    observations: Observations, leader: int, isr: tuple[int, ...]
) -> None:
    observations.topic((1, 2, 3))
    observations.state(leader, isr, 0)
    assert observations.broken() == {"invariant 3"}


def test_isr_written_before_its_replicas_changed_keeps_3(observations: Observations) -> None:
    observations.topic((1, 2), mzxid=5)
    observations.state(1, (1, 2, 3), 0, mzxid=4)
    assert not observations.broken()
    observations.state(1, (1, 2, 3), 0, 1, mzxid=6)
    assert observations.broken() == {"invariant 3"}


def test_duplicate_replica_is_unreadable(observations: Observations) -> None:
    """No broker can read it either; that enforces invariant 4."""
    observations.topic((1, 2, 1))
    assert observations.broken() == {"unreadable"}


def test_different_replication_factors_violate_4(observations: Observations) -> None:
    observations.topic((1, 2), (1,))
    assert observations.broken() == {"invariant 4"}


def test_election_for_marked_topic_violates_8(observations: Observations) -> None:
    observations.epoch(1, 1, mzxid=3)
    observations.topic((1, 2, 3))
    observations.state(1, (1, 2, 3), 0)
    observations.marker(czxid=2)
    observations.state(-1, (2, 3), 1, version=1)
    assert observations.broken() == set()
    observations.state(2, (2, 3), 2, version=2)
    assert observations.broken() == {"invariant 8"}


def test_election_by_earlier_controller_is_allowed(
    observations: Observations,
) -> None:
    observations.epoch(1, 1, mzxid=3)
    observations.topic((1, 2))
    observations.state(1, (1, 2), 0)
    observations.marker(czxid=4)
    observations.state(2, (2,), 1, version=1)
    assert observations.broken() == set()


def test_leader_after_announced_deletion_violates_8(observations: Observations) -> None:
    observations.request(metadata(leader=1, epoch=1))
    observations.request(metadata(leader=-2, epoch=1))
    observations.request(metadata(leader=-2, epoch=2))
    observations.request(metadata(leader=1, epoch=1))  # from the replaced controller
    assert observations.broken() == set()
    observations.request(metadata(leader=1, epoch=2))
    assert observations.broken() == {"invariant 8"}


@pytest.mark.parametrize("path", [znodes.topic_path("t"), znodes.topic_config_path("t")])
def test_marker_removed_before_topic_violates_9(observations: Observations, path: str) -> None:
    observations.marker(czxid=5)
    observations.invariants.see_unmarked("t", {path: stat(czxid=6)})
    assert observations.broken() == set()
    observations.marker(czxid=7)
    observations.invariants.see_unmarked("t", {path: stat(czxid=6)})
    assert observations.broken() == {"invariant 9"}


def test_recreated_topic_is_checked_separately(observations: Observations) -> None:
    observations.topic((1, 2), (2, 1))
    observations.state(1, (1, 2), 4, version=3)
    observations.topic((1, 2), czxid=9, topic_id=UUID(int=8))
    observations.state(2, (1, 2), 0, czxid=10)
    assert observations.broken() == set()
    assert (observations.invariants.states_seen, observations.invariants.states_missed) == (2, 3)


def test_partition_gap_violates_10(observations: Observations) -> None:
    observations.topic((1, 2), first=1)
    assert observations.broken() == {"invariant 10"}


def test_decreasing_partition_count_violates_10(observations: Observations) -> None:
    observations.topic((1, 2), (2, 1))
    observations.topic((1, 2))
    assert observations.broken() == {"invariant 10"}


def test_marked_topic_may_lose_added_partitions(observations: Observations) -> None:
    observations.topic((1, 2), (2, 1), mzxid=5)
    observations.marker(czxid=6)
    observations.topic((1, 2), mzxid=7)
    assert observations.broken() == set()


def test_shrinking_before_marker_violates_10(observations: Observations) -> None:
    observations.topic((1, 2), (2, 1), mzxid=5)
    observations.marker(czxid=8)
    observations.topic((1, 2), mzxid=7)
    assert observations.broken() == {"invariant 10"}


def test_executing_stale_broker_epoch_request_violates_11(observations: Observations) -> None:
    observations.registered(2, epoch=3, at_ns=10)
    observations.registered(2, epoch=7, at_ns=20)
    observations.request(leader_request(1, 1, broker_epoch=3), at_ns=15)
    assert observations.broken() == set()
    observations.request(leader_request(1, 1, broker_epoch=3), at_ns=25)
    assert observations.broken() == {"invariant 11"}
