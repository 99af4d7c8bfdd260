"""CreateTopics: creates topics with their partitions, replicas and settings."""

from __future__ import annotations

from typing import Annotated, NamedTuple
from uuid import UUID

from barnabas.model import ZERO_ID
from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Essential, Int8, Int16, Int32, Since, Tag


class CreatableReplicaAssignment(NamedTuple):
    partition_index: Int32
    broker_ids: tuple[Int32, ...]


class CreatableTopicConfig(NamedTuple):
    name: str
    value: str | None


class CreatableTopic(NamedTuple):
    """`num_partitions` and `replication_factor` are -1 for the broker's defaults, and must be -1 with `assignments`."""

    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(ApiMessage, frozen=True, kw_only=True):
    topics: tuple[CreatableTopic, ...]
    timeout_ms: Int32 = 60_000
    validate_only: Annotated[Bool, Since(1), Essential] = False


class CreatableTopicConfigs(NamedTuple):
    name: str
    value: str | None
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(NamedTuple):
    name: str
    topic_id: Annotated[UUID, Since(7)] = ZERO_ID
    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(1)] = None
    topic_config_error_code: Annotated[Int16, Since(5), Tag(0)] = 0
    num_partitions: Annotated[Int32, Since(5)] = -1
    replication_factor: Annotated[Int16, Since(5)] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, Since(5)] = ()


class CreateTopicsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: tuple[CreatableTopicResult, ...] = ()
