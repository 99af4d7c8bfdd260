"""Admin client for reassignments: start, replace, cancel and list them. All requests go to the controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.core import build_topics, error_of, raise_if
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopic,
)


class OngoingReassignment(NamedTuple):
    """A reassignment in progress. `replicas` includes the replicas that are being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment. Their order may have changed."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class ReassignmentAdmin:
    """Admin client for reassignments. Methods raise ApiError if a whole request fails."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, ApiError | None]:
        """Move partitions to new replicas; None cancels the reassignment of a partition.

        Returns the error of each partition, or None. A success means that the controller has stored the reassignment,
        not that it is complete. A target replaces an earlier one.
        """
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self.timeout_ms(timeout_s),
            topics=build_topics(
                ReassignableTopic,
                {
                    each: ReassignablePartition(
                        each.partition, None if replicas is None else tuple(replicas)
                    )
                    for each, replicas in targets.items()
                },
            ),
        )
        response = self.cluster.ask_controller(
            request, AlterPartitionReassignmentsResponse, codes=lambda answer: [answer.error_code]
        )
        raise_if(response.error_code, response.error_message)
        missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response has no result")
        outcomes: dict[TopicPartition, ApiError | None] = dict.fromkeys(targets, missing)
        for topic in response.responses:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                outcomes[partition] = error_of(each.error_code, each.error_message)
        return outcomes

    def list_partition_reassignments(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, OngoingReassignment]:
        """Return the reassignments in progress, of these partitions or of all, ordered by partition."""
        topics = None
        if partitions is not None:
            topics = build_topics(
                ListPartitionReassignmentsTopic, {each: each.partition for each in partitions}
            )
        response = self.cluster.ask_controller(
            ListPartitionReassignmentsRequest(timeout_ms=self.timeout_ms(timeout_s), topics=topics),
            ListPartitionReassignmentsResponse,
            codes=lambda answer: [answer.error_code],
        )
        raise_if(response.error_code, response.error_message)
        found = {
            TopicPartition(topic.name, each.partition_index): OngoingReassignment(
                each.replicas, each.adding_replicas, each.removing_replicas
            )
            for topic in response.topics
            for each in topic.partitions
        }
        return dict(sorted(found.items()))

    def timeout_ms(self, timeout_s: float | None) -> int:
        return self.cluster.broker_timeout_ms if timeout_s is None else int(timeout_s * 1000)
