"""The cluster as the controller believes it. One per controller, changed by one event at a time, lost on resignation.

Most mistakes come from mixing up two sets of brokers:

    live_broker_ids                    registered and not shutting down: who may lead, join an ISR, take a replica
    live_or_shutting_down_broker_ids   registered: who receives requests, and whom clients are told of

With ten thousand partitions no question may cost a walk over all of them unless its answer is all of them. So
partitions are also kept by the brokers that hold them, by their leader and by their state, and every change goes
through a method here that keeps these indexes. The dicts are read freely elsewhere and written nowhere else. A dict
without values stands where a set would: it keeps its order, so that the same history leads to the same requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from barnabas.controller.states import PartitionState, ReplicaState
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

LEADER_DURING_DELETE = BrokerId(-2)
EPOCH_DURING_DELETE = LeaderEpoch(-2)
NOBODY = ReplicaAssignment(replicas=())
EXISTENT = (PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.NEW)
"""Likely ones first."""

Partitions = tuple[TopicPartition, ...]
Replicas = tuple[Replica, ...]


class ControllerContext:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As after resignation: nothing is known."""
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
        """Those this controller moves. A reassignment that it finds in a znode and does not continue is none."""
        self.replicas_on_offline_dirs: dict[BrokerId, dict[TopicPartition, None]] = {}
        self.topics_to_be_deleted: dict[str, None] = {}
        self.topics_with_deletion_started: dict[str, None] = {}
        self.topics_ineligible_for_deletion: dict[str, None] = {}

        self.held_by: dict[BrokerId, dict[TopicPartition, ReplicaState]] = {}
        """What each broker is assigned, and where that replica stands."""
        self.unassigned_states: dict[Replica, ReplicaState] = {}
        """Of replicas that are about to be assigned, or were."""
        self.led_by: dict[BrokerId, dict[TopicPartition, None]] = {}
        self.in_state: dict[PartitionState, dict[TopicPartition, None]] = {
            state: {} for state in EXISTENT
        }

    # ---- brokers

    def set_broker(self, broker: Broker, epoch: BrokerEpoch) -> None:
        """It is registered, with these endpoints and this epoch."""
        self.brokers[broker.id] = broker
        self.broker_epochs[broker.id] = epoch

    def remove_brokers(self, brokers: Iterable[BrokerId]) -> None:
        """Their registration is gone. Whether they were shutting down is for the failure handling to forget."""
        for broker in brokers:
            self.brokers.pop(broker, None)
            self.broker_epochs.pop(broker, None)

    @property
    def live_broker_ids(self) -> frozenset[BrokerId]:
        return frozenset(self.brokers.keys() - self.shutting_down_broker_ids)

    @property
    def live_or_shutting_down_broker_ids(self) -> tuple[BrokerId, ...]:
        """Sorted, because requests go out in this order."""
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
        if broker not in self.brokers:
            return False
        if broker in self.shutting_down_broker_ids and not include_shutting_down_brokers:
            return False
        return partition not in self.replicas_on_offline_dirs.get(broker, ())

    def set_replica_dir_offline(self, replica: Replica, *, offline: bool) -> None:
        if offline:
            self.replicas_on_offline_dirs.setdefault(replica.broker, {})[replica.partition] = None
            return
        broken = self.replicas_on_offline_dirs.get(replica.broker)
        if broken is not None:
            broken.pop(replica.partition, None)
            if not broken:
                del self.replicas_on_offline_dirs[replica.broker]

    # ---- topics and assignments

    def add_topic(self, topic: str, topic_id: UUID | None = None) -> None:
        """RegistryError if the id contradicts what is known: somebody has edited a znode."""
        if topic_id is not None:
            if self.topic_ids.get(topic, topic_id) != topic_id:
                raise RegistryError(topic_path(topic), f"its id was {self.topic_ids[topic]} before")
            if self.topic_names.get(topic_id, topic) != topic:
                raise RegistryError(
                    topic_path(topic), f"has the id of {self.topic_names[topic_id]}"
                )
            self.topic_ids[topic] = topic_id
            self.topic_names[topic_id] = topic
        self.all_topics[topic] = None

    def remove_topic(self, topic: str) -> None:
        """Forget all about it, its states too: a topic of the same name starts from nothing."""
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
        """Forget all about them, for all that is left of their topic."""
        for partition in partitions:
            self.set_partition_state(partition, PartitionState.NON_EXISTENT)
            self.remove_leadership(partition)
            self.set_assignment(partition, NOBODY)
            del self.assignments[partition.topic][partition]
            for replica in [each for each in self.unassigned_states if each.partition == partition]:
                del self.unassigned_states[replica]
            self.partitions_being_reassigned.pop(partition, None)
            for broker in tuple(self.replicas_on_offline_dirs):
                self.set_replica_dir_offline(Replica(partition, broker), offline=False)

    def set_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        of_topic = self.assignments.setdefault(partition.topic, {})
        before = of_topic.get(partition, NOBODY).replicas
        for broker in before:
            if broker not in assignment.replicas:
                state = self.held_by[broker].pop(partition)
                if not self.held_by[broker]:
                    del self.held_by[broker]
                self.set_replica_state(Replica(partition, broker), state)
        for broker in assignment.replicas:
            if broker not in before:
                state = self.unassigned_states.pop(
                    Replica(partition, broker), ReplicaState.NON_EXISTENT
                )
                self.held_by.setdefault(broker, {})[partition] = state
        of_topic[partition] = assignment

    def has_partition(self, partition: TopicPartition) -> bool:
        return partition in self.assignments.get(partition.topic, ())

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        return self.assignments.get(partition.topic, {}).get(partition, NOBODY)

    def replicas(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        return self.assignment(partition).replicas

    def online_replicas(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        """In the order they are assigned."""
        return tuple(b for b in self.replicas(partition) if self.is_replica_online(b, partition))

    @property
    def all_partitions(self) -> Partitions:
        return tuple(partition for of_topic in self.assignments.values() for partition in of_topic)

    def partitions_of(self, topic: str) -> Partitions:
        return tuple(self.assignments.get(topic, ()))

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> Replicas:
        assignments, nothing = self.assignments, dict[TopicPartition, ReplicaAssignment]()
        return tuple(
            Replica(partition, broker)
            for partition in partitions
            for broker in assignments.get(partition[0], nothing).get(partition, NOBODY).replicas
        )

    def partitions_on_broker(self, broker: BrokerId) -> Partitions:
        return tuple(self.held_by.get(broker, ()))

    def replicas_on_brokers(self, brokers: Iterable[BrokerId]) -> Replicas:
        return tuple(
            Replica(partition, broker)
            for broker in brokers
            for partition in self.held_by.get(broker, ())
        )

    def online_and_offline_replicas(self) -> tuple[Replicas, Replicas]:
        online: list[Replica] = []
        offline: list[Replica] = []
        for broker, held in sorted(self.held_by.items()):
            for partition in held:
                there = self.is_replica_online(broker, partition)
                (online if there else offline).append(Replica(partition, broker))
        return tuple(online), tuple(offline)

    # ---- leadership

    def set_leadership(self, partition: TopicPartition, state: LeaderAndIsr) -> None:
        before = self.leadership.get(partition)
        if before is not None and before.leader != state.leader:
            discard(self.led_by, before.leader, partition)
        self.leadership[partition] = state
        self.led_by.setdefault(state.leader, {})[partition] = None

    def remove_leadership(self, partition: TopicPartition) -> None:
        before = self.leadership.pop(partition, None)
        if before is not None:
            discard(self.led_by, before.leader, partition)

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch:
        """As StopReplica carries it: -2 for a topic queued for deletion, -1 where there is no leader yet."""
        if partition.topic in self.topics_to_be_deleted:
            return EPOCH_DURING_DELETE
        known = self.leadership.get(partition)
        return NO_EPOCH if known is None else known.leader_epoch

    @property
    def partitions_with_leaders(self) -> Partitions:
        """Those that have leadership information, be it that nobody leads."""
        deleting = self.topics_to_be_deleted
        if not deleting:
            return tuple(self.leadership)
        return tuple(partition for partition in self.leadership if partition.topic not in deleting)

    @property
    def partitions_with_offline_leader(self) -> Partitions:
        """Those nobody leads are among them: -1 is never online."""
        found: list[TopicPartition] = []
        for leader, led in sorted(self.led_by.items()):
            if not self.is_live(leader):
                found += led
            elif leader in self.replicas_on_offline_dirs:
                found += (each for each in led if not self.is_replica_online(leader, each))
        return tuple(each for each in found if each.topic not in self.topics_to_be_deleted)

    def partition_leaders_on_broker(self, broker: BrokerId) -> Partitions:
        """What a broker that shuts down has to hand over: a partition of one replica has nobody to go to."""
        return tuple(
            partition
            for partition in self.led_by.get(broker, ())
            if partition.topic not in self.topics_to_be_deleted
            and len(self.replicas(partition)) > 1
        )

    # ---- states

    def partition_state(self, partition: TopicPartition) -> PartitionState:
        for state, partitions in self.in_state.items():
            if partition in partitions:
                return state
        return PartitionState.NON_EXISTENT

    def set_partition_state(self, partition: TopicPartition, state: PartitionState) -> None:
        for partitions in self.in_state.values():
            partitions.pop(partition, None)
        if state is not PartitionState.NON_EXISTENT:
            self.in_state[state][partition] = None

    def partitions_in_states(self, *states: PartitionState, topic: str | None = None) -> Partitions:
        """Of all topics, or of one. NonExistent cannot be asked for: what does not exist is not listed."""
        if topic is None:
            return tuple(partition for state in states for partition in self.in_state[state])
        return tuple(
            partition
            for partition in self.partitions_of(topic)
            if self.partition_state(partition) in states
        )

    def replica_state(self, replica: Replica) -> ReplicaState:
        partition, broker = replica
        held = self.held_by.get(broker)
        if held is not None and partition in held:
            return held[partition]
        return self.unassigned_states.get(replica, ReplicaState.NON_EXISTENT)

    def set_replica_state(self, replica: Replica, state: ReplicaState) -> None:
        partition, broker = replica
        held = self.held_by.get(broker)
        if held is not None and partition in held:
            held[partition] = state
        elif state is ReplicaState.NON_EXISTENT:
            self.unassigned_states.pop(replica, None)
        else:
            self.unassigned_states[replica] = state

    def replicas_in_state(self, topic: str, state: ReplicaState) -> Replicas:
        return tuple(
            Replica(partition, broker)
            for partition, broker, found in self.replica_states_of(topic)
            if found is state
        )

    def are_all_replicas_in_state(self, topic: str, state: ReplicaState) -> bool:
        """True for a topic that has no partitions."""
        return all(found is state for _, _, found in self.replica_states_of(topic))

    def is_any_replica_in_state(self, topic: str, state: ReplicaState) -> bool:
        return any(found is state for _, _, found in self.replica_states_of(topic))

    def replica_states_of(
        self, topic: str
    ) -> Iterator[tuple[TopicPartition, BrokerId, ReplicaState]]:
        for partition, assignment in self.assignments.get(topic, {}).items():
            for broker in assignment.replicas:
                yield partition, broker, self.held_by[broker][partition]

    # ---- deletion

    def queue_topic_deletion(self, topics: Iterable[str]) -> None:
        self.topics_to_be_deleted.update(dict.fromkeys(topics))

    def is_topic_queued_for_deletion(self, topic: str) -> bool:
        return topic in self.topics_to_be_deleted

    def is_topic_eligible_for_deletion(self, topic: str) -> bool:
        return topic in self.topics_to_be_deleted and (
            topic not in self.topics_ineligible_for_deletion
        )

    def mark_ineligible_for_deletion(self, topics: Iterable[str]) -> None:
        """Only topics that are queued can be marked."""
        for topic in topics:
            if topic in self.topics_to_be_deleted:
                self.topics_ineligible_for_deletion[topic] = None

    def mark_eligible_for_deletion(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self.topics_ineligible_for_deletion.pop(topic, None)

    def begin_topic_deletion(self, topics: Iterable[str]) -> None:
        self.topics_with_deletion_started.update(dict.fromkeys(topics))


def discard(
    index: dict[BrokerId, dict[TopicPartition, None]], broker: BrokerId, partition: TopicPartition
) -> None:
    of_broker = index.get(broker)
    if of_broker is not None:
        of_broker.pop(partition, None)
        if not of_broker:
            del index[broker]
