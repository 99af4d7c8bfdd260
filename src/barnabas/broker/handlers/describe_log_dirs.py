"""DescribeLogDirs: the log directories of this broker, the size of each log, and the progress of moves."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN_LAG = -1


def handle(
    context: BrokerContext,
    request: DescribeLogDirsRequest,
    header: RequestHeader,
    connection: Connection,
) -> Work[DescribeLogDirsResponse]:
    if not context.security.access.allows_cluster(connection, Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        for topic in request.topics:
            wanted.update((topic.topic, index) for index in topic.partitions)
            yield None
    results = []
    for directory in context.replicas.logs.describe():
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for sizes, is_future in ((directory.sizes, False), (directory.future_sizes, True)):
            for tp, size in sizes.items():
                if wanted is None or tp in wanted:
                    lag = offset_lag(context.replicas, tp, is_future=is_future)
                    found = DescribeLogDirsPartition(tp.partition, size, lag, is_future)
                    topics.setdefault(tp.topic, []).append(found)
                yield None
        failed = directory.error is not None
        results.append(
            DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NONE,
                log_dir=directory.path,
                topics=tuple(
                    DescribeLogDirsTopic(name=name, partitions=tuple(partitions))
                    for name, partitions in topics.items()
                ),
                total_bytes=directory.total_bytes,
                usable_bytes=directory.usable_bytes,
            )
        )
    return DescribeLogDirsResponse(results=tuple(results))


def offset_lag(replicas: ReplicaManager, tp: TopicPartition, *, is_future: bool) -> int:
    """Return the number of offsets that a future log lacks.

    0 for a current log: it never ends before its high watermark. -1 if the partition is not in use on this broker.
    """
    partition = replicas.partitions.get(tp)
    if partition is None or partition.is_offline:
        return UNKNOWN_LAG
    future = replicas.logs.futures.get(tp)
    if not is_future or future is None:
        return 0
    return partition.log.log_end_offset - future.log_end_offset
