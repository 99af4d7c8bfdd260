"""Admin client: topics, configs, log directories, offsets and the cluster.

Methods that create or delete topics return the error of each topic in its TopicOutcome. All other errors are raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from msgspec import Struct, field

from barnabas.client.blocking import BlockingConnection, Deadline, pause
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigEntry as ConfigEntry
from barnabas.client.config_admin import parse_config_entry
from barnabas.client.core import build_topics, error_of, raise_if
from barnabas.client.offsets import FoundOffset, list_offsets
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import ZERO_ID, BrokerId, TopicPartition
from barnabas.retry import Backoff
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    ResourceType,
)

DELETION_WAIT_S = 5.0
BACKOFF_S = (0.05, 0.2)
DELETE_BY_NAME_VERSION = 5
"""The last version of DeleteTopics that identifies topics by name only."""


class NewTopic(Struct, frozen=True, kw_only=True):
    """A topic to create. -1 means the cluster's default.

    `assignment` lists the replicas of every partition. With it, both numbers must be -1.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Sequence[Sequence[int]] = ()


class NewPartitions(Struct, frozen=True, kw_only=True):
    """A new partition count for a topic. `count` is the new total.

    `assignment` lists the replicas of each added partition; None lets the cluster choose.
    """

    name: str
    count: int
    assignment: Sequence[Sequence[int]] | None = None


class TopicOutcome(Struct, frozen=True, kw_only=True):
    """Result for one topic. Only `create_topics` sets the id and the numbers."""

    name: str
    error: ApiError | None = None
    topic_id: UUID = ZERO_ID
    partitions: int = -1
    replication_factor: int = -1


class Admin:
    """Admin client of a cluster. Methods raise ApiError."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    # ---- topics ---------------------------------------------------------------------------------------------------

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Create topics. Waits up to DELETION_WAIT_S for an ongoing deletion of a topic with the same name."""
        outcomes = self.create_topics_once(topics, validate_only=validate_only)
        deletion_deadline = Deadline(min(DELETION_WAIT_S, self.cluster.timeout_s))
        backoff = Backoff(*BACKOFF_S, random=self.cluster.random)
        while waiting := topics_not_handled(outcomes) | topics_being_deleted(outcomes):
            if waiting <= topics_being_deleted(outcomes):
                if deletion_deadline.passed:
                    break
                pause(backoff.next_s())
            retried = [topic for topic in topics if topic.name in waiting]
            later = self.create_topics_once(retried, validate_only=validate_only)
            outcomes = replace_outcomes(outcomes, later)
        return outcomes

    def create_topics_once(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicOutcome]:
        """Send one CreateTopics request, without waiting for deletions."""
        request = CreateTopicsRequest(
            topics=tuple(to_creatable_topic(topic) for topic in topics),
            timeout_ms=self.cluster.broker_timeout_ms,
            validate_only=validate_only,
        )
        response = self.cluster.ask_controller(
            request,
            CreateTopicsResponse,
            codes=lambda answer: [topic.error_code for topic in answer.topics],
        )
        return [
            TopicOutcome(
                name=topic.name,
                error=error_of(topic.error_code, topic.error_message),
                topic_id=topic.topic_id,
                partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
            )
            for topic in response.topics
        ]

    def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Add partitions to topics. A topic that already has `count` or more gets the error INVALID_PARTITIONS."""
        response = self.cluster.ask_controller(
            CreatePartitionsRequest(
                topics=tuple(to_create_partitions_topic(topic) for topic in topics),
                timeout_ms=self.cluster.broker_timeout_ms,
                validate_only=validate_only,
            ),
            CreatePartitionsResponse,
            codes=lambda answer: [topic.error_code for topic in answer.results],
        )
        outcomes = [
            TopicOutcome(name=topic.name, error=error_of(topic.error_code, topic.error_message))
            for topic in response.results
        ]
        not_handled = topics_not_handled(outcomes)
        retried = [topic for topic in topics if topic.name in not_handled]
        later = self.create_partitions(retried, validate_only=validate_only) if retried else []
        return replace_outcomes(outcomes, later)

    def delete_topics(self, names: Sequence[str]) -> list[TopicOutcome]:
        response = self.cluster.ask_controller(
            DeleteTopicsRequest(
                topic_names=tuple(names), timeout_ms=self.cluster.broker_timeout_ms
            ),
            DeleteTopicsResponse,
            codes=lambda answer: [topic.error_code for topic in answer.responses],
            max_version=DELETE_BY_NAME_VERSION,
        )
        outcomes = [
            TopicOutcome(
                name=topic.name or "", error=error_of(topic.error_code, topic.error_message)
            )
            for topic in response.responses
        ]
        retried = sorted(topics_not_handled(outcomes))
        return replace_outcomes(outcomes, self.delete_topics(retried) if retried else [])

    def list_topics(self) -> list[TopicView]:
        view = self.cluster.retry(lambda: self.cluster.refresh(None), refresh=False)
        return [view.topics[name] for name in sorted(view.topics)]

    def describe_topics(self, names: Sequence[str]) -> list[TopicView]:
        """Fetch the metadata of topics, in this order. Raises ApiError for the first topic that does not exist."""
        for name in names:
            self.cluster.topic(name)
        view = self.cluster.refresh(names)
        return [view.topic(name) for name in names]

    # ---- configs --------------------------------------------------------------------------------------------------

    def describe_topic_configs(self, names: Sequence[str]) -> dict[str, list[ConfigEntry]]:
        request = DescribeConfigsRequest(
            resources=tuple(DescribeConfigsResource(ResourceType.TOPIC, name) for name in names)
        )
        return parse_describe_configs(self.cluster.ask_any(request, DescribeConfigsResponse))

    def describe_broker_configs(self, broker: BrokerId) -> list[ConfigEntry]:
        """Return the settings of a broker. Only that broker knows them."""
        resource = DescribeConfigsResource(ResourceType.BROKER, str(broker))
        request = DescribeConfigsRequest(resources=(resource,))
        response = self.cluster.ask(broker, request, DescribeConfigsResponse)
        return parse_describe_configs(response)[str(broker)]

    # ---- cluster and log directories --------------------------------------------------------------------------------

    def describe_cluster(self) -> DescribeClusterResponse:
        response = self.cluster.ask_any(DescribeClusterRequest(), DescribeClusterResponse)
        raise_if(response.error_code, response.error_message)
        return response

    # ---- records --------------------------------------------------------------------------------------------------

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset]:
        return list_offsets(self.cluster, timestamps)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below each offset; -1: below the high watermark. Returns the low watermarks."""

        def ask(
            connection: BlockingConnection, led: list[TopicPartition]
        ) -> Iterator[tuple[TopicPartition, int | ApiError]]:
            request = DeleteRecordsRequest(
                topics=build_topics(
                    DeleteRecordsTopic,
                    {each: DeleteRecordsPartition(each.partition, before[each]) for each in led},
                ),
                timeout_ms=self.cluster.broker_timeout_ms,
            )
            response = connection.exchange(
                request, DeleteRecordsResponse, timeout_s=self.cluster.timeout_s
            )
            for topic in response.topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    error = error_of(result.error_code, str(partition))
                    yield partition, error or result.low_watermark

        return self.cluster.ask_leaders(before, ask)


def topics_not_handled(outcomes: Sequence[TopicOutcome]) -> set[str]:
    """Return the topics with the error NOT_CONTROLLER. They must be sent to the new controller."""
    return {
        outcome.name
        for outcome in outcomes
        if outcome.error is not None and outcome.error.code is ErrorCode.NOT_CONTROLLER
    }


def topics_being_deleted(outcomes: Sequence[TopicOutcome]) -> set[str]:
    """Return the topics whose deletion is in progress.

    The error code is the same as for an existing topic; only the message differs, in Kafka too.
    """
    return {
        outcome.name
        for outcome in outcomes
        if outcome.error is not None
        and outcome.error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        and "marked for deletion" in outcome.error.message
    }


def replace_outcomes(
    outcomes: Sequence[TopicOutcome], later: Sequence[TopicOutcome]
) -> list[TopicOutcome]:
    """Return `outcomes`, in which those in `later` replace the outcomes of the same topics."""
    by_name = {outcome.name: outcome for outcome in later}
    return [by_name.get(outcome.name, outcome) for outcome in outcomes]


def to_creatable_topic(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(brokers))
            for index, brokers in enumerate(topic.assignment)
        ),
        configs=tuple(
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ),
    )


def to_create_partitions_topic(topic: NewPartitions) -> CreatePartitionsTopic:
    assignments = None
    if topic.assignment is not None:
        assignments = tuple(CreatePartitionsAssignment(tuple(each)) for each in topic.assignment)
    return CreatePartitionsTopic(name=topic.name, count=topic.count, assignments=assignments)


def parse_describe_configs(response: DescribeConfigsResponse) -> dict[str, list[ConfigEntry]]:
    """Return the settings by topic name or broker id. Raises ApiError for the first error in the response."""
    found = {}
    for result in response.results:
        raise_if(result.error_code, result.error_message or result.resource_name)
        found[result.resource_name] = [parse_config_entry(entry) for entry in result.configs]
    return found
