"""DescribeLogDirs: the log directories of this broker and the size of each log."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    context: BrokerContext, request: DescribeLogDirsRequest, header: RequestHeader, _: Connection
) -> Work[DescribeLogDirsResponse]:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        for topic in request.topics:
            wanted.update((topic.topic, index) for index in topic.partitions)
            yield None
    results = []
    for directory in context.replicas.logs.describe():
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for tp, size in directory.sizes.items():
            if wanted is None or tp in wanted:
                topics.setdefault(tp.topic, []).append(
                    DescribeLogDirsPartition(partition_index=tp.partition, partition_size=size)
                )
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
