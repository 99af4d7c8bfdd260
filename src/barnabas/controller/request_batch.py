"""Collects what brokers are to be told, and gives it out as one request per broker and kind.

    LeaderAndIsr     to the replicas of a partition: lead, or follow     and with it, always, the metadata to everybody
    UpdateMetadata   to whom it was addressed: the same partitions for all, and the list of brokers
    StopReplica      to the holder of a replica

A flush gives them in this order, so that a broker hears of a leader before it is asked about it. LeaderAndIsr may be
flushed alone, as a long step goes on. What a LeaderAndIsr says is read from the context when it is added. The metadata,
one for all, and who is addressed are read at the flush.

Adding twice for one broker and partition keeps the later content. Two things stick, because forgetting them would be
wrong: a replica that is new stays new (else a broker with a broken disk would refuse to create it), and a replica to
delete stays to delete.

Of a partition that is held back no LeaderAndIsr is in a flush before it has a leader with another epoch than when that
began, or all are released: whoever knows that it is about to change spares the brokers the states in between.

What comes out are the messages themselves. Those UpdateMetadata of one flush share their topics and brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.controller.context import LEADER_DURING_DELETE, ControllerContext
from barnabas.controller.decision import (
    RequestIntent,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
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
STOPPED_AT_ONCE = 5000
PLAINTEXT = "PLAINTEXT"
PLAINTEXT_PROTOCOL = 0


class RequestsLeftOver(RuntimeError):
    """A batch was begun while another was never sent: some broker may have missed a decision."""


Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


# ---- the batch --------------------------------------------------------------------------------------------


class RequestBatch:
    def __init__(
        self, controller_id: BrokerId, context: ControllerContext, listener: str = PLAINTEXT
    ) -> None:
        """`listener` is the one by which brokers reach each other."""
        self.controller_id = controller_id
        self.context = context
        self.listener = listener
        self.clear()

    def clear(self) -> None:
        """Forget what was not sent. Only for who resigns: nobody else can make up for it."""
        self.leader_and_isr: dict[BrokerId, dict[TopicPartition, LeaderAndIsrPartitionState]] = {}
        self.stop_replica: dict[BrokerId, dict[TopicPartition, StopReplicaPartitionState]] = {}
        self.metadata_to: dict[BrokerId, None] = {}
        self.metadata: dict[TopicPartition, None] = {}
        self.held_back: dict[TopicPartition, LeaderEpoch] = {}
        """With the epoch that need not be told any more."""
        self.later: dict[TopicPartition, dict[BrokerId, bool]] = {}
        """Who is to be told of them then, and whether as something new."""

    def new_batch(self) -> None:
        left = (
            ("LeaderAndIsr", self.leader_and_isr),
            ("UpdateMetadata", self.metadata_to),
            ("StopReplica", self.stop_replica),
        )
        for kind, to in left:
            if to:
                brokers = ", ".join(map(str, sorted(to)))
                raise RequestsLeftOver(f"{kind} to {brokers} was never sent")

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        self.held_back = {each: self.context.leader_epoch(each) for each in partitions}

    def release(self) -> None:
        """What is still held back goes with the next flush."""
        for partition in tuple(self.held_back):
            self.let_go(partition)

    def let_go(self, partition: TopicPartition) -> None:
        del self.held_back[partition]
        later = self.later.pop(partition, None)
        if later is None:
            return
        # Where all replicas are gone nobody is told to lead or to follow, but everybody that nobody leads.
        self.add_update_metadata(None, (partition,))
        for is_new in set(later.values()):
            brokers = [broker for broker, as_new in later.items() if as_new is is_new]
            self.add_leader_and_isr(brokers, partition, is_new=is_new)

    def add(self, intents: Iterable[RequestIntent]) -> None:
        """What an applied decision wants announced."""
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
        """The partition must have leadership information."""
        known = self.context.leadership[partition]
        if partition in self.held_back:
            later = self.later.setdefault(partition, {})
            later.update((broker, is_new or later.get(broker, False)) for broker in brokers)
            if known.leader != NO_LEADER and known.leader_epoch != self.held_back[partition]:
                self.let_go(partition)
            return
        assignment = self.context.assignment(partition)
        state = LeaderAndIsrPartitionState(
            partition_index=partition.partition,
            controller_epoch=known.controller_epoch,
            leader=known.leader,
            leader_epoch=known.leader_epoch,
            isr=known.isr,
            partition_epoch=known.partition_epoch,
            replicas=assignment.replicas,
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
            is_new=is_new,
            leader_recovery_state=int(known.recovering),
        )
        for broker in brokers:
            if broker < 0:
                continue
            to = self.leader_and_isr.setdefault(broker, {})
            before = to.get(partition)
            sticks = before is not None and before.is_new and not is_new
            to[partition] = state._replace(is_new=True) if sticks else state
        self.add_update_metadata(None, (partition,))

    def add_update_metadata(
        self, brokers: Iterable[BrokerId] | None, partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """To all registered brokers for None. A partition that has no leadership information then is left out."""
        to = self.context.brokers if brokers is None else brokers
        self.metadata_to.update((broker, None) for broker in to if broker >= 0)
        self.metadata.update((partition, None) for partition in partitions)

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
        to = self.stop_replica.setdefault(broker, {})
        before = to.get(partition)
        to[partition] = StopReplicaPartitionState(
            partition_index=partition.partition,
            leader_epoch=leader_epoch,
            delete_partition=delete_partition or (before is not None and before.delete_partition),
        )

    @property
    def size(self) -> int:
        """About how many partitions a flush has to tell of."""
        return len(self.metadata) + sum(map(len, self.stop_replica.values()))

    def flush_leaders(self) -> tuple[tuple[BrokerId, Request], ...]:
        """Each LeaderAndIsr there is so far; the rest stays."""
        sent = tuple(
            (broker, self.leader_and_isr_for(broker))
            for broker in self.context.live_or_shutting_down_broker_ids
            if broker in self.leader_and_isr
        )
        self.leader_and_isr = {}
        return sent

    def flush(self) -> tuple[tuple[BrokerId, Request], ...]:
        """Everything but what is held back, in the order it is to be sent. Who is not registered is left out."""
        registered = self.context.live_or_shutting_down_broker_ids
        sent = list(self.flush_leaders())
        if self.metadata_to:
            topics = self.metadata_topics()
            brokers = tuple(live_broker(self.context.brokers[broker]) for broker in registered)
            sent += (
                (broker, self.update_metadata_for(broker, topics, brokers))
                for broker in registered
                if broker in self.metadata_to
            )
        sent += (
            (broker, request)
            for broker in registered
            if broker in self.stop_replica
            for request in self.stop_replicas_for(broker)
        )
        self.stop_replica = {}
        self.metadata_to = {}
        self.metadata = {}
        return tuple(sent)

    def leader_and_isr_for(self, broker: BrokerId) -> LeaderAndIsrRequest:
        by_topic: dict[str, list[LeaderAndIsrPartitionState]] = {}
        leaders: set[BrokerId] = set()
        for partition, state in self.leader_and_isr[broker].items():
            by_topic.setdefault(partition.topic, []).append(state)
            leaders.add(BrokerId(state.leader))
        known = self.context.brokers
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
                self.live_leader(known[leader]) for leader in sorted(leaders) if leader in known
            ),
        )

    def live_leader(self, broker: Broker) -> LeaderAndIsrLiveLeader:
        endpoint = endpoint_of(broker, self.listener)
        return LeaderAndIsrLiveLeader(broker.id, endpoint.host, endpoint.port)

    def metadata_topics(self) -> tuple[UpdateMetadataTopicState, ...]:
        by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
        for partition in self.metadata:
            state = metadata_state(self.context, partition)
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

    def update_metadata_for(
        self,
        broker: BrokerId,
        topics: tuple[UpdateMetadataTopicState, ...],
        brokers: tuple[UpdateMetadataBroker, ...],
    ) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=self.controller_id,
            controller_epoch=self.context.epoch,
            broker_epoch=self.context.broker_epochs[broker],
            topic_states=topics,
            live_brokers=brokers,
        )

    def stop_replicas_for(self, broker: BrokerId) -> Iterator[StopReplicaRequest]:
        """So many that none of them, nor its answer, takes long to read."""
        stops = list(self.stop_replica[broker].items())
        for start in range(0, len(stops), STOPPED_AT_ONCE):
            by_topic: dict[str, list[StopReplicaPartitionState]] = {}
            for partition, state in stops[start : start + STOPPED_AT_ONCE]:
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
    """The address of this listener; the first one there is, for a broker that does not have it."""
    return next((e for e in broker.endpoints if e.listener == listener), broker.endpoints[0])


def live_broker(broker: Broker) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=tuple(
            UpdateMetadataEndpoint(
                port=each.port,
                host=each.host,
                listener=each.listener,
                security_protocol=PLAINTEXT_PROTOCOL,
            )
            for each in broker.endpoints
        ),
        rack=broker.rack,
    )


def metadata_state(
    context: ControllerContext, partition: TopicPartition
) -> UpdateMetadataPartitionState | None:
    """A topic queued for deletion has leader -2, by which brokers know to forget it."""
    known = context.leadership.get(partition)
    if known is None:
        return None
    deleting = context.is_topic_queued_for_deletion(partition.topic)
    replicas = context.replicas(partition)
    return UpdateMetadataPartitionState(
        partition_index=partition.partition,
        controller_epoch=known.controller_epoch,
        leader=LEADER_DURING_DELETE if deleting else known.leader,
        leader_epoch=INITIAL_EPOCH_DURING_DELETE if deleting else known.leader_epoch,
        isr=known.isr,
        zk_version=PARTITION_EPOCH_DURING_DELETE if deleting else known.partition_epoch,
        replicas=replicas,
        offline_replicas=tuple(b for b in replicas if not context.is_replica_online(b, partition)),
    )
