"""Order of the steps at controller failover and when brokers and partitions change."""

from __future__ import annotations

from uuid import UUID

from barnabas.controller import plans
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.elections import Strategy
from barnabas.controller.plans import Registration, find_unbalanced_partitions
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.controller.steps import (
    DelayRequests,
    MovePartitions,
    MoveReplicas,
    RaiseLeaderEpochs,
    SendDelayedRequests,
    StartSenders,
    StopSenders,
    WatchBrokers,
    next_plan_step,
)
from barnabas.metadata.znodes import TopicAssignment
from barnabas.model import BrokerEpoch, BrokerId, TopicPartition
from tests.unit.controller.cluster import (
    SimulatedCluster,
    broker,
    ids,
    replica,
    replica_assignment,
    state,
    summarize,
)

TP = TopicPartition("t", 0)
OFFLINE_ELECTION = Strategy.OFFLINE


def clear_steps(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.steps.clear()
    cluster.take_sent()
    return cluster


def test_new_partitions_get_leaders_before_replicas_are_online() -> None:
    cluster = clear_steps(SimulatedCluster(1, 2, 3))
    p0, p1 = cluster.create("t", (1, 2), (2, 3))
    replicas = (replica(p0, 1), replica(p0, 2), replica(p1, 2), replica(p1, 3))
    assert cluster.steps == [
        MovePartitions(partitions=(p0, p1), target=PartitionState.NEW),
        MoveReplicas(replicas=replicas, target=ReplicaState.NEW),
        MovePartitions(
            partitions=(p0, p1), target=PartitionState.ONLINE, strategy=OFFLINE_ELECTION
        ),
        MoveReplicas(replicas=replicas, target=ReplicaState.ONLINE),
    ]
    both = "t-0 leader=1 t-1 leader=2"
    assert summarize(cluster.sent) == [
        "LAI 1 t-0 leader=1 epoch=0 isr=1,2 new",
        "LAI 2 t-0 leader=1 epoch=0 isr=1,2 new",
        "LAI 2 t-1 leader=2 epoch=0 isr=2,3 new",
        "LAI 3 t-1 leader=2 epoch=0 isr=2,3 new",
        f"UM 1 {both}",
        f"UM 2 {both}",
        f"UM 3 {both}",
    ]


def test_topic_without_partitions_needs_no_step() -> None:
    cluster = clear_steps(SimulatedCluster(1))
    cluster.execute(plans.plan_new_partitions(cluster.context, ()))
    assert cluster.steps == []


def test_broker_failure_elects_before_shrinking_isr() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    p0, p1 = cluster.create("t", (1, 2), (2, 3))
    clear_steps(cluster).kill(2)
    assert cluster.steps == [
        StopSenders(brokers=ids(2)),
        MovePartitions(partitions=(p1,), target=PartitionState.OFFLINE),
        MovePartitions(partitions=(p1,), target=PartitionState.ONLINE, strategy=OFFLINE_ELECTION),
        MoveReplicas(replicas=(replica(p0, 2), replica(p1, 2)), target=ReplicaState.OFFLINE),
    ]
    assert summarize(cluster.sent) == [
        "LAI 3 t-1 leader=3 epoch=1 isr=3",
        "UM 1 t-1 leader=3",
        "UM 3 t-1 leader=3",
        "LAI 1 t-0 leader=1 epoch=1 isr=1",
        "LAI 3 t-1 leader=3 epoch=1 isr=3",
        "UM 1 t-0 leader=1 t-1 leader=3",
        "UM 3 t-0 leader=1 t-1 leader=3",
    ]
    assert cluster.znodes.states[p1].partition_epoch == 1


def test_returning_broker_gets_all_partitions() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    p0, p1 = cluster.create("t", (1, 2), (2, 3))
    cluster.kill(2)
    clear_steps(cluster).start(2)
    assert cluster.steps == [
        StartSenders(brokers=ids(2)),
        SendUpdateMetadata(brokers=ids(1, 3)),
        SendUpdateMetadata(brokers=ids(2), partitions=(p0, p1)),
        MoveReplicas(replicas=(replica(p0, 2), replica(p1, 2)), target=ReplicaState.ONLINE),
        WatchBrokers(brokers=ids(2)),
    ]
    requests = summarize(cluster.sent)
    assert requests[:2] == ["UM 1", "UM 3"]
    assert requests[3:5] == [
        "LAI 2 t-0 leader=1 epoch=1 isr=1",
        "LAI 2 t-1 leader=3 epoch=1 isr=3",
    ]


def test_first_broker_is_announced_to_itself_only() -> None:
    context = ControllerContext()
    plan = plans.plan_broker_changes(
        context, {BrokerId(1): Registration(broker(1), BrokerEpoch(5))}
    )
    assert list(plan) == [
        StartSenders(brokers=ids(1)),
        SendUpdateMetadata(brokers=ids(1)),
        WatchBrokers(brokers=ids(1)),
    ]
    assert context.broker_epochs == {1: 5}


def test_new_brokers_start_before_bounced_and_dead_ones_fail() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    clear_steps(cluster)
    del cluster.registered[BrokerId(3)]
    cluster.register(2)
    cluster.register(4)
    cluster.process_broker_changes()
    assert cluster.steps == [
        StartSenders(brokers=ids(4)),
        StopSenders(brokers=ids(2)),
        StartSenders(brokers=ids(2)),
        StopSenders(brokers=ids(3)),
        SendUpdateMetadata(brokers=ids(1, 2, 3)),
        SendUpdateMetadata(brokers=ids(4)),
        WatchBrokers(brokers=ids(4)),
        SendUpdateMetadata(),
        SendUpdateMetadata(brokers=ids(1, 3, 4)),
        SendUpdateMetadata(brokers=ids(2)),
        WatchBrokers(brokers=ids(2)),
        SendUpdateMetadata(),
    ]
    assert cluster.context.broker_epochs.keys() == {1, 2, 4}


def test_older_broker_epoch_is_ignored() -> None:
    cluster = clear_steps(SimulatedCluster(1, 2))
    cluster.registered[BrokerId(2)] = Registration(broker(2), BrokerEpoch(1))
    cluster.process_broker_changes()
    assert cluster.steps == []


def test_failed_broker_clears_shutdown_and_offline_dirs() -> None:
    cluster = SimulatedCluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.context.shutting_down_broker_ids.add(BrokerId(2))
    cluster.context.set_replica_dir_offline(replica(TP, 2), offline=True)
    cluster.kill(2)
    assert cluster.context.shutting_down_broker_ids == set()
    assert cluster.context.replicas_on_offline_dirs == {}


def test_broker_start_resumes_elections_reassignments_and_deletions() -> None:
    cluster = SimulatedCluster(1, 2)
    moving, deleting, new = (TopicPartition(name, 0) for name in ("m", "d", "n"))
    cluster.create("m", (1,))
    cluster.create("d", (1, 3))
    cluster.create("n", (3,))
    cluster.request_assignment(moving, ids(3), requires_live_brokers=False)
    cluster.context.queue_topic_deletion(["d"])
    clear_steps(cluster).start(3)
    assert cluster.steps[-8:] == [
        MovePartitions(partitions=(new,), target=PartitionState.ONLINE, strategy=OFFLINE_ELECTION),
        RaiseLeaderEpochs(partitions=(moving,)),
        MovePartitions(partitions=(deleting,), target=PartitionState.OFFLINE),
        MovePartitions(partitions=(deleting,), target=PartitionState.NON_EXISTENT),
        SendUpdateMetadata(partitions=(deleting,)),
        MoveReplicas(
            replicas=(replica(deleting, 1), replica(deleting, 3)), target=ReplicaState.OFFLINE
        ),
        MoveReplicas(
            replicas=(replica(deleting, 1), replica(deleting, 3)),
            target=ReplicaState.DELETION_STARTED,
        ),
        WatchBrokers(brokers=ids(3)),
    ]
    assert deleting not in cluster.context.partitions_with_leaders


def test_failure_without_partition_changes_updates_all_brokers() -> None:
    cluster = clear_steps(SimulatedCluster(1, 2, 3))
    cluster.kill(3)
    assert cluster.steps[1:] == [SendUpdateMetadata()]
    assert summarize(cluster.sent) == ["UM 1", "UM 2"]


def test_failure_during_deletion_makes_replicas_ineligible() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    cluster.create("t", (3, 1))
    cluster.delete("t")
    clear_steps(cluster).kill(3)
    assert cluster.steps[1:] == [
        MoveReplicas(replicas=(replica(TP, 3),), target=ReplicaState.DELETION_INELIGIBLE),
        SendUpdateMetadata(),
    ]


def test_elections_make_metadata_update_unnecessary() -> None:
    context = SimulatedCluster(1, 2).context
    context.set_assignment(TP, replica_assignment(1))
    context.set_leadership(TP, state(1, [1]))
    context.set_partition_state(TP, PartitionState.OFFLINE)
    for elected, expected in ((1, []), (0, [SendUpdateMetadata()])):
        plan = plans.plan_offline_replicas(context, ())
        online = next_plan_step(plan, None)
        assert isinstance(online, MovePartitions)
        rest = []
        step = next_plan_step(plan, elected)
        while step is not None:
            rest.append(step)
            step = next_plan_step(plan, None)
        assert rest == expected


def test_failover_sends_metadata_then_starts_replicas_and_partitions() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    led, orphaned = cluster.create("t", (2, 3), (1, 2))
    (unborn,) = cluster.create("u", (9,))
    del cluster.registered[BrokerId(1)]
    clear_steps(cluster).fail_over(BrokerId(2))
    assert cluster.steps == [
        SendUpdateMetadata(partitions=(led, orphaned)),
        DelayRequests(partitions=(orphaned, unborn)),
        MoveReplicas(
            replicas=(replica(led, 2), replica(orphaned, 2), replica(led, 3)),
            target=ReplicaState.ONLINE,
        ),
        MoveReplicas(
            replicas=(replica(orphaned, 1), replica(unborn, 9)), target=ReplicaState.OFFLINE
        ),
        MovePartitions(
            partitions=(unborn, orphaned),
            target=PartitionState.ONLINE,
            strategy=OFFLINE_ELECTION,
        ),
        SendDelayedRequests(),
    ]
    assert summarize(cluster.sent)[:2] == [
        f"UM {each} t-0 leader=2 t-1 leader=1" for each in (2, 3)
    ]
    state_of = cluster.context.partition_state
    assert state_of(led) is PartitionState.ONLINE
    assert state_of(orphaned) is PartitionState.ONLINE
    assert state_of(unborn) is PartitionState.NEW


def test_failover_announces_each_orphaned_partition_once() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    cluster.create("t", (1, 2), (2, 1), (1,), (3, 2))
    del cluster.registered[BrokerId(1)]
    clear_steps(cluster).fail_over(BrokerId(2))
    _, _, *requests = summarize(cluster.sent)
    assert requests == [
        "LAI 2 t-3 leader=3 epoch=0 isr=3,2",
        "LAI 3 t-3 leader=3 epoch=0 isr=3,2",
        "UM 2 t-3 leader=3",
        "UM 3 t-3 leader=3",
        "LAI 2 t-1 leader=2 epoch=1 isr=2",
        "UM 2 t-1 leader=2",
        "UM 3 t-1 leader=2",
        "LAI 2 t-0 leader=2 epoch=2 isr=2",
        "UM 2 t-0 leader=2",
        "UM 3 t-0 leader=2",
        "UM 2 t-2 leader=-1",
        "UM 3 t-2 leader=-1",
    ]


def test_broker_registered_after_isr_write_returned_unnoticed() -> None:
    def returned(isr: tuple[int, ...], written: int, **epochs: int) -> set[int]:
        registered = {
            BrokerId(int(name[1:])): Registration(broker(int(name[1:])), BrokerEpoch(epoch))
            for name, epoch in epochs.items()
        }
        states = {TP: state(isr[0], list(isr))}
        return set(plans.find_unnoticed_restarts(registered, states, {TP: written}))

    assert returned((2, 3), 70, b2=90, b3=40) == {2}
    assert returned((3, 2, 1), 70, b1=80, b2=90, b3=40) == {1, 2}
    assert returned((2, 3), 70, b2=60, b3=40) == set(), "it registered before the ISR was written"
    assert returned((2, 3), 70, b2=90, b3=80) == set(), "the whole cluster was restarted"
    assert returned((2, 3), 70, b2=90) == set(), "no other broker is alive"
    assert returned((2,), 70, b2=90, b3=40) == set(), "no other replica is in sync"
    assert returned((3, 1), 70, b1=10, b2=90, b3=40) == set(), "the broker is not in sync"


def test_load_derives_states_from_live_brokers() -> None:
    cluster = SimulatedCluster(1, 2)
    (tp,) = cluster.create("t", (2, 1))
    del cluster.registered[BrokerId(2)]
    context = ControllerContext()
    context.epoch = type(context.epoch)(2)
    plans.load_context(
        context,
        brokers=cluster.registered,
        topics={"t": TopicAssignment(topic_id=UUID(int=2), partitions=cluster.topics["t"])},
        states=cluster.znodes.states,
    )
    plan = plans.plan_failover(context)
    assert next_plan_step(plan, None) == SendUpdateMetadata(partitions=(tp,))
    assert next_plan_step(plan, 0) == DelayRequests(partitions=(tp,))
    next_plan_step(plan, 0)
    assert context.replica_state(replica(tp, 1)) is ReplicaState.ONLINE
    assert context.replica_state(replica(tp, 2)) is ReplicaState.DELETION_INELIGIBLE
    assert context.partition_state(tp) is PartitionState.NON_EXISTENT
    next_plan_step(plan, 0)
    next_plan_step(plan, 0)
    assert context.partition_state(tp) is PartitionState.OFFLINE


def test_failover_finishes_interrupted_creation() -> None:
    cluster = SimulatedCluster(1, 2)
    cluster.topics["t"] = {0: replica_assignment(1, 2), 1: replica_assignment(2, 1)}
    cluster.znodes.states[TP] = state(1, [1, 2])
    cluster.fail_over(BrokerId(1))
    assert cluster.znodes.states[TP].leader_epoch == 0
    assert cluster.znodes.states[TopicPartition("t", 1)] == state(2, [2, 1], controller_epoch=2)
    assert cluster.failures == []


def test_unfinished_reassignment_is_loaded() -> None:
    context = ControllerContext()
    moving = replica_assignment(3, 1, 2, adding=(3,), removing=(1,))
    plans.load_context(
        context,
        brokers={},
        topics={
            "t": TopicAssignment(topic_id=None, partitions={0: moving, 1: replica_assignment(1)})
        },
        states={},
    )
    assert context.assignment(TP) == moving
    assert context.partitions_being_reassigned == {TP: None}
    assert context.all_topics == {"t": None}


def unfinished_reassignment() -> SimulatedCluster:
    """Cluster where partition 0 of t moves from brokers 1,2 to 3,2 when its controller fails."""
    cluster = SimulatedCluster(1, 2, 3)
    cluster.create("t", (1, 2))
    cluster.topics["t"][0] = replica_assignment(3, 2, 1, adding=(3,), removing=(1,))
    clear_steps(cluster).fail_over(BrokerId(2))
    return cluster


def test_new_controller_sends_unfinished_reassignment_to_all_replicas() -> None:
    cluster = unfinished_reassignment()
    assert [line for line in summarize(cluster.sent) if line.startswith("LAI")] == [
        "LAI 1 t-0 leader=1 epoch=0 isr=1,2",
        "LAI 2 t-0 leader=1 epoch=0 isr=1,2",
        "LAI 3 t-0 leader=1 epoch=0 isr=1,2",
        "LAI 1 t-0 leader=1 epoch=1 isr=1,2",
        "LAI 2 t-0 leader=1 epoch=1 isr=1,2",
        "LAI 3 t-0 leader=1 epoch=1 isr=1,2 new",
    ]


def test_unfinished_reassignment_does_not_block_elections() -> None:
    cluster = unfinished_reassignment()
    cluster.kill(1)
    assert cluster.znodes.states[TP].leader == 2
    cluster.catch_up(TP, 2, 3)
    assert find_unbalanced_partitions(cluster.context, percentage=10) == ()
    cluster.complete_reassignments()
    assert find_unbalanced_partitions(cluster.context, percentage=10) == (TP,)
    cluster.elect_preferred_leaders(TP)
    assert cluster.znodes.states[TP].leader == 3


def test_topic_with_unfinished_reassignment_is_deleted_everywhere() -> None:
    cluster = unfinished_reassignment()
    cluster.delete("t")
    assert list(cluster.pending_deletes) == [replica(TP, each) for each in (1, 2, 3)]
    cluster.answer_deletes()
    assert "t" not in cluster.topics
    assert cluster.marked_for_deletion == []


def test_deletion_with_unfinished_reassignment_resumes_at_failover() -> None:
    cluster = unfinished_reassignment()
    cluster.marked_for_deletion.append("t")
    cluster.fail_over(BrokerId(3))
    cluster.answer_deletes()
    assert "t" not in cluster.topics


def test_deletion_with_unfinished_reassignment_waits_for_every_replica() -> None:
    cluster = unfinished_reassignment()
    cluster.kill(3)
    cluster.delete("t")
    cluster.answer_deletes()
    assert "t" in cluster.topics
    cluster.start(3)
    cluster.answer_deletes()
    assert "t" not in cluster.topics


def test_topic_with_duplicate_id_is_skipped_and_reported() -> None:
    context = ControllerContext()
    same = TopicAssignment(topic_id=UUID(int=1), partitions={0: replica_assignment(1)})
    wrong = plans.load_context(context, brokers={}, topics={"a": same, "b": same}, states={})
    assert [error.path for error in wrong] == ["/brokers/topics/b"]
    assert context.all_topics == {"a": None}
    assert context.all_partitions == (TopicPartition("a", 0),)


def test_deletions_wait_for_offline_replicas_and_end_reassignments() -> None:
    cluster = SimulatedCluster(1, 2)
    for topic, replicas in (("ready", (1, 2)), ("dead", (1, 3)), ("kept", (3,))):
        cluster.create(topic, replicas)
    cluster.create("moving", (1,))
    cluster.reassign(TopicPartition("moving", 0), 2)
    plans.queue_deletions_in_progress(cluster.context, ["moving", "ready", "dead", "gone"])
    assert list(cluster.context.topics_to_be_deleted) == ["dead", "gone", "moving", "ready"]
    assert set(cluster.context.topics_ineligible_for_deletion) == {"dead"}
    assert cluster.context.partitions_being_reassigned == {}


def test_failover_elects_no_leader_for_deleted_topic() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    (tp,) = cluster.create("t", (1, 2, 3))
    cluster.marked_for_deletion = ["t"]
    del cluster.registered[BrokerId(1)]
    del cluster.registered[BrokerId(3)]
    clear_steps(cluster).fail_over(BrokerId(2))
    assert cluster.context.partition_state(tp) is PartitionState.OFFLINE
    assert not any(isinstance(step, MovePartitions) for step in cluster.steps)
    assert summarize(cluster.sent)[1:] == [
        "LAI 2 t-0 leader=1 epoch=0 isr=1,2,3",
        "UM 2 t-0 leader=-2",
    ]
    assert cluster.context.topics_ineligible_for_deletion == {"t": None}
