"""In-memory cluster: the state znodes and a controller that executes its plans at once.

It does what the real controller does over a registry and connections, in the same order: decide,
commit, apply, announce, and retry after a lost race.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from msgspec.structs import replace

from barnabas.controller import (
    deletion,
    partition_machine,
    plans,
    reassignment,
    replica_machine,
)
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import (
    CreateState,
    PartitionDecision,
    PartitionFailure,
    PartitionOutcome,
    PartitionTransition,
    ReplicaFailure,
    ReplicaTransition,
    SendUpdateMetadata,
    StateReadResult,
    Write,
    WriteRejection,
    WriteResult,
)
from barnabas.controller.elections import Strategy
from barnabas.controller.plans import Registration
from barnabas.controller.request_batch import RequestBatch
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.controller.steps import (
    DelayRequests,
    DeleteTopicZnodes,
    MovePartitions,
    MoveReplicas,
    Plan,
    RaiseLeaderEpochs,
    SendDelayedRequests,
    Step,
    WriteAssignments,
    next_plan_step,
)
from barnabas.errors import ErrorCode
from barnabas.history.recorder import Request
from barnabas.metadata.znodes import ReplicaAssignment, TopicAssignment
from barnabas.model import (
    Broker,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    Replica,
    TopicPartition,
    ZnodeVersion,
)
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from barnabas.wire.messages.stop_replica import StopReplicaRequest
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest

CAUSE = "Test#1"


def broker(number: int, rack: str | None = None) -> Broker:
    endpoint = Endpoint(listener="PLAINTEXT", host=f"host{number}", port=9092)
    return Broker(id=BrokerId(number), endpoints=(endpoint,), rack=rack)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def replica_assignment(
    *replicas: int, adding: Iterable[int] = (), removing: Iterable[int] = ()
) -> ReplicaAssignment:
    return ReplicaAssignment(replicas=ids(*replicas), adding=ids(*adding), removing=ids(*removing))


def state(
    leader: int,
    isr: Sequence[int],
    *,
    epoch: int = 0,
    controller_epoch: int = 1,
    version: int = 0,
    recovering: bool = False,
) -> LeaderAndIsr:
    return LeaderAndIsr(
        leader=BrokerId(leader),
        isr=ids(*isr),
        leader_epoch=LeaderEpoch(epoch),
        controller_epoch=ControllerEpoch(controller_epoch),
        partition_epoch=ZnodeVersion(version),
        recovering=recovering,
    )


def topic_id(topic: str) -> UUID:
    return UUID(int=int.from_bytes(topic.encode()))


def replica(partition: TopicPartition, on: int) -> Replica:
    return Replica(partition, BrokerId(on))


class StateZnodes:
    """States of all partitions, with their versions."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.before_commit: list[Callable[[], None]] = []
        """Concurrent changes by others between our read and our next write; each runs once."""
        self.written: list[Write] = []

    def commit(self, writes: Sequence[Write]) -> dict[TopicPartition, WriteResult]:
        while self.before_commit:
            self.before_commit.pop(0)()
        results = {write.partition: self.write(write) for write in writes}
        assert len(results) == len(writes), "two writes for one partition"
        return results

    def write(self, write: Write) -> WriteResult:
        before = self.states.get(write.partition)
        if isinstance(write, CreateState):
            if before is not None:
                return WriteRejection.NODE_EXISTS
            version = ZnodeVersion(0)
        elif before is None:
            return WriteRejection.NO_NODE
        elif before.partition_epoch != write.expected_version:
            return WriteRejection.BAD_VERSION
        else:
            version = ZnodeVersion(before.partition_epoch + 1)
        self.states[write.partition] = replace(write.state, partition_epoch=version)
        self.written.append(write)
        return version

    def change_isr(self, partition: TopicPartition, *isr: int) -> None:
        """Change the ISR as a leader does: the version changes, the leader epoch does not."""
        before = self.states[partition]
        version = ZnodeVersion(before.partition_epoch + 1)
        self.states[partition] = replace(before, isr=ids(*isr), partition_epoch=version)


class SimulatedCluster:
    def __init__(self, *brokers: int, controller: int | None = None) -> None:
        self.znodes = StateZnodes()
        self.topics: dict[str, dict[int, ReplicaAssignment]] = {}
        self.marked_for_deletion: list[str] = []
        self.unclean: dict[str, bool] = {}
        self.zxid = 100
        self.epoch = 0
        self.registered: dict[BrokerId, Registration] = {}
        for number in brokers:
            self.register(number)
        self.sent: list[tuple[BrokerId, Request]] = []
        self.steps: list[Step] = []
        self.pending_deletes: dict[Replica, None] = {}
        """Replicas whose deletion was requested and not answered yet."""
        self.deletion_enabled = True
        self.before_step: Callable[[Step], None] = lambda step: None
        self.moves: list[PartitionTransition | ReplicaTransition] = []
        self.failures: list[PartitionFailure | ReplicaFailure] = []
        self.fail_over(BrokerId(controller or brokers[0]))

    def register(self, number: int) -> None:
        self.zxid += 1
        self.registered[BrokerId(number)] = Registration(broker(number), BrokerEpoch(self.zxid))

    # ---- cluster events

    def fail_over(self, controller: BrokerId) -> None:
        self.epoch += 1
        self.pending_deletes.clear()
        self.context = ControllerContext()
        self.context.epoch = ControllerEpoch(self.epoch)
        self.batch = RequestBatch(controller, self.context, "PLAINTEXT")
        plans.load_context(
            self.context,
            brokers=self.registered,
            topics={
                name: TopicAssignment(topic_id=topic_id(name), partitions=partitions)
                for name, partitions in self.topics.items()
            },
            states=self.znodes.states,
        )
        plans.queue_deletions_in_progress(self.context, self.marked_for_deletion)
        self.execute(plans.plan_failover(self.context))
        moving = tuple(self.context.partitions_being_reassigned)
        self.execute(reassignment.continue_reassignments(self.context, moving))

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            del self.registered[BrokerId(number)]
        self.process_broker_changes()

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self.register(number)
        self.process_broker_changes()

    def process_broker_changes(self) -> None:
        """Let the controller process the registrations. A broker that left has not answered, even
        if it is back.
        """
        before = self.context.broker_epochs
        there = {each for each, now in self.registered.items() if now.epoch == before.get(each)}
        self.pending_deletes = {each: None for each in self.pending_deletes if each.broker in there}
        self.execute(plans.plan_broker_changes(self.context, self.registered))

    def create(self, topic: str, *replicas: Sequence[int]) -> tuple[TopicPartition, ...]:
        self.topics[topic] = {
            index: replica_assignment(*each) for index, each in enumerate(replicas)
        }
        self.context.add_topic(topic, topic_id(topic))
        partitions = tuple(TopicPartition(topic, index) for index in self.topics[topic])
        for partition in partitions:
            self.context.set_assignment(partition, self.topics[topic][partition.partition])
        self.execute(plans.plan_new_partitions(self.context, partitions))
        return partitions

    def delete(self, *topics: str) -> None:
        """Mark topics for deletion and let the controller process the markers."""
        self.marked_for_deletion += [
            each for each in topics if each not in self.marked_for_deletion
        ]
        self.process_markers()

    def process_markers(self) -> None:
        plan, needless = deletion.plan_marked_topics(
            self.context, self.marked_for_deletion, deletion_enabled=self.deletion_enabled
        )
        for topic in needless:
            self.marked_for_deletion.remove(topic)
        self.execute(plan)

    def answer_deletes(self, *brokers: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let these brokers, or all, answer the pending StopReplica deletions."""
        for to in ids(*brokers) or tuple(sorted(self.registered)):
            replicas = [each for each in self.pending_deletes if each.broker == to]
            for each in replicas:
                del self.pending_deletes[each]
            errors = {each.partition: error for each in replicas}
            self.execute(deletion.plan_stop_replica_results(self.context, to, errors))

    def remove_znodes(self, topic: str) -> None:
        self.topics.pop(topic, None)
        for partition in [each for each in self.znodes.states if each.topic == topic]:
            del self.znodes.states[partition]
        if topic in self.marked_for_deletion:
            self.marked_for_deletion.remove(topic)

    def catch_up(self, partition: TopicPartition, *isr: int) -> None:
        """Add followers to the ISR, in the znode and in the controller."""
        self.znodes.change_isr(partition, *isr)
        self.context.set_leadership(partition, self.znodes.states[partition])

    def elect_preferred_leaders(self, *partitions: TopicPartition) -> None:
        self.move_partitions(partitions, PartitionState.ONLINE, Strategy.PREFERRED)

    def shut_down(self, number: int) -> None:
        leaving = BrokerId(number)
        self.context.shutting_down_broker_ids.add(leaving)
        led = self.context.partition_leaders_on_broker(leaving)
        followed = tuple(
            Replica(each, leaving)
            for each in self.context.partitions_on_broker(leaving)
            if each not in led
            and len(self.context.replicas(each)) > 1
            and not self.context.is_topic_queued_for_deletion(each.topic)
        )
        self.move_partitions(led, PartitionState.ONLINE, Strategy.CONTROLLED_SHUTDOWN)
        self.move_replicas(followed, ReplicaState.OFFLINE)

    def reassign(self, partition: TopicPartition, *target: int) -> None:
        """Request a reassignment as a client does."""
        self.request_assignment(partition, ids(*target))

    def cancel_reassignment(self, partition: TopicPartition) -> None:
        self.request_assignment(partition, None)

    def request_assignment(
        self,
        partition: TopicPartition,
        target: tuple[BrokerId, ...] | None,
        *,
        requires_live_brokers: bool = True,
    ) -> None:
        requested = reassignment.requested_assignment(
            self.context, partition, target, requires_live_brokers=requires_live_brokers
        )
        self.execute(reassignment.plan_reassignments(self.context, {partition: requested}, {}))

    def complete_reassignments(self) -> None:
        """Let the controller process changes of ISRs."""
        self.execute(reassignment.complete_ready_reassignments(self.context))

    # ---- decide, commit, apply, announce

    def execute(self, plan: Plan) -> None:
        elected: int | None = None
        while (step := next_plan_step(plan, elected)) is not None:
            self.before_step(step)
            self.steps.append(step)
            elected = self.execute_step(step)

    def execute_step(self, step: Step) -> int:
        if isinstance(step, MovePartitions):
            return self.move_partitions(step.partitions, step.target, step.strategy)
        if isinstance(step, MoveReplicas):
            self.move_replicas(step.replicas, step.target)
        elif isinstance(step, SendUpdateMetadata):
            self.batch.new_batch()
            self.batch.add([step])
            self.announce()
        elif isinstance(step, DelayRequests):
            self.batch.delay(step.partitions)
        elif isinstance(step, SendDelayedRequests):
            self.batch.release_delayed()
            self.announce()
        elif isinstance(step, RaiseLeaderEpochs):
            self.raise_leader_epochs(step.partitions)
        elif isinstance(step, WriteAssignments):
            for (topic, index), assignment in step.assignments.items():
                self.topics[topic][index] = assignment
        elif isinstance(step, DeleteTopicZnodes):
            for topic in step.topics:
                self.remove_znodes(topic)
        return 0

    def raise_leader_epochs(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.batch.new_batch()
        while partitions:
            decision = partition_machine.decide_epoch_raises(
                self.context, partitions, self.read(partitions), cause=CAUSE
            )
            partitions = self.commit_partitions(decision).to_retry
        self.announce()

    def commit_partitions(self, decision: PartitionDecision) -> PartitionOutcome:
        outcome = decision.outcome_of(self.znodes.commit(decision.writes))
        partition_machine.apply_partition_transitions(self.context, outcome.committed)
        self.batch.add(outcome.committed.requests)
        self.moves += outcome.committed.transitions
        self.failures += outcome.failures
        return outcome

    def move_partitions(
        self,
        partitions: tuple[TopicPartition, ...],
        target: PartitionState,
        strategy: Strategy | None = None,
    ) -> int:
        self.batch.new_batch()
        elected = 0
        while partitions:
            partitions_to_read = partition_machine.partitions_for_elections(
                self.context, partitions, target
            )
            states = self.read(partitions_to_read)
            topics = partition_machine.topics_for_unclean_check(self.context, states)
            decision = partition_machine.decide_partition_transitions(
                self.context,
                partitions,
                target,
                cause=CAUSE,
                strategy=strategy,
                states=states,
                unclean={topic: self.unclean.get(topic, False) for topic in topics},
            )
            outcome = self.commit_partitions(decision)
            elected += sum(
                move.write is not None and move.before is not PartitionState.NEW
                for move in outcome.committed.transitions
            )
            partitions = outcome.to_retry
        self.announce()
        return elected

    def move_replicas(self, replicas: tuple[Replica, ...], target: ReplicaState) -> None:
        self.batch.new_batch()
        while replicas:
            partitions_to_read = replica_machine.partitions_for_isr_removal(
                self.context, replicas, target
            )
            decision = replica_machine.decide_replica_transitions(
                self.context, replicas, target, cause=CAUSE, states=self.read(partitions_to_read)
            )
            outcome = decision.outcome_of(self.znodes.commit(decision.writes))
            replica_machine.apply_replica_transitions(self.context, outcome.committed)
            self.batch.add(outcome.committed.requests)
            self.moves += outcome.committed.transitions
            self.failures += outcome.failures
            replicas = outcome.to_retry
        self.announce()

    def announce(self) -> None:
        for to, request in self.batch.flush():
            self.sent.append((to, request))
            if isinstance(request, StopReplicaRequest):
                self.pending_deletes.update(
                    (replica(TopicPartition(topic.topic_name, each.partition_index), to), None)
                    for topic in request.topic_states
                    for each in topic.partition_states
                    if each.delete_partition
                )

    def read(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, StateReadResult]:
        return {
            partition: self.znodes.states[partition]
            for partition in partitions
            if partition in self.znodes.states
        }

    # ---- observation

    def leader_epoch(self, partition: TopicPartition) -> int:
        return self.znodes.states[partition].leader_epoch

    def take_sent(self) -> list[tuple[BrokerId, Request]]:
        sent, self.sent = self.sent, []
        return sent


def summarize(sent: Iterable[tuple[BrokerId, Request]]) -> list[str]:
    """Requests as text.

    Examples: `LAI 2 orders-0 leader=2 epoch=0 isr=2,3 new`, `UM 1 orders-0 leader=2`, `UM 1` and
    `SR 3 orders-0 epoch=0`.
    """
    return [line for to, content in sent for line in lines(to, content)]


def lines(to: BrokerId, content: Request) -> list[str]:
    if isinstance(content, LeaderAndIsrRequest):
        return [
            f"LAI {to} {topic.topic_name}-{each.partition_index} {partition_state_text(each)}"
            for topic in content.topic_states
            for each in topic.partition_states
        ]
    if isinstance(content, UpdateMetadataRequest):
        partitions = [
            f"{topic.topic_name}-{each.partition_index} leader={each.leader}"
            for topic in content.topic_states
            for each in topic.partition_states
        ]
        return [" ".join((f"UM {to}", *partitions))]
    assert isinstance(content, StopReplicaRequest)
    return [
        f"SR {to} {topic.topic_name}-{each.partition_index} epoch={each.leader_epoch}"
        + (" delete" if each.delete_partition else "")
        for topic in content.topic_states
        for each in topic.partition_states
    ]


def partition_state_text(each: LeaderAndIsrPartitionState) -> str:
    isr = ",".join(map(str, each.isr))
    new = " new" if each.is_new else ""
    return f"leader={each.leader} epoch={each.leader_epoch} isr={isr}{new}"
