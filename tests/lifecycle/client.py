"""A client's view of one broker, with a separate connection per request.

Requests return the name of an error code, or LOST if the connection closed before the response.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from barnabas.client.view import ClusterView, TopicView, parse_metadata
from barnabas.errors import ErrorCode
from barnabas.model import BrokerId
from barnabas.wire.codec import Message
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    ResourceType,
)
from barnabas.wire.messages.elect_leaders import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
)
from barnabas.wire.messages.incremental_alter_configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.raw_connection import M, RawConnection, frame

Address = tuple[str, int]

CREATE_VERSION = 5
EXPAND_VERSION = 3
DELETE_VERSION = 6
METADATA_VERSION = 12
METADATA_TIMEOUT_S = 20.0
LOST = "lost"
TIMEOUT_MS = 10_000
POLL_S = (0.005, 0.03)
"""The first and the longest pause between polls. Several clusters are polled at once, so short pauses cost a core."""


def eventually(condition: Callable[[], bool], what: Callable[[], str], seconds: float) -> None:
    """Wait for the condition; polls often at first, because the time is measured."""
    deadline = time.monotonic() + seconds
    pause_s, longest_s = POLL_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what()}"
        time.sleep(pause_s)
        pause_s = min(1.25 * pause_s, longest_s)


def ask(
    address: Address, request: Message, response: type[M], version: int, timeout: float = 30.0
) -> M | None:
    """Send a request; returns None if there is no response."""
    try:
        with RawConnection(address, timeout) as connection:
            connection.send(frame(request, version))
            return connection.answer(response, version)
    except OSError:
        return None


# ---- requests


def create(
    address: Address,
    name: str,
    assignment: Sequence[Iterable[int]],
    *,
    validate_only: bool = False,
) -> str:
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=tuple(
            CreatableReplicaAssignment(index, tuple(brokers))
            for index, brokers in enumerate(assignment)
        ),
    )
    request = CreateTopicsRequest(
        topics=(topic,), timeout_ms=TIMEOUT_MS, validate_only=validate_only
    )
    answer = ask(address, request, CreateTopicsResponse, CREATE_VERSION)
    return LOST if answer is None else ErrorCode(answer.topics[0].error_code).name


def expand(
    address: Address,
    name: str,
    total: int,
    added: Sequence[Iterable[int]] | None = None,
    *,
    validate_only: bool = False,
) -> str:
    """`added` contains only the replicas of the new partitions."""
    assignments = None
    if added is not None:
        assignments = tuple(CreatePartitionsAssignment(tuple(brokers)) for brokers in added)
    topic = CreatePartitionsTopic(name=name, count=total, assignments=assignments)
    request = CreatePartitionsRequest(
        topics=(topic,), timeout_ms=TIMEOUT_MS, validate_only=validate_only
    )
    answer = ask(address, request, CreatePartitionsResponse, EXPAND_VERSION)
    return LOST if answer is None else ErrorCode(answer.results[0].error_code).name


def delete(address: Address, name: str) -> str:
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name),), timeout_ms=TIMEOUT_MS)
    answer = ask(address, request, DeleteTopicsResponse, DELETE_VERSION)
    return LOST if answer is None else ErrorCode(answer.responses[0].error_code).name


def reassign(address: Address, name: str, assignment: Sequence[Iterable[int] | None]) -> str:
    """Reassign all partitions; None cancels the reassignment of one. Returns the first error, if any."""
    partitions = tuple(
        ReassignablePartition(index, None if brokers is None else tuple(brokers))
        for index, brokers in enumerate(assignment)
    )
    request = AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(name, partitions),))
    answer = ask(address, request, AlterPartitionReassignmentsResponse, 0)
    if answer is None:
        return LOST
    codes = [answer.error_code, *(p.error_code for t in answer.responses for p in t.partitions)]
    return ErrorCode(next(filter(None, codes), ErrorCode.NONE)).name


def elect_preferred(address: Address, name: str, partitions: int) -> str:
    """Elect the preferred leaders. Returns the first error, if any."""
    topic = ElectLeadersTopic(name, tuple(range(partitions)))
    request = ElectLeadersRequest(
        election_type=ElectionType.PREFERRED, topic_partitions=(topic,), timeout_ms=TIMEOUT_MS
    )
    answer = ask(address, request, ElectLeadersResponse, 2)
    if answer is None:
        return LOST
    results = [p for t in answer.replica_election_results for p in t.partition_result]
    codes = [answer.error_code, *(each.error_code for each in results)]
    return ErrorCode(next(filter(None, codes), ErrorCode.NONE)).name


def set_retention(address: Address, name: str, retention_ms: int) -> str:
    setting = IncrementallyAlterableConfig("retention.ms", ConfigOperation.SET, str(retention_ms))
    resource = IncrementalAlterConfigsResource(ResourceType.TOPIC, name, (setting,))
    request = IncrementalAlterConfigsRequest(resources=(resource,))
    answer = ask(address, request, IncrementalAlterConfigsResponse, 1)
    return LOST if answer is None else ErrorCode(answer.responses[0].error_code).name


def retention_of(address: Address, name: str) -> str | None:
    """The retention.ms of a topic that this broker reports; None if it does not answer."""
    resource = DescribeConfigsResource(ResourceType.TOPIC, name, ("retention.ms",))
    answer = ask(address, DescribeConfigsRequest(resources=(resource,)), DescribeConfigsResponse, 4)
    if answer is None or answer.results[0].error_code:
        return None
    return answer.results[0].configs[0].value


def shut_down(address: Address, broker: BrokerId, epoch: int) -> str:
    """Request the controlled shutdown of a broker."""
    request = ControlledShutdownRequest(broker_id=broker, broker_epoch=epoch)
    answer = ask(address, request, ControlledShutdownResponse, 3)
    return LOST if answer is None else ErrorCode(answer.error_code).name


# ---- metadata


def topics_of(address: Address, names: Iterable[str] | None = None) -> dict[str, TopicView]:
    """The topics that this broker reports; empty if it does not answer."""
    view = metadata_of(address, names)
    return {} if view is None else dict(view.topics)


def brokers_known_to(address: Address) -> set[BrokerId]:
    """The brokers that this broker knows; empty if it does not answer."""
    view = metadata_of(address, ())
    return set() if view is None else set(view.brokers)


def topic_error(address: Address, name: str) -> str:
    """The name of the error code that this broker returns for one topic."""
    view = metadata_of(address, [name])
    if view is None:
        return LOST
    error = view.errors.get(name)
    return ErrorCode.NONE.name if error is None else error.code.name


def metadata_of(address: Address, names: Iterable[str] | None) -> ClusterView | None:
    request = MetadataRequest(
        topics=None if names is None else tuple(MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=False,
    )
    answer = ask(address, request, MetadataResponse, METADATA_VERSION, METADATA_TIMEOUT_S)
    return None if answer is None else parse_metadata(answer)
