"""Invariants of the controller under random sequences of events."""

from __future__ import annotations

from collections import defaultdict
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.controller.elections import Strategy
from barnabas.controller.states import (
    VALID_PREVIOUS_PARTITION_STATES,
    VALID_PREVIOUS_REPLICA_STATES,
    PartitionState,
    ReplicaState,
)
from barnabas.errors import ErrorCode
from barnabas.model import BrokerId, LeaderAndIsr, TopicPartition
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.messages.stop_replica import StopReplicaRequest
from tests.unit.controller.cluster import SimulatedCluster

BROKERS = (1, 2, 3, 4)


class CheckedCluster(SimulatedCluster):
    """Checks each state change at once, since brokers may fail before the event is over."""

    def move_partitions(
        self,
        partitions: tuple[TopicPartition, ...],
        target: PartitionState,
        strategy: Strategy | None = None,
    ) -> int:
        before = len(self.moves)
        elected = super().move_partitions(partitions, target, strategy)
        for move in self.moves[before:]:
            assert move.after in PartitionState
            if move.write is not None:
                leader = move.write.state.leader
                partition = move.write.partition
                assert leader in self.context.replicas(partition)
                assert self.context.is_replica_online(leader, partition)
                assert leader in move.write.state.isr
        return elected


class InvariantChecker:
    """Remembers the state of every partition and the requests sent to every broker."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.last_states: dict[TopicPartition, LeaderAndIsr] = {}
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self.sent_epochs: dict[tuple[BrokerId, TopicPartition], int] = defaultdict(lambda: -1)

    def check(self) -> None:
        self.check_moves()
        for partition, state in self.cluster.znodes.states.items():
            self.check_state(partition, state)
        self.check_context()
        self.check_requests()

    def check_moves(self) -> None:
        for move in self.cluster.moves:
            if isinstance(move.after, PartitionState):
                assert move.before in VALID_PREVIOUS_PARTITION_STATES[move.after]
            else:
                assert move.before in VALID_PREVIOUS_REPLICA_STATES[move.after]
        self.cluster.moves.clear()

    def check_state(self, partition: TopicPartition, state: LeaderAndIsr) -> None:
        assert state.isr
        assert set(state.isr) <= set(self.cluster.context.replicas(partition))
        assert state.leader == -1 or state.leader in state.isr
        before = self.last_states.get(partition)
        if before is not None:
            assert state.leader_epoch >= before.leader_epoch
            assert state.controller_epoch >= before.controller_epoch
            assert state.partition_epoch >= before.partition_epoch
        self.last_states[partition] = state
        if state.leader != -1:
            first = self.leaders.setdefault((partition, state.leader_epoch), state.leader)
            assert first == state.leader

    def check_context(self) -> None:
        context = self.cluster.context
        for partition, known in context.leadership.items():
            written = self.cluster.znodes.states[partition]
            assert known.leader_epoch <= written.leader_epoch
            deleting = context.is_topic_queued_for_deletion(partition.topic)
            if context.partition_state(partition) is PartitionState.ONLINE and not deleting:
                assert known.leader in context.brokers
        for partition in context.partitions_in_states(PartitionState.NEW):
            if context.is_topic_queued_for_deletion(partition.topic):
                continue
            assert not context.online_replicas(partition) or partition in self.cluster.znodes.states

    def check_requests(self) -> None:
        for to, content in self.cluster.take_sent():
            assert to in self.cluster.context.broker_epochs or to not in self.cluster.registered
            assert content.controller_epoch == self.cluster.context.epoch
            if isinstance(content, LeaderAndIsrRequest):
                for topic in content.topic_states:
                    for state in topic.partition_states:
                        partition = TopicPartition(topic.topic_name, state.partition_index)
                        assert to in state.replicas
                        assert state.leader_epoch >= self.sent_epochs[to, partition]
                        self.sent_epochs[to, partition] = state.leader_epoch
            elif isinstance(content, StopReplicaRequest):
                assert content.topic_states


event_sequences = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("create", "kill", "start", "bounce", "fail over", "shut down", "prefer", "race"),
                *("isr", "delete", "answer"),
            )
        ),
        st.integers(0, 2**16),
    ),
    max_size=25,
)


@settings(max_examples=120)
@given(event_sequences, st.booleans())
def test_invariants_hold_for_random_events(events: list[tuple[str, int]], unclean: bool) -> None:
    cluster = CheckedCluster(*BROKERS)
    checker = InvariantChecker(cluster)
    checker.check()
    for number, (event, seed) in enumerate(events):
        cluster.unclean = dict.fromkeys(cluster.topics, unclean)
        apply_event(cluster, event, Random(seed), number)
        checker.check()
    cluster.start(*(each for each in BROKERS if each not in cluster.registered))
    checker.check()
    cluster.fail_over(BrokerId(1))
    checker.check()
    marked = tuple(cluster.marked_for_deletion)
    cluster.answer_deletes()
    checker.check()
    assert not cluster.context.topics_to_be_deleted, (
        "all brokers are back, but a deletion is still pending"
    )
    assert not cluster.marked_for_deletion
    assert not cluster.topics.keys() & set(marked)
    states = {cluster.context.partition_state(each) for each in cluster.context.all_partitions}
    assert states <= {PartitionState.ONLINE}, "all brokers are back, but a partition has no leader"
    for partition in cluster.context.all_partitions:
        for each in cluster.context.replicas_of([partition]):
            assert cluster.context.replica_state(each) is ReplicaState.ONLINE


def apply_event(cluster: SimulatedCluster, event: str, random: Random, number: int) -> None:
    up = sorted(cluster.registered)
    down = [each for each in BROKERS if each not in cluster.registered]
    led = [
        tp
        for tp, state in sorted(cluster.znodes.states.items())
        if state.leader != -1 and not cluster.context.is_topic_queued_for_deletion(tp.topic)
    ]
    if event == "create":
        replicas = [
            random.sample(BROKERS, random.randint(1, 3)) for _ in range(random.randint(1, 3))
        ]
        cluster.create(f"t{number}", *replicas)
    elif event == "kill" and len(up) > 1:
        cluster.kill(*random.sample(up, random.randint(1, len(up) - 1)))
    elif event == "start" and down:
        cluster.start(*random.sample(down, random.randint(1, len(down))))
    elif event == "bounce":
        cluster.register(random.choice(up))
        if down and random.random() < 0.5:
            cluster.register(random.choice(down))
        cluster.process_broker_changes()
    elif event == "fail over":
        if len(up) > 1 and random.random() < 0.7:
            del cluster.registered[random.choice(up)]
        cluster.fail_over(random.choice(sorted(cluster.registered)))
    elif event == "shut down":
        cluster.shut_down(random.choice(up))
    elif event == "prefer" and led:
        cluster.elect_preferred_leaders(*led)
    elif event == "isr" and led:
        change_isr(cluster, random.choice(led), random)
    elif event == "delete" and cluster.topics:
        cluster.delete(random.choice(sorted(cluster.topics)))
    elif event == "answer":
        error = random.choice((ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR))
        cluster.answer_deletes(random.choice(up), error=error)
    elif event == "race" and led:
        race(cluster, random.choice(led), random)


def race(cluster: SimulatedCluster, partition: TopicPartition, random: Random) -> None:
    """Change the ISR as a leader does, just before the controller writes it."""
    up = sorted(cluster.registered)
    dying = random.choice(up)
    cluster.znodes.before_commit.append(lambda: change_isr(cluster, partition, random))
    if len(up) > 1:
        cluster.kill(dying)
    else:
        cluster.elect_preferred_leaders(partition)


def change_isr(cluster: SimulatedCluster, partition: TopicPartition, random: Random) -> None:
    """Change the ISR as the leader does, without the controller noticing."""
    state = cluster.znodes.states.get(partition)
    leader = -1 if state is None else state.leader
    if leader != -1:
        others = [each for each in cluster.context.replicas(partition) if each != leader]
        cluster.znodes.change_isr(
            partition, leader, *random.sample(others, random.randint(0, len(others)))
        )
