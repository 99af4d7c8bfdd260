"""Batch of requests to the brokers: collects changes, and builds one request per broker and kind.

    LeaderAndIsr     to the replicas of a partition; each one also adds UpdateMetadata to all registered brokers
    UpdateMetadata   to the given brokers: the same partitions for all, and the list of brokers
    StopReplica      to the broker of a replica; split if there are many partitions

`flush` returns the requests in this order. `flush_leaders` returns only LeaderAndIsr, for the chunks of a long step.
The content of LeaderAndIsr is read from the context when it is added, that of UpdateMetadata at the flush.

A later addition for the same broker and partition replaces the earlier one, but `delete_partition` and `is_new` stay
set. Without `is_new`, a broker with a failed log directory would not create the replica.

A delayed partition appears in no LeaderAndIsr until it has a leader with a new leader epoch, or until all are released.
So brokers do not get intermediate states of a partition that is about to change.

The UpdateMetadata requests of one flush share their topic and broker tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import (
    RequestIntent,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
from barnabas.history.recorder import Request
from barnabas.model import (
    NO_LEADER,
    ZERO_ID,
    Broker,
    BrokerId,
    Endpoint,
    LeaderEpoch,
    TopicPartition,
    ZnodeVersion,
)
from barnabas.wire.messages.control_plane import LEADER_DURING_DELETE
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

INITIAL_EPOCH_DURING_DELETE = LeaderEpoch(0)
PARTITION_EPOCH_DURING_DELETE = ZnodeVersion(0)
STOP_REPLICA_PARTITIONS_MAX = 5000


class UnsentRequestsError(RuntimeError):
    """A new batch was started before the previous one was sent: a broker may have missed a request."""


# ---- the batch --------------------------------------------------------------------------------------------


class RequestBatch:
    """Collects the requests of one step. `context` is read when requests are added and flushed."""

    def __init__(self, controller_id: BrokerId, context: ControllerContext, listener: str) -> None:
        """`listener` is the name of the inter-broker listener."""
        self.controller_id = controller_id
        self.context = context
        self.listener = listener
        self.clear()

    def clear(self) -> None:
        """Drop everything. Only for a controller that resigns, because brokers miss the dropped requests."""
        self.leader_and_isr: dict[BrokerId, dict[TopicPartition, LeaderAndIsrPartitionState]] = {}
        self.stop_replica: dict[BrokerId, dict[TopicPartition, StopReplicaPartitionState]] = {}
        self.metadata_recipients: dict[BrokerId, None] = {}
        self.metadata_partitions: dict[TopicPartition, None] = {}
        self.delayed_epochs: dict[TopicPartition, LeaderEpoch] = {}
        """Delayed partitions, with their leader epochs when the delay began."""
        self.delayed_recipients: dict[TopicPartition, dict[BrokerId, bool]] = {}
        """For delayed partitions: the brokers that get LeaderAndIsr later, with `is_new`."""

    def new_batch(self) -> None:
        """Start a batch. Raises UnsentRequestsError if the previous one was not flushed."""
        unsent = (
            ("LeaderAndIsr", self.leader_and_isr),
            ("UpdateMetadata", self.metadata_recipients),
            ("StopReplica", self.stop_replica),
        )
        for kind, recipients in unsent:
            if recipients:
                brokers = ", ".join(map(str, sorted(recipients)))
                raise UnsentRequestsError(f"{kind} to {brokers} was not sent")

    def delay(self, partitions: Iterable[TopicPartition]) -> None:
        """Delay LeaderAndIsr for each of these partitions until it has a leader with a new leader epoch."""
        self.delayed_epochs = {each: self.context.leader_epoch(each) for each in partitions}

    def release_delayed(self) -> None:
        """Add the requests of all partitions that are still delayed to the next flush."""
        for partition in tuple(self.delayed_epochs):
            self.release_partition(partition)

    def release_partition(self, partition: TopicPartition) -> None:
        """Add the delayed LeaderAndIsr of one partition, with its current state."""
        del self.delayed_epochs[partition]
        recipients = self.delayed_recipients.pop(partition, None)
        if recipients is None:
            return
        # Even if no replica is online to get LeaderAndIsr, all brokers must learn that there is no leader.
        self.add_update_metadata(None, (partition,))
        for is_new in set(recipients.values()):
            brokers = [broker for broker, as_new in recipients.items() if as_new is is_new]
            self.add_leader_and_isr(brokers, partition, is_new=is_new)

    def add(self, intents: Iterable[RequestIntent]) -> None:
        """Add the requests of an applied decision."""
        for intent in intents:
            match intent:
                case SendLeaderAndIsr():
                    self.add_leader_and_isr(intent.brokers, intent.partition, is_new=intent.is_new)
                case SendUpdateMetadata():
                    self.add_update_metadata(intent.brokers, intent.partitions)
                case SendStopReplica():
                    self.add_stop_replica(
                        intent.broker,
                        intent.partition,
                        leader_epoch=intent.leader_epoch,
                        delete_partition=intent.delete_partition,
                    )

    def add_leader_and_isr(
        self, brokers: Iterable[BrokerId], partition: TopicPartition, *, is_new: bool
    ) -> None:
        """Add LeaderAndIsr to these brokers. The context must have the leadership of the partition."""
        leadership = self.context.leadership[partition]
        if partition in self.delayed_epochs:
            recipients = self.delayed_recipients.setdefault(partition, {})
            recipients.update(
                (broker, is_new or recipients.get(broker, False)) for broker in brokers
            )
            has_new_epoch = leadership.leader_epoch != self.delayed_epochs[partition]
            if leadership.leader != NO_LEADER and has_new_epoch:
                self.release_partition(partition)
            return
        assignment = self.context.assignment(partition)
        state = LeaderAndIsrPartitionState(
            partition_index=partition.partition,
            controller_epoch=leadership.controller_epoch,
            leader=leadership.leader,
            leader_epoch=leadership.leader_epoch,
            isr=leadership.isr,
            partition_epoch=leadership.partition_epoch,
            replicas=assignment.replicas,
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
            is_new=is_new,
            leader_recovery_state=int(leadership.recovering),
        )
        for broker in brokers:
            if broker < 0:
                continue
            states = self.leader_and_isr.setdefault(broker, {})
            before = states.get(partition)
            stays_new = before is not None and before.is_new and not is_new
            states[partition] = state._replace(is_new=True) if stays_new else state
        self.add_update_metadata(None, (partition,))

    def add_update_metadata(
        self, brokers: Iterable[BrokerId] | None, partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Add UpdateMetadata; None means to all registered brokers.

        Partitions without a leadership at the flush are left out.
        """
        recipients = self.context.brokers if brokers is None else brokers
        self.metadata_recipients.update((broker, None) for broker in recipients if broker >= 0)
        self.metadata_partitions.update((partition, None) for partition in partitions)

    def add_stop_replica(
        self,
        broker: BrokerId,
        partition: TopicPartition,
        *,
        leader_epoch: LeaderEpoch,
        delete_partition: bool,
    ) -> None:
        if broker < 0:
            return
        states = self.stop_replica.setdefault(broker, {})
        before = states.get(partition)
        states[partition] = StopReplicaPartitionState(
            partition_index=partition.partition,
            leader_epoch=leader_epoch,
            delete_partition=delete_partition or (before is not None and before.delete_partition),
        )

    @property
    def size(self) -> int:
        """Approximate number of partitions in the next flush."""
        return len(self.metadata_partitions) + sum(map(len, self.stop_replica.values()))

    def flush_leaders(self) -> tuple[tuple[BrokerId, Request], ...]:
        """Return the LeaderAndIsr requests added so far. The other requests stay."""
        requests = tuple(
            (broker, self.build_leader_and_isr(broker))
            for broker in self.context.live_or_shutting_down_broker_ids
            if broker in self.leader_and_isr
        )
        self.leader_and_isr = {}
        return requests

    def flush(self) -> tuple[tuple[BrokerId, Request], ...]:
        """Return all requests that are not delayed, in sending order. Unregistered brokers are left out."""
        registered = self.context.live_or_shutting_down_broker_ids
        requests = list(self.flush_leaders())
        if self.metadata_recipients:
            topics = self.build_topic_states()
            brokers = tuple(
                to_update_metadata_broker(self.context.brokers[broker]) for broker in registered
            )
            for broker in registered:
                if broker in self.metadata_recipients:
                    request = UpdateMetadataRequest(
                        controller_id=self.controller_id,
                        controller_epoch=self.context.epoch,
                        broker_epoch=self.context.broker_epochs[broker],
                        topic_states=topics,
                        live_brokers=brokers,
                    )
                    requests.append((broker, request))
        requests += (
            (broker, request)
            for broker in registered
            if broker in self.stop_replica
            for request in self.build_stop_replicas(broker)
        )
        self.stop_replica = {}
        self.metadata_recipients = {}
        self.metadata_partitions = {}
        return tuple(requests)

    def build_leader_and_isr(self, broker: BrokerId) -> LeaderAndIsrRequest:
        by_topic: dict[str, list[LeaderAndIsrPartitionState]] = {}
        leaders: set[BrokerId] = set()
        for partition, state in self.leader_and_isr[broker].items():
            by_topic.setdefault(partition.topic, []).append(state)
            leaders.add(BrokerId(state.leader))
        brokers = self.context.brokers
        return LeaderAndIsrRequest(
            controller_id=self.controller_id,
            controller_epoch=self.context.epoch,
            broker_epoch=self.context.broker_epochs[broker],
            topic_states=tuple(
                LeaderAndIsrTopicState(
                    topic_name=topic,
                    topic_id=self.context.topic_ids.get(topic, ZERO_ID),
                    partition_states=tuple(states),
                )
                for topic, states in by_topic.items()
            ),
            live_leaders=tuple(
                self.to_live_leader(brokers[each]) for each in sorted(leaders) if each in brokers
            ),
        )

    def to_live_leader(self, broker: Broker) -> LeaderAndIsrLiveLeader:
        endpoint = endpoint_of(broker, self.listener)
        return LeaderAndIsrLiveLeader(broker.id, endpoint.host, endpoint.port)

    def build_topic_states(self) -> tuple[UpdateMetadataTopicState, ...]:
        by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
        for partition in self.metadata_partitions:
            state = to_update_metadata_partition(self.context, partition)
            if state is not None:
                by_topic.setdefault(partition.topic, []).append(state)
        return tuple(
            UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=self.context.topic_ids.get(topic, ZERO_ID),
                partition_states=tuple(states),
            )
            for topic, states in by_topic.items()
        )

    def build_stop_replicas(self, broker: BrokerId) -> Iterator[StopReplicaRequest]:
        """Yield the requests to a broker, split so that neither a request nor its response takes long to decode."""
        stops = list(self.stop_replica[broker].items())
        for start in range(0, len(stops), STOP_REPLICA_PARTITIONS_MAX):
            by_topic: dict[str, list[StopReplicaPartitionState]] = {}
            for partition, state in stops[start : start + STOP_REPLICA_PARTITIONS_MAX]:
                by_topic.setdefault(partition.topic, []).append(state)
            yield StopReplicaRequest(
                controller_id=self.controller_id,
                controller_epoch=self.context.epoch,
                broker_epoch=self.context.broker_epochs[broker],
                topic_states=tuple(
                    StopReplicaTopicState(topic_name=topic, partition_states=tuple(states))
                    for topic, states in by_topic.items()
                ),
            )


def endpoint_of(broker: Broker, listener: str) -> Endpoint:
    """Return the endpoint of this listener, or the first endpoint if the broker does not have the listener."""
    return next((e for e in broker.endpoints if e.listener == listener), broker.endpoints[0])


def to_update_metadata_broker(broker: Broker) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=tuple(
            UpdateMetadataEndpoint(
                port=each.port,
                host=each.host,
                listener=each.listener,
                security_protocol=each.protocol,
            )
            for each in broker.endpoints
        ),
        rack=broker.rack,
    )


def to_update_metadata_partition(
    context: ControllerContext, partition: TopicPartition
) -> UpdateMetadataPartitionState | None:
    """Return the state to send, or None without a leadership. Leader -2 means that the topic is being deleted."""
    leadership = context.leadership.get(partition)
    if leadership is None:
        return None
    deleting = context.is_topic_queued_for_deletion(partition.topic)
    replicas = context.replicas(partition)
    return UpdateMetadataPartitionState(
        partition_index=partition.partition,
        controller_epoch=leadership.controller_epoch,
        leader=LEADER_DURING_DELETE if deleting else leadership.leader,
        leader_epoch=INITIAL_EPOCH_DURING_DELETE if deleting else leadership.leader_epoch,
        isr=leadership.isr,
        zk_version=PARTITION_EPOCH_DURING_DELETE if deleting else leadership.partition_epoch,
        replicas=replicas,
        offline_replicas=tuple(b for b in replicas if not context.is_replica_online(b, partition)),
    )
