"""AlterReplicaLogDirs: move replicas to other log directories of this broker."""

from __future__ import annotations

import logging

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

logger = logging.getLogger("barnabas.moves")


def handle(
    context: BrokerContext,
    request: AlterReplicaLogDirsRequest,
    _: RequestHeader,
    connection: Connection,
) -> Work[AlterReplicaLogDirsResponse]:
    """Begin the moves. If the request has a partition several times, the last directory is used, as in Kafka."""
    directories: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                directories[TopicPartition(topic.name, index)] = directory.path
                yield None
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    rejected = 0
    is_allowed = context.security.access.allows_cluster(connection, Operation.ALTER)
    for tp, path in directories.items():
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if is_allowed:
            code = context.replicas.moves.alter(tp, path)
        rejected += code is not ErrorCode.NONE
        result = AlterReplicaLogDirPartitionResult(tp.partition, code)
        results.setdefault(tp.topic, []).append(result)
        yield None
    logger.info("AlterReplicaLogDirs partitions=%d rejected=%d", len(directories), rejected)
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(topic, tuple(partitions))
            for topic, partitions in results.items()
        )
    )
