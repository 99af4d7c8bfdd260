"""The controller's view of the cluster, in memory. Only the current event changes it. It is reset on resignation.

Do not confuse two sets of brokers:

    is_live(broker)                    registered and not shutting down: may lead or join an ISR
    live_or_shutting_down_broker_ids   registered: receive requests, and are listed in the metadata of clients

Lookups must not scan all partitions, of which there may be tens of thousands. So partitions are also indexed by broker,
by leader and by state. Other modules change indexed dicts only through the methods of ControllerContext, which keep the
indexes up to date. Dicts with the value None are ordered sets: so the order of requests is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from barnabas.controller.states import EXISTING_PARTITION_STATES, PartitionState, ReplicaState
from barnabas.errors import RegistryError
from barnabas.metadata.znodes import ReplicaAssignment, topic_path
from barnabas.model import (
    NO_EPOCH,
    Broker,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsr,
    LeaderEpoch,
    Replica,
    TopicPartition,
)
from barnabas.wire.messages.control_plane import EPOCH_DURING_DELETE

NO_REPLICAS = ReplicaAssignment(replicas=())

Partitions = tuple[TopicPartition, ...]
Replicas = tuple[Replica, ...]


class ControllerContext:
    """Brokers, topics, assignments, leadership and states, as far as the controller knows them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, as after resignation."""
        self.epoch = ControllerEpoch(0)
        self.brokers: dict[BrokerId, Broker] = {}
        self.broker_epochs: dict[BrokerId, BrokerEpoch] = {}
        self.shutting_down_broker_ids: set[BrokerId] = set()
        self.all_topics: dict[str, None] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.topic_names: dict[UUID, str] = {}
        self.assignments: dict[str, dict[TopicPartition, ReplicaAssignment]] = {}
        self.leadership: dict[TopicPartition, LeaderAndIsr] = {}
        self.partitions_being_reassigned: dict[TopicPartition, None] = {}
        """Without topics queued for deletion."""
        self.reassigned_with_new_isr: dict[TopicPartition, None] = {}
        """Partitions whose ISR changed during their reassignment: it may be complete now."""
        self.replicas_on_offline_dirs: dict[BrokerId, dict[TopicPartition, None]] = {}
        self.topics_to_be_deleted: dict[str, None] = {}
        self.topics_with_deletion_started: dict[str, None] = {}
        self.topics_ineligible_for_deletion: dict[str, None] = {}

        self.replica_states_by_broker: dict[BrokerId, dict[TopicPartition, ReplicaState]] = {}
        """States of the assigned replicas. Also the index of partitions by broker."""
        self.unassigned_replica_states: dict[Replica, ReplicaState] = {}
        """States of replicas that are not yet or no longer assigned."""
        self.partitions_by_leader: dict[BrokerId, dict[TopicPartition, None]] = {}
        self.partitions_by_state: dict[PartitionState, dict[TopicPartition, None]] = {
            state: {} for state in EXISTING_PARTITION_STATES
        }

    # ---- brokers

    def set_broker(self, broker: Broker, epoch: BrokerEpoch) -> None:
        """Add or replace a registered broker."""
        self.brokers[broker.id] = broker
        self.broker_epochs[broker.id] = epoch

    def remove_brokers(self, brokers: Iterable[BrokerId]) -> None:
        """Remove brokers that are no longer registered. The caller updates `shutting_down_broker_ids`."""
        for broker in brokers:
            self.brokers.pop(broker, None)
            self.broker_epochs.pop(broker, None)

    @property
    def live_or_shutting_down_broker_ids(self) -> tuple[BrokerId, ...]:
        """Registered brokers, sorted: requests are sent in this order."""
        return tuple(sorted(self.brokers))

    def is_live(self, broker: BrokerId) -> bool:
        return broker in self.brokers and broker not in self.shutting_down_broker_ids

    def is_replica_online(
        self,
        broker: BrokerId,
        partition: TopicPartition,
        *,
        include_shutting_down_brokers: bool = False,
    ) -> bool:
        """Whether the broker is live and the log directory of its replica has not failed."""
        if broker not in self.brokers:
            return False
        if broker in self.shutting_down_broker_ids and not include_shutting_down_brokers:
            return False
        return partition not in self.replicas_on_offline_dirs.get(broker, ())

    def set_replica_dir_offline(self, replica: Replica, *, offline: bool) -> None:
        if offline:
            self.replicas_on_offline_dirs.setdefault(replica.broker, {})[replica.partition] = None
            return
        remove_from_index(self.replicas_on_offline_dirs, replica.broker, replica.partition)

    # ---- topics and assignments

    def add_topic(self, topic: str, topic_id: UUID | None = None) -> None:
        """Add a topic. Raises RegistryError if its id differs from the known one or belongs to another topic."""
        if topic_id is not None:
            if self.topic_ids.get(topic, topic_id) != topic_id:
                raise RegistryError(
                    topic_path(topic),
                    f"topic id changed from {self.topic_ids[topic]} to {topic_id}",
                )
            if self.topic_names.get(topic_id, topic) != topic:
                raise RegistryError(
                    topic_path(topic),
                    f"topic id {topic_id} belongs to topic {self.topic_names[topic_id]}",
                )
            self.topic_ids[topic] = topic_id
            self.topic_names[topic_id] = topic
        self.all_topics[topic] = None

    def remove_topic(self, topic: str) -> None:
        """Remove a topic with all its states. A new topic of the same name starts from scratch."""
        self.remove_partitions(self.partitions_of(topic))
        self.assignments.pop(topic, None)
        self.all_topics.pop(topic, None)
        topic_id = self.topic_ids.pop(topic, None)
        if topic_id is not None:
            del self.topic_names[topic_id]
        self.topics_to_be_deleted.pop(topic, None)
        self.topics_with_deletion_started.pop(topic, None)
        self.topics_ineligible_for_deletion.pop(topic, None)

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions with all their states. The topic stays."""
        for partition in partitions:
            self.set_partition_state(partition, PartitionState.NON_EXISTENT)
            self.remove_leadership(partition)
            self.set_assignment(partition, NO_REPLICAS)
            del self.assignments[partition.topic][partition]
            for replica in [
                each for each in self.unassigned_replica_states if each.partition == partition
            ]:
                del self.unassigned_replica_states[replica]
            self.partitions_being_reassigned.pop(partition, None)
            for broker in tuple(self.replicas_on_offline_dirs):
                self.set_replica_dir_offline(Replica(partition, broker), offline=False)

    def set_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Set the replicas of a partition. A replica keeps its state if it becomes assigned or unassigned."""
        topic_assignments = self.assignments.setdefault(partition.topic, {})
        before = topic_assignments.get(partition, NO_REPLICAS).replicas
        for broker in before:
            if broker not in assignment.replicas:
                state = self.replica_states_by_broker[broker].pop(partition)
                if not self.replica_states_by_broker[broker]:
                    del self.replica_states_by_broker[broker]
                self.set_replica_state(Replica(partition, broker), state)
        for broker in assignment.replicas:
            if broker not in before:
                state = self.unassigned_replica_states.pop(
                    Replica(partition, broker), ReplicaState.NON_EXISTENT
                )
                self.replica_states_by_broker.setdefault(broker, {})[partition] = state
        topic_assignments[partition] = assignment

    def has_partition(self, partition: TopicPartition) -> bool:
        return partition in self.assignments.get(partition.topic, ())

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        return self.assignments.get(partition.topic, {}).get(partition, NO_REPLICAS)

    def replicas(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        return self.assignment(partition).replicas

    def online_replicas(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        """Online replicas in assignment order."""
        return tuple(b for b in self.replicas(partition) if self.is_replica_online(b, partition))

    @property
    def all_partitions(self) -> Partitions:
        return tuple(each for partitions in self.assignments.values() for each in partitions)

    def partitions_of(self, topic: str) -> Partitions:
        return tuple(self.assignments.get(topic, ()))

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> Replicas:
        assignments, nothing = self.assignments, dict[TopicPartition, ReplicaAssignment]()
        return tuple(
            Replica(partition, broker)
            for partition in partitions
            for broker in assignments.get(partition[0], nothing)
            .get(partition, NO_REPLICAS)
            .replicas
        )

    def partitions_on_broker(self, broker: BrokerId) -> Partitions:
        return tuple(self.replica_states_by_broker.get(broker, ()))

    def replicas_on_brokers(self, brokers: Iterable[BrokerId]) -> Replicas:
        return tuple(
            Replica(partition, broker)
            for broker in brokers
            for partition in self.replica_states_by_broker.get(broker, ())
        )

    def online_and_offline_replicas(self) -> tuple[Replicas, Replicas]:
        online: list[Replica] = []
        offline: list[Replica] = []
        for broker, states in sorted(self.replica_states_by_broker.items()):
            for partition in states:
                is_online = self.is_replica_online(broker, partition)
                (online if is_online else offline).append(Replica(partition, broker))
        return tuple(online), tuple(offline)

    # ---- leadership

    def set_leadership(self, partition: TopicPartition, state: LeaderAndIsr) -> None:
        before = self.leadership.get(partition)
        if before is not None:
            if before.leader != state.leader:
                remove_from_index(self.partitions_by_leader, before.leader, partition)
            if before.isr != state.isr and partition in self.partitions_being_reassigned:
                self.reassigned_with_new_isr[partition] = None
        self.leadership[partition] = state
        self.partitions_by_leader.setdefault(state.leader, {})[partition] = None

    def remove_leadership(self, partition: TopicPartition) -> None:
        before = self.leadership.pop(partition, None)
        if before is not None:
            remove_from_index(self.partitions_by_leader, before.leader, partition)

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch:
        """Leader epoch; -1 before the first leader. For a topic queued for deletion -2, as StopReplica requires."""
        if partition.topic in self.topics_to_be_deleted:
            return LeaderEpoch(EPOCH_DURING_DELETE)
        known = self.leadership.get(partition)
        return NO_EPOCH if known is None else known.leader_epoch

    @property
    def partitions_with_leaders(self) -> Partitions:
        """Partitions with a known leadership, even if the leader is -1. Without topics queued for deletion."""
        deleting = self.topics_to_be_deleted
        if not deleting:
            return tuple(self.leadership)
        return tuple(partition for partition in self.leadership if partition.topic not in deleting)

    @property
    def partitions_with_offline_leader(self) -> Partitions:
        """Partitions whose leader is offline or -1. Without topics queued for deletion."""
        found: list[TopicPartition] = []
        for leader, led in sorted(self.partitions_by_leader.items()):
            if not self.is_live(leader):
                found += led
            elif leader in self.replicas_on_offline_dirs:
                found += (each for each in led if not self.is_replica_online(leader, each))
        return tuple(each for each in found if each.topic not in self.topics_to_be_deleted)

    def partition_leaders_on_broker(self, broker: BrokerId) -> Partitions:
        """Partitions that need another leader when a broker shuts down: it leads them, and they have other replicas."""
        return tuple(
            partition
            for partition in self.partitions_by_leader.get(broker, ())
            if partition.topic not in self.topics_to_be_deleted
            and len(self.replicas(partition)) > 1
        )

    # ---- states

    def partition_state(self, partition: TopicPartition) -> PartitionState:
        for state, partitions in self.partitions_by_state.items():
            if partition in partitions:
                return state
        return PartitionState.NON_EXISTENT

    def set_partition_state(self, partition: TopicPartition, state: PartitionState) -> None:
        for partitions in self.partitions_by_state.values():
            partitions.pop(partition, None)
        if state is not PartitionState.NON_EXISTENT:
            self.partitions_by_state[state][partition] = None

    def partitions_in_states(self, *states: PartitionState) -> Partitions:
        """Partitions of all topics in these states. NonExistent is not a valid argument: it is not indexed."""
        return tuple(partition for state in states for partition in self.partitions_by_state[state])

    def replica_state(self, replica: Replica) -> ReplicaState:
        partition, broker = replica
        states = self.replica_states_by_broker.get(broker)
        if states is not None and partition in states:
            return states[partition]
        return self.unassigned_replica_states.get(replica, ReplicaState.NON_EXISTENT)

    def set_replica_state(self, replica: Replica, state: ReplicaState) -> None:
        partition, broker = replica
        states = self.replica_states_by_broker.get(broker)
        if states is not None and partition in states:
            states[partition] = state
        elif state is ReplicaState.NON_EXISTENT:
            self.unassigned_replica_states.pop(replica, None)
        else:
            self.unassigned_replica_states[replica] = state

    def replicas_in_state(self, topic: str, state: ReplicaState) -> Replicas:
        return tuple(
            Replica(partition, broker)
            for partition, broker, found in self.replica_states_of(topic)
            if found is state
        )

    def are_all_replicas_in_state(self, topic: str, state: ReplicaState) -> bool:
        """Return whether all replicas of the topic are in this state. True for a topic without partitions."""
        return all(found is state for _, _, found in self.replica_states_of(topic))

    def is_any_replica_in_state(self, topic: str, state: ReplicaState) -> bool:
        return any(found is state for _, _, found in self.replica_states_of(topic))

    def replica_states_of(
        self, topic: str
    ) -> Iterator[tuple[TopicPartition, BrokerId, ReplicaState]]:
        for partition, assignment in self.assignments.get(topic, {}).items():
            for broker in assignment.replicas:
                yield partition, broker, self.replica_states_by_broker[broker][partition]

    # ---- deletion

    def queue_topic_deletion(self, topics: Iterable[str]) -> None:
        """Queue topics. Their partitions are no longer reassigned."""
        self.topics_to_be_deleted.update(dict.fromkeys(topics))
        for partition in tuple(self.partitions_being_reassigned):
            if partition.topic in self.topics_to_be_deleted:
                del self.partitions_being_reassigned[partition]

    def is_topic_queued_for_deletion(self, topic: str) -> bool:
        return topic in self.topics_to_be_deleted

    def is_topic_eligible_for_deletion(self, topic: str) -> bool:
        return topic in self.topics_to_be_deleted and (
            topic not in self.topics_ineligible_for_deletion
        )

    def mark_ineligible_for_deletion(self, topics: Iterable[str]) -> None:
        """Mark those of the topics that are queued for deletion. The others are ignored."""
        for topic in topics:
            if topic in self.topics_to_be_deleted:
                self.topics_ineligible_for_deletion[topic] = None

    def mark_eligible_for_deletion(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self.topics_ineligible_for_deletion.pop(topic, None)

    def begin_topic_deletion(self, topics: Iterable[str]) -> None:
        self.topics_with_deletion_started.update(dict.fromkeys(topics))


def remove_from_index(
    index: dict[BrokerId, dict[TopicPartition, None]], broker: BrokerId, partition: TopicPartition
) -> None:
    """Remove a partition from the entry of a broker, and the entry if it becomes empty."""
    partitions = index.get(broker)
    if partitions is not None:
        partitions.pop(partition, None)
        if not partitions:
            del index[broker]
