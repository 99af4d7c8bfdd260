"""Admin client for leader elections."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.client.cluster import Cluster
from barnabas.client.core import build_topics, error_of, raise_if
from barnabas.errors import ApiError
from barnabas.model import TopicPartition
from barnabas.wire.messages.elect_leaders import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
)


def elect_leaders(
    cluster: Cluster, election: ElectionType, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, ApiError | None]:
    """Elect leaders, and return the error of each partition. None for all partitions of the cluster.

    For all partitions, the result has only those with an election or an error. Raises ApiError if the whole request
    fails. A timeout does not undo the elections.
    """
    topics = None
    if partitions is not None:
        topics = build_topics(ElectLeadersTopic, {each: each.partition for each in partitions})
    response = cluster.ask_controller(
        ElectLeadersRequest(
            election_type=election, topic_partitions=topics, timeout_ms=cluster.broker_timeout_ms
        ),
        ElectLeadersResponse,
        codes=error_codes,
    )
    raise_if(response.error_code)
    return {
        TopicPartition(topic.topic, each.partition_id): error_of(
            each.error_code, each.error_message
        )
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


def error_codes(response: ElectLeadersResponse) -> list[int]:
    """Return the code of the whole response if it is an error, else the codes of the partitions.

    A broker that is not the controller returns NOT_CONTROLLER in one of the two places, depending on its release.
    """
    if response.error_code:
        return [response.error_code]
    return [
        each.error_code
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]
