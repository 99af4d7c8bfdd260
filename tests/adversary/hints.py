"""Meanings of request fields: values that name entities of the attacked broker.

Without a hint, a field gets a value of its type. A hint makes an attack pass the first check.
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.batch.records import Record, build_batch
from barnabas.model import ZERO_ID
from tests.adversary.schema import Field

BROKER_ID = 1
CONTROLLER_EPOCH = 1
TOPIC, DOOMED_TOPIC = "orders", "doomed"
GROUP, EMPTY_GROUP = "readers", "committers"
BATCH = build_batch([Record(0, 1_700_000_000_000, None, b"v")])


class Entities(NamedTuple):
    """Values assigned by the broker."""

    topic_id: UUID
    member_id: str
    generation: int
    broker_epoch: int
    broker_port: int


UNSET = object()
JOINED = count()

# A pair of class and field comes before a field alone.
HINTS: dict[tuple[str, str] | str, Any] = {
    # topics and partitions
    "topic": TOPIC,
    "name": TOPIC,
    "topic_name": TOPIC,
    "resource_name": TOPIC,
    "resource_type": 2,
    "topic_names": DOOMED_TOPIC,
    ("DeleteTopicState", "name"): DOOMED_TOPIC,
    ("DeleteTopicState", "topic_id"): ZERO_ID,
    ("MetadataRequestTopic", "topic_id"): ZERO_ID,
    ("CreatableTopic", "name"): "new-topic",
    ("CreatableTopicConfig", "name"): "retention.ms",
    ("CreatableTopicConfig", "value"): "1000",
    "configuration_keys": "retention.ms",
    "validate_only": True,
    "num_partitions": -1,
    "delete_partitions": False,
    "delete_partition": False,
    "is_kraft_controller": False,
    "is_new": False,
    "replication_factor": -1,
    "count": 2000,
    # groups
    "group_id": GROUP,
    "groups": GROUP,
    "groups_names": GROUP,
    "key": GROUP,
    "coordinator_keys": GROUP,
    "group_ids": GROUP,
    ("OffsetCommitRequest", "group_id"): EMPTY_GROUP,
    ("OffsetCommitRequest", "member_id"): "",
    ("OffsetCommitRequest", "group_instance_id"): None,
    ("OffsetCommitRequest", "generation_id_or_member_epoch"): -1,
    ("TxnOffsetCommitRequest", "group_id"): EMPTY_GROUP,
    ("TxnOffsetCommitRequest", "member_id"): "",
    ("TxnOffsetCommitRequest", "generation_id"): -1,
    ("TxnOffsetCommitRequest", "transactional_id"): "transaction",
    ("TxnOffsetCommitRequest", "producer_id"): 1,
    ("TxnOffsetCommitRequest", "producer_epoch"): 0,
    ("AddPartitionsToTxnTransaction", "transactional_id"): "transaction",
    ("AddPartitionsToTxnTransaction", "producer_id"): 1,
    ("AddPartitionsToTxnTransaction", "producer_epoch"): 0,
    "v3_and_below_transactional_id": "transaction",
    "v3_and_below_producer_id": 1,
    "v3_and_below_producer_epoch": 0,
    ("AddOffsetsToTxnRequest", "transactional_id"): "transaction",
    ("AddOffsetsToTxnRequest", "producer_id"): 1,
    ("AddOffsetsToTxnRequest", "producer_epoch"): 0,
    ("EndTxnRequest", "transactional_id"): "transaction",
    ("EndTxnRequest", "producer_id"): 1,
    ("EndTxnRequest", "producer_epoch"): 0,
    ("WritableTxnMarker", "producer_id"): 1,
    ("WritableTxnMarker", "producer_epoch"): 0,
    # A separate group for each request: absent members would delay the next join.
    ("JoinGroupRequest", "group_id"): lambda: f"joiners-{next(JOINED)}",
    ("JoinGroupRequest", "member_id"): "",
    ("JoinGroupRequestProtocol", "name"): "range",
    ("MemberIdentity", "member_id"): "nobody",
    ("LeaveGroupRequest", "member_id"): "nobody",
    ("OffsetFetchRequestGroup", "member_id"): None,
    "member_epoch": -1,
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocol_name": "range",
    "states_filter": "Stable",
    "types_filter": "classic",
    "session_timeout_ms": 6000,
    "rebalance_timeout_ms": 100,
    "retention_time_ms": -1,
    # records
    "acks": 1,
    "records": BATCH,
    "transactional_id": None,
    "transaction_timeout_ms": 1000,
    "producer_id": -1,
    "producer_epoch": -1,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "session_epoch": -1,
    "timestamp": -1,
    "max_num_offsets": 1,
    "replica_id": -1,
    "timeout_ms": 1000,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
    "committed_metadata": "",
    # the cluster
    "controller_id": BROKER_ID,
    # The controller's epoch is checked first, so that the rest of these requests does no harm.
    "controller_epoch": 0,
    "broker_id": BROKER_ID,
    "id": BROKER_ID,
    "host": "127.0.0.1",
    "v0_host": "127.0.0.1",
    "listener": "PLAINTEXT",
    "security_protocol": 0,
    # This broker itself must not be shut down.
    ("ControlledShutdownRequest", "broker_id"): 99,
    "broker_ids": BROKER_ID,
    "leader": BROKER_ID,
    "isr": BROKER_ID,
    "replicas": BROKER_ID,
    "new_isr": BROKER_ID,
    "endpoint_type": 1,
    "feature": "new.feature",
    "max_version_level": 1,
    "upgrade_type": 1,
    "response_partition_limit": 2000,
    "subscribed_topic_names": TOPIC,
}

CURRENT_EPOCH: dict[tuple[str, str] | str, Any] = {
    ("LeaderAndIsrRequest", "controller_epoch"): CONTROLLER_EPOCH,
    ("UpdateMetadataRequest", "controller_epoch"): CONTROLLER_EPOCH,
}
"""Requests that describe the existing state may carry the controller's epoch: they change nothing."""

UNLESS_VALIDATE_ONLY = {"replication_factor": 99}
"""Version 0 of CreateTopics has no validate_only: with too many replicas nothing is created."""

WAITS = ("max_wait_ms", "timeout_ms", "session_timeout_ms", "rebalance_timeout_ms")
"""A large number in these fields makes the broker wait, which is not a defect."""

EMPTY_UNLESS_ATTACKED = (
    "forgotten_topics_data",
    "assignments",
    "configs",
    "adding_replicas",
    "removing_replicas",
    "offline_replicas",
    "live_leaders",
    "configuration_keys",
    "states_filter",
    "types_filter",
)

IDENTIFYING_NUMBERS = (
    "partition",
    "partition_index",
    "partition_indexes",
    "partitions",
    "index",
    "broker_id",
    "broker_ids",
    "isr",
    "replicas",
    "new_isr",
    "id",
)


def existing(field: Field, entities: Entities, *, is_current: bool) -> Any:
    """A value for the field that names something the broker has."""
    both = HINTS | CURRENT_EPOCH if is_current else HINTS
    found = both.get((field.owner, field.name), both.get(field.name, UNSET))
    if callable(found):
        return found()
    if found is not UNSET:
        return found
    match field.name:
        case "member_id":
            return entities.member_id
        case "broker_epoch":
            return entities.broker_epoch
        case "port" | "v0_port":
            return entities.broker_port
        case "generation_id":
            return entities.generation
        case _:
            return of_its_type(field, entities)


def of_its_type(field: Field, entities: Entities) -> Any:
    if field.type is UUID:
        return entities.topic_id
    if field.type is str:
        return None if field.is_nullable else "text"
    if field.type is bool:
        return True  # requests more data, unless a hint says otherwise
    return b"" if field.type is bytes else 0
