"""AlterReplicaLogDirs: move replicas of a broker to other log directories of the same broker."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32


class AlterReplicaLogDirTopic(NamedTuple):
    name: str
    partitions: tuple[Int32, ...]


class AlterReplicaLogDir(NamedTuple):
    """A directory, and the partitions that move to it."""

    path: str
    topics: tuple[AlterReplicaLogDirTopic, ...]


class AlterReplicaLogDirsRequest(ApiMessage, frozen=True, kw_only=True):
    dirs: tuple[AlterReplicaLogDir, ...]


class AlterReplicaLogDirPartitionResult(NamedTuple):
    partition_index: Int32
    error_code: Int16


class AlterReplicaLogDirTopicResult(NamedTuple):
    topic_name: str
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...]


class AlterReplicaLogDirsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[AlterReplicaLogDirTopicResult, ...] = ()
