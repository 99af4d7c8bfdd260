"""The client's view of a cluster: brokers, topics, partitions and leaders. Immutable; each refresh makes a new view."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.client.core import error_of
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_LEADER, ZERO_ID, BrokerId, TopicPartition
from barnabas.wire.messages.metadata import MetadataResponse, MetadataResponseTopic


class BrokerView(Struct, frozen=True, kw_only=True):
    id: BrokerId
    host: str
    port: int
    rack: str | None = None


class PartitionView(Struct, frozen=True, kw_only=True):
    partition: int
    leader: BrokerId
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()

    @property
    def is_offline(self) -> bool:
        return self.leader == NO_LEADER

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


class TopicView(Struct, frozen=True, kw_only=True):
    name: str
    id: UUID = ZERO_ID
    is_internal: bool = False
    partitions: tuple[PartitionView, ...] = ()
    """Ordered by partition number."""

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


class ClusterView(Struct, frozen=True, kw_only=True):
    cluster_id: str | None = None
    controller: BrokerId = NO_LEADER
    brokers: Mapping[BrokerId, BrokerView] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    errors: Mapping[str, ApiError] = field(default_factory=dict)
    """Requested topics for which the broker returned an error."""

    def topic(self, name: str) -> TopicView:
        """Return a topic. If it is not in the view, raises its error, or UNKNOWN_TOPIC_OR_PARTITION."""
        if name in self.topics:
            return self.topics[name]
        unknown = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
        raise self.errors.get(name, unknown)

    def leader(self, partition: TopicPartition) -> BrokerId:
        """Return the leader of a partition.

        Raises ApiError: LEADER_NOT_AVAILABLE without a leader, UNKNOWN_TOPIC_OR_PARTITION for an unknown partition.
        """
        found = self.partition(partition)
        if found.is_offline or found.leader not in self.brokers:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return found.leader

    def partition(self, partition: TopicPartition) -> PartitionView:
        topic = self.topic(partition.topic)
        for found in topic.partitions:
            if found.partition == partition.partition:
                return found
        count = len(topic.partitions)
        why = f"{topic.name} has no partition {partition.partition}, only 0–{count - 1}"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)

    def merge(self, newer: ClusterView) -> ClusterView:
        """Return `newer`, with the topics of this view that `newer` has neither as a topic nor as an error."""
        covered = newer.topics.keys() | newer.errors.keys()
        kept = {name: topic for name, topic in self.topics.items() if name not in covered}
        return replace(newer, topics={**kept, **newer.topics})


def parse_metadata(response: MetadataResponse) -> ClusterView:
    """Convert a Metadata response. Topics without a name (unknown topic ids) are left out."""
    topics = [topic for topic in response.topics if topic.name is not None]
    return ClusterView(
        cluster_id=response.cluster_id,
        controller=BrokerId(response.controller_id),
        brokers={
            BrokerId(broker.node_id): BrokerView(
                id=BrokerId(broker.node_id), host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in response.brokers
        },
        topics={topic.name or "": topic_view(topic) for topic in topics if not topic.error_code},
        errors={
            topic.name or "": error
            for topic in topics
            if (error := error_of(topic.error_code, f"topic {topic.name}")) is not None
        },
    )


def topic_view(topic: MetadataResponseTopic) -> TopicView:
    return TopicView(
        name=topic.name or "",
        id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            PartitionView(
                partition=partition.partition_index,
                leader=BrokerId(partition.leader_id),
                leader_epoch=partition.leader_epoch,
                replicas=partition.replica_nodes,
                isr=partition.isr_nodes,
                offline_replicas=partition.offline_replicas,
            )
            for partition in sorted(topic.partitions, key=lambda found: found.partition_index)
        ),
    )
