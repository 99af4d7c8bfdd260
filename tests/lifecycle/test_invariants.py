"""The checkers can fail: each invariant is broken once, and says so."""

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


class Story:
    """Sightings in the order they are told."""

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
    ) -> None:
        state = LeaderAndIsr(
            leader=BrokerId(leader),
            isr=tuple(map(BrokerId, isr)),
            leader_epoch=LeaderEpoch(epoch),
            controller_epoch=ControllerEpoch(1),
        )
        written = stat(czxid=czxid, version=version)
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

    def hear(self, request: ControlRequest, *, at_ns: int = 0, error_code: int | None = 0) -> None:
        exchange = Exchange(
            at_ns=at_ns, port=9092, frame=b"", request=request, error_code=error_code
        )
        self.invariants.hear([exchange], {9092: BrokerId(2)})

    def broken(self) -> set[str]:
        return {each.partition(":")[0] for each in self.invariants.broken}


@pytest.fixture
def story() -> Story:
    return Story()


def metadata(*, leader: int, epoch: int) -> ControlRequest:
    state = UpdateMetadataPartitionState(partition_index=0, leader=leader)
    return UpdateMetadataRequest(
        controller_id=epoch,
        controller_epoch=epoch,
        broker_epoch=1,
        topic_states=(UpdateMetadataTopicState("t", TOPIC_ID, (state,)),),
    )


def order(controller: int, epoch: int, *, broker_epoch: int = 1, leader: int = 1) -> ControlRequest:
    state = LeaderAndIsrPartitionState(partition_index=0, leader=leader, leader_epoch=0)
    return LeaderAndIsrRequest(
        controller_id=controller,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        topic_states=(LeaderAndIsrTopicState("t", TOPIC_ID, (state,)),),
    )


def test_a_life_without_fault_breaks_nothing(story: Story) -> None:
    story.epoch(1, 1)
    story.controller(1, czxid=5)
    story.topic((1, 2, 3), (2, 3, 1))
    story.state(1, (1, 2, 3), 0)
    story.state(-1, (2, 3), 1, version=1)
    story.state(2, (2, 3), 2, version=2)
    story.state(2, (2, 3, 1), 2, version=3)
    story.epoch(2, 2)
    story.controller(2, czxid=9)
    story.topic((1, 2, 3), (2, 3, 1), (3, 1, 2))
    story.registered(2, epoch=7, at_ns=10)
    story.hear(order(1, 1, broker_epoch=7), at_ns=20)
    story.hear(order(1, 1, broker_epoch=3), at_ns=20, error_code=77)
    assert story.broken() == set()
    assert story.invariants.states_seen == 4
    assert story.invariants.states_missed == 0


def test_a_version_that_was_not_seen_is_counted(story: Story) -> None:
    story.topic((1, 2, 3))
    story.state(1, (1, 2, 3), 0)
    story.state(1, (1, 2), 1, version=2)
    assert (story.invariants.states_seen, story.invariants.states_missed) == (2, 1)


def test_a_controller_epoch_that_falls_breaks_1(story: Story) -> None:
    story.epoch(2, 2)
    story.epoch(1, 1)
    assert story.broken() == {"invariant 1"}


def test_an_election_that_raises_the_epoch_by_two_breaks_1(story: Story) -> None:
    story.epoch(1, 1)
    story.epoch(3, 2)
    assert story.broken() == {"invariant 1"}


def test_a_controller_that_changes_without_an_election_breaks_1(story: Story) -> None:
    story.controller(1, czxid=5)
    story.controller(2, czxid=5)
    assert story.broken() == {"invariant 1"}


def test_two_that_command_in_one_epoch_break_1(story: Story) -> None:
    story.hear(order(1, 4))
    story.hear(order(2, 4))
    assert story.broken() == {"invariant 1"}


def test_a_leader_epoch_that_falls_breaks_2(story: Story) -> None:
    story.topic((1, 2, 3))
    story.state(1, (1, 2, 3), 1)
    story.state(1, (1, 2, 3), 0, version=1)
    assert story.broken() == {"invariant 2"}


def test_two_leaders_of_one_epoch_break_2(story: Story) -> None:
    story.topic((1, 2, 3))
    story.state(1, (1, 2, 3), 0)
    story.state(2, (1, 2, 3), 0, version=1)
    assert story.broken() == {"invariant 2"}


def test_a_leader_that_only_a_request_names_breaks_2(story: Story) -> None:
    story.topic((1, 2, 3))
    story.state(1, (1, 2, 3), 0)
    story.hear(order(1, 1, leader=2))
    assert story.broken() == {"invariant 2"}


def test_a_topic_id_that_changes_breaks_2(story: Story) -> None:
    story.topic((1, 2, 3))
    story.topic((1, 2, 3), topic_id=UUID(int=8))
    assert story.broken() == {"invariant 2"}


@pytest.mark.parametrize(
    ("leader", "isr"), [(1, (2, 3)), (1, (1, 4)), (-1, ())], ids=["outsider", "stranger", "empty"]
)
def test_an_impossible_isr_breaks_3(story: Story, leader: int, isr: tuple[int, ...]) -> None:
    story.topic((1, 2, 3))
    story.state(leader, isr, 0)
    assert story.broken() == {"invariant 3"}


def test_a_replica_named_twice_cannot_be_read(story: Story) -> None:
    """Nor by any broker: that is how invariant 4 is held."""
    story.topic((1, 2, 1))
    assert story.broken() == {"unreadable"}


def test_partitions_of_different_size_break_4(story: Story) -> None:
    story.topic((1, 2), (1,))
    assert story.broken() == {"invariant 4"}


def test_a_leader_elected_for_what_is_to_be_deleted_breaks_8(story: Story) -> None:
    story.epoch(1, 1, mzxid=3)
    story.topic((1, 2, 3))
    story.state(1, (1, 2, 3), 0)
    story.marker(czxid=2)
    story.state(-1, (2, 3), 1, version=1)
    assert story.broken() == set()
    story.state(2, (2, 3), 2, version=2)
    assert story.broken() == {"invariant 8"}


def test_a_leader_elected_by_who_may_not_have_heard_of_the_marker_breaks_nothing(
    story: Story,
) -> None:
    story.epoch(1, 1, mzxid=3)
    story.topic((1, 2))
    story.state(1, (1, 2), 0)
    story.marker(czxid=4)
    story.state(2, (2,), 1, version=1)
    assert story.broken() == set()


def test_a_broker_that_is_told_again_of_what_goes_breaks_8(story: Story) -> None:
    story.hear(metadata(leader=1, epoch=1))
    story.hear(metadata(leader=-2, epoch=1))
    story.hear(metadata(leader=-2, epoch=2))
    story.hear(metadata(leader=1, epoch=1))  # from who is deposed
    assert story.broken() == set()
    story.hear(metadata(leader=1, epoch=2))
    assert story.broken() == {"invariant 8"}


@pytest.mark.parametrize("path", [znodes.topic_path("t"), znodes.topic_config_path("t")])
def test_a_marker_that_goes_before_its_topic_breaks_9(story: Story, path: str) -> None:
    story.marker(czxid=5)
    story.invariants.see_unmarked("t", {path: stat(czxid=6)})
    assert story.broken() == set()
    story.marker(czxid=7)
    story.invariants.see_unmarked("t", {path: stat(czxid=6)})
    assert story.broken() == {"invariant 9"}


def test_a_topic_that_has_the_name_of_another_begins_anew(story: Story) -> None:
    story.topic((1, 2), (2, 1))
    story.state(1, (1, 2), 4, version=3)
    story.topic((1, 2), czxid=9, topic_id=UUID(int=8))
    story.state(2, (1, 2), 0, czxid=10)
    assert story.broken() == set()
    assert (story.invariants.states_seen, story.invariants.states_missed) == (2, 3)


def test_partitions_with_a_gap_break_10(story: Story) -> None:
    story.topic((1, 2), first=1)
    assert story.broken() == {"invariant 10"}


def test_partitions_that_become_fewer_break_10(story: Story) -> None:
    story.topic((1, 2), (2, 1))
    story.topic((1, 2))
    assert story.broken() == {"invariant 10"}


def test_topic_to_be_deleted_may_lose_the_partitions_of_an_expansion(story: Story) -> None:
    story.topic((1, 2), (2, 1), mzxid=5)
    story.marker(czxid=6)
    story.topic((1, 2), mzxid=7)
    assert story.broken() == set()


def test_topic_that_shrank_before_its_marker_was_created_breaks_10(story: Story) -> None:
    story.topic((1, 2), (2, 1), mzxid=5)
    story.marker(czxid=8)
    story.topic((1, 2), mzxid=7)
    assert story.broken() == {"invariant 10"}


def test_obeying_what_was_meant_for_a_former_life_breaks_11(story: Story) -> None:
    story.registered(2, epoch=3, at_ns=10)
    story.registered(2, epoch=7, at_ns=20)
    story.hear(order(1, 1, broker_epoch=3), at_ns=15)
    assert story.broken() == set()
    story.hear(order(1, 1, broker_epoch=3), at_ns=25)
    assert story.broken() == {"invariant 11"}
