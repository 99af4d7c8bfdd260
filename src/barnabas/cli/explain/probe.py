"""Requests to every broker at the same time: does it respond, its log directories, settings and log end offsets.

Each broker has its own connection and thread, so one that does not respond delays the command only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from msgspec import Struct, field
from msgspec.structs import replace

from barnabas.client.admin import parse_describe_configs
from barnabas.client.blocking import BlockingConnection
from barnabas.client.core import build_topics
from barnabas.client.login import ConnectionSecurity
from barnabas.client.view import BrokerView, ClusterView
from barnabas.errors import ApiError, ErrorCode
from barnabas.explain.facts import ControllerQueue, LogDirFacts, Probe
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import BrokerId, TopicPartition
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    ResourceType,
)
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.wire.messages.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

PROBE_TIMEOUT_S = 3.0
BROKERS_AT_ONCE = 16
PROBE_CLIENT_ID = "barnabas-explain"
DEBUGGING_REPLICA = -2
"""Replica id with which any replica, not only the leader, returns its log end offset."""
BROKER_SETTINGS = (
    "auto.leader.rebalance.enable",
    "leader.imbalance.per.broker.percentage",
    "leader.imbalance.check.interval.seconds",
    "delete.topic.enable",
    "offsets.topic.replication.factor",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "zookeeper.connect",
    "barnabas.registry.dir",
    "log.dirs",
    "log.dir",
)

Settings = Mapping[str, str]
Moves = Mapping[TopicPartition, ReplicaAssignment]


class BrokerAnswer(Struct, frozen=True):
    """Everything that one broker reported. `moves` is None unless it is the controller and serves the API."""

    probe: Probe
    settings: Settings = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    queue: ControllerQueue = ControllerQueue.UNKNOWN
    moves: Moves | None = None


def probe_brokers(
    view: ClusterView,
    replicas: Mapping[int, Sequence[TopicPartition]],
    security: ConnectionSecurity,
) -> dict[int, BrokerAnswer]:
    """Ask all registered brokers. `replicas` are the replicas on each broker whose log end offsets are wanted."""
    brokers = list(view.brokers.values())

    def ask(broker: BrokerView) -> BrokerAnswer:
        is_controller = broker.id == view.controller
        wanted = replicas.get(broker.id, ())
        return probe_broker(broker, wanted, security, is_controller=is_controller)

    with ThreadPoolExecutor(BROKERS_AT_ONCE) as threads:
        return {
            int(each.id): found
            for each, found in zip(brokers, threads.map(ask, brokers), strict=True)
        }


def probe_broker(
    broker: BrokerView,
    replicas: Iterable[TopicPartition],
    security: ConnectionSecurity,
    *,
    is_controller: bool,
) -> BrokerAnswer:
    try:
        connection = BlockingConnection.open(
            broker.host,
            broker.port,
            client_id=PROBE_CLIENT_ID,
            timeout_s=PROBE_TIMEOUT_S,
            security=security,
        )
    except ApiError as error:
        is_refused = "refused" in error.message.lower()
        return BrokerAnswer(Probe(is_responding=False, is_refused=is_refused, error=error.message))
    with closing(connection):
        try:
            log_dirs = read_log_dirs(connection)
            settings = read_broker_settings(connection, broker.id)
            ends = read_ends(connection, replicas)
        except ApiError as error:
            if error.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
                return BrokerAnswer(Probe(is_responding=False, error=error.message))
            return BrokerAnswer(Probe(is_responding=True, error=error.message))
        answer = BrokerAnswer(Probe(is_responding=True, log_dirs=log_dirs), settings, ends)
        if is_controller:
            moves, queue = read_moves(connection)
            return replace(answer, moves=moves, queue=queue)
        return answer


def read_log_dirs(connection: BlockingConnection) -> tuple[LogDirFacts, ...]:
    """Return the log directories, without their logs."""
    response = connection.exchange(
        DescribeLogDirsRequest(topics=()), DescribeLogDirsResponse, timeout_s=PROBE_TIMEOUT_S
    )
    return tuple(
        LogDirFacts(
            path=each.log_dir,
            is_failed=each.error_code == ErrorCode.KAFKA_STORAGE_ERROR,
            usable_bytes=each.usable_bytes,
        )
        for each in response.results
    )


def read_broker_settings(connection: BlockingConnection, broker: BrokerId) -> Settings:
    resource = DescribeConfigsResource(ResourceType.BROKER, str(broker), BROKER_SETTINGS)
    response = connection.exchange(
        DescribeConfigsRequest(resources=(resource,)),
        DescribeConfigsResponse,
        timeout_s=PROBE_TIMEOUT_S,
    )
    entries = parse_describe_configs(response).get(str(broker), [])
    return {entry.name: entry.value for entry in entries if entry.value is not None}


def read_ends(
    connection: BlockingConnection, replicas: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the log end offsets of replicas on this broker. Replicas with an error are left out."""
    wanted = {
        each: ListOffsetsPartition(each.partition, timestamp=LATEST_TIMESTAMP) for each in replicas
    }
    if not wanted:
        return {}
    request = ListOffsetsRequest(
        replica_id=DEBUGGING_REPLICA, topics=build_topics(ListOffsetsTopic, wanted)
    )
    response = connection.exchange(request, ListOffsetsResponse, timeout_s=PROBE_TIMEOUT_S)
    return {
        TopicPartition(topic.name, found.partition_index): found.offset
        for topic in response.topics
        for found in topic.partitions
        if not found.error_code
    }


def read_moves(connection: BlockingConnection) -> tuple[Moves | None, ControllerQueue]:
    """Return the reassignments in progress, or None if the broker does not report them.

    The request passes the event queue of the controller: a timeout shows that the queue is stuck.
    """
    if not connection.supports(ListPartitionReassignmentsRequest):
        return None, ControllerQueue.UNKNOWN
    try:
        response = connection.exchange(
            ListPartitionReassignmentsRequest(topics=None),
            ListPartitionReassignmentsResponse,
            timeout_s=PROBE_TIMEOUT_S,
        )
    except ApiError as error:
        is_late = error.code is ErrorCode.REQUEST_TIMED_OUT
        return None, ControllerQueue.STUCK if is_late else ControllerQueue.UNKNOWN
    if response.error_code:
        return None, ControllerQueue.UNKNOWN
    moves = {
        TopicPartition(topic.name, each.partition_index): ReplicaAssignment(
            replicas=tuple(map(BrokerId, each.replicas)),
            adding=tuple(map(BrokerId, each.adding_replicas)),
            removing=tuple(map(BrokerId, each.removing_replicas)),
        )
        for topic in response.topics
        for each in topic.partitions
    }
    return moves, ControllerQueue.WORKING
