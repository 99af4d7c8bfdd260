"""What Metadata requests are answered from: the brokers, the topics, who leads each partition.

The broker list and the controller are replaced as a whole, topics one by one. Each topic's part of a response is kept
encoded, per version, until that topic or the broker list changes: a client that asks for a thousand partitions gets a
join of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from barnabas.errors import ErrorCode
from barnabas.model import NO_LEADER, Broker, BrokerId, Endpoint, LeaderEpoch
from barnabas.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition as clients are told of it. `replicas[0]` is the preferred one."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]


class MetadataCache:
    """This broker's view of the cluster."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = NO_LEADER
        self.brokers: dict[BrokerId, Broker] = {}
        self.topics: dict[str, TopicState] = {}
        self.names: dict[UUID, str] = {}
        self.encoded: dict[tuple[str, int], bytes] = {}

    def set_brokers(self, brokers: list[Broker], controller_id: BrokerId) -> None:
        self.brokers = {broker.id: broker for broker in brokers}
        self.controller_id = controller_id
        self.encoded.clear()

    def put_topic(self, topic: TopicState) -> None:
        before = self.topics.get(topic.name)
        if before is not None:
            self.remove_topic(topic.name)
        self.topics[topic.name] = topic
        self.names[topic.topic_id] = topic.name

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.names.pop(topic.topic_id, None)
            for key in [key for key in self.encoded if key[0] == name]:
                del self.encoded[key]

    def endpoint(self, broker: Broker, listener: str) -> Endpoint | None:
        """Where a client that came in through `listener` finds this broker."""
        return next((e for e in broker.endpoints if e.listener == listener), None)

    def encoded_topic(
        self, name: str, version: int, encode: Callable[[int, MetadataResponseTopic], bytes]
    ) -> bytes:
        key = (name, version)
        data = self.encoded.get(key)
        if data is None:
            data = self.encoded[key] = encode(version, self.describe(name, version))
        return data

    def describe(self, name: str, version: int) -> MetadataResponseTopic:
        topic = self.topics[name]
        return MetadataResponseTopic(
            error_code=0,
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=tuple(
                self.describe_partition(index, state, version)
                for index, state in enumerate(topic.partitions)
            ),
        )

    def describe_partition(
        self, index: int, state: PartitionState, version: int
    ) -> MetadataResponsePartition:
        alive = self.brokers
        offline = tuple(broker for broker in state.replicas if broker not in alive)
        replicas, isr, error = state.replicas, state.isr, ErrorCode.NONE
        if state.leader not in alive:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif version == 0 and offline:
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        if version == 0:
            # The oldest clients cannot be told of brokers they cannot look up.
            replicas = tuple(broker for broker in replicas if broker in alive)
            isr = tuple(broker for broker in isr if broker in alive)
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=state.leader if state.leader in alive else NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline,
        )
