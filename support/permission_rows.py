"""The permission matrix: for each API, requests and the permissions that they need.

A row has the permissions that allow a request (`right`) and ones that do not suffice (`wrong`). Requests have no
lasting effect: they name resources that do not exist, have a stale epoch, or only validate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from barnabas.errors import ErrorCode
from barnabas.security.acl.model import Operation, PatternType, Permission, ResourceType
from barnabas.wire.apis import ApiKey
from support.permissions import (
    ABSENT,
    BATCH,
    GROUP,
    TOPIC,
    TRANSACTIONAL_BATCH,
    TRANSACTIONAL_ID,
    Grant,
    Ids,
    cluster,
    group,
    topic,
    transaction,
)

Fields = Mapping[str, Any]
BROKER, TOPIC_CONFIG = 4, 2
"""Resource types of settings."""


class Row(NamedTuple):
    key: ApiKey
    fields: Fields | Callable[[Ids], Fields]
    right: tuple[Grant, ...]
    wrong: tuple[Grant, ...]
    denied: ErrorCode | None
    """The error without permission. None: the response leaves something out, or the API needs no permission."""
    version: int | None = None
    label: str = ""
    hidden: str | None = None
    """The entry of Summary.names that is left out without permission."""
    is_kafka_4: bool = False
    """Whether Kafka 3.9 with ZooKeeper does not have the API."""

    @property
    def name(self) -> str:
        return f"{self.key.name.lower()}{'-' + self.label if self.label else ''}"

    def build(self, ids: Ids) -> Fields:
        return self.fields(ids) if callable(self.fields) else self.fields


READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE = Operation.ALTER, Operation.DESCRIBE
CLUSTER_ACTION, IDEMPOTENT_WRITE = Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def produce(records: bytes, transactional_id: str | None = None) -> Fields:
    partition = {"index": 0, "records": records}
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 10_000,
        "topic_data": [{"name": TOPIC, "partition_data": [partition]}],
    }


def fetch(**fields: Any) -> Fields:
    return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, **fields}


PARTITION = {"partition": 0, "partition_max_bytes": 1000}
COMMITTED = {"partition_index": 0, "committed_offset": 0}
PRODUCER = {"producer_id": 4711, "producer_epoch": 0}
STALE = {"controller_id": 1, "controller_epoch": 0, "broker_epoch": 0}
USER_BOB = Grant(ResourceType.USER, "User:bob", Operation.CREATE_TOKENS)
ANY_ACL = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": "User:nobody",
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}
NEW_ACL = {
    "resource_type": ResourceType.TOPIC,
    "resource_name": "nothing",
    "principal": "User:nobody",
    "host": "*",
    "operation": READ,
    "permission_type": Permission.ALLOW,
}
MARKER = {
    **PRODUCER,
    "transaction_result": False,
    "topics": [{"name": ABSENT, "partition_indexes": [0]}],
    "coordinator_epoch": 0,
}


def joined(**fields: Any) -> Fields:
    return {"group_id": GROUP, "member_id": "member", "generation_id": 1, **fields}


def join_group() -> Fields:
    return {
        "group_id": GROUP,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }


def alter_config(resource_type: int, name: str, setting: str, value: str) -> Fields:
    configs = [{"name": setting, "value": value}]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": configs}
    return {"resources": [resource], "validate_only": True}


def change_config(resource_type: int, name: str, setting: str, value: str) -> Fields:
    configs = [{"name": setting, "config_operation": 0, "value": value}]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": configs}
    return {"resources": [resource], "validate_only": True}


def describe_config(resource_type: int, name: str) -> Fields:
    keys = ["log.dir", "retention.ms"]
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": keys}
    return {"resources": [resource]}


def offset_fetch(topics: list[Fields] | None) -> Fields:
    return {"groups": [{"group_id": GROUP, "topics": topics}]}


ROWS: tuple[Row, ...] = (
    Row(ApiKey.PRODUCE, produce(BATCH), (topic(WRITE),), (topic(READ),), NO_TOPIC),
    Row(
        ApiKey.PRODUCE,
        produce(TRANSACTIONAL_BATCH, TRANSACTIONAL_ID),
        (topic(WRITE), transaction(WRITE)),
        (topic(WRITE), transaction(DESCRIBE)),
        NO_TRANSACTION,
        label="transactional",
    ),
    Row(
        ApiKey.PRODUCE,
        produce(TRANSACTIONAL_BATCH, TRANSACTIONAL_ID),
        (topic(WRITE), transaction(WRITE)),
        (topic(DESCRIBE), transaction(WRITE)),
        None,
        label="transactional-topic",
    ),
    Row(
        ApiKey.FETCH,
        lambda ids: fetch(topics=[{"topic_id": ids.topic_id, "partitions": [PARTITION]}]),
        (topic(READ),),
        (topic(DESCRIBE),),
        NO_TOPIC,
    ),
    Row(
        ApiKey.FETCH,
        fetch(topics=[{"topic": TOPIC, "partitions": [PARTITION]}]),
        (topic(READ),),
        (topic(WRITE),),
        NO_TOPIC,
        version=11,
        label="by-name",
    ),
    Row(
        ApiKey.FETCH,
        fetch(topics=[{"topic": TOPIC, "partitions": [PARTITION]}], session_epoch=0),
        (topic(READ),),
        (topic(WRITE),),
        NO_TOPIC,
        version=12,
        label="session",
    ),
    Row(
        ApiKey.FETCH,
        fetch(topics=[{"topic": TOPIC, "partitions": [PARTITION]}], replica_id=7),
        (cluster(CLUSTER_ACTION),),
        (topic(READ), cluster(ALTER)),
        NO_TOPIC,
        version=11,
        label="follower",
    ),
    Row(
        ApiKey.LIST_OFFSETS,
        {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
        (topic(DESCRIBE),),
        (topic(CREATE),),
        NO_TOPIC,
    ),
    Row(
        ApiKey.LIST_OFFSETS,
        {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
        (topic(DESCRIBE),),
        (topic(CREATE),),
        NO_TOPIC,
        version=0,
        label="v0",
    ),
    Row(
        ApiKey.METADATA,
        {
            "topics": [{"name": TOPIC}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
        (topic(DESCRIBE),),
        (topic(CREATE),),
        NO_TOPIC,
    ),
    Row(
        ApiKey.METADATA,
        lambda ids: {"topics": [{"topic_id": ids.topic_id}], "allow_auto_topic_creation": False},
        (topic(DESCRIBE),),
        (topic(CREATE),),
        NO_TOPIC,
        label="by-id",
    ),
    Row(
        ApiKey.METADATA,
        {"topics": None},
        (topic(DESCRIBE),),
        (topic(CREATE),),
        None,
        label="all",
        hidden=f"name={TOPIC}",
    ),
    Row(
        ApiKey.METADATA,
        {"topics": [], "include_cluster_authorized_operations": True},
        (cluster(DESCRIBE), cluster(IDEMPOTENT_WRITE)),
        (cluster(CREATE),),
        None,
        version=10,
        label="cluster-operations",
        hidden=f"cluster_authorized_operations={1 << DESCRIBE | 1 << IDEMPOTENT_WRITE}",
    ),
    Row(
        ApiKey.METADATA,
        {"topics": [{"name": "automatic"}], "allow_auto_topic_creation": True},
        (topic(DESCRIBE, "automatic"), topic(CREATE, "automatic")),
        (topic(DESCRIBE, "automatic"), topic(ALTER, "automatic")),
        NO_TOPIC,
        version=8,
        label="creation",
    ),
    *(
        Row(key, fields, (cluster(CLUSTER_ACTION),), (cluster(ALTER),), NO_CLUSTER)
        for key, fields in (
            (ApiKey.LEADER_AND_ISR, STALE),
            (ApiKey.STOP_REPLICA, STALE),
            (ApiKey.UPDATE_METADATA, STALE),
            (ApiKey.CONTROLLED_SHUTDOWN, {"broker_id": 1, "broker_epoch": 0}),
            (ApiKey.ALTER_PARTITION, {"broker_id": 1, "broker_epoch": 0}),
            (ApiKey.ALLOCATE_PRODUCER_IDS, {"broker_id": 1, "broker_epoch": 0}),
        )
    ),
    Row(
        ApiKey.OFFSET_COMMIT,
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [COMMITTED]}]},
        (group(READ), topic(READ)),
        (group(DESCRIBE), topic(READ)),
        NO_GROUP,
    ),
    Row(
        ApiKey.OFFSET_COMMIT,
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [COMMITTED]}]},
        (group(READ), topic(READ)),
        (group(READ), topic(DESCRIBE)),
        None,
        label="topic",
    ),
    Row(
        ApiKey.OFFSET_COMMIT,
        {"group_id": "registry", "topics": [{"name": TOPIC, "partitions": [COMMITTED]}]},
        (group(READ, "registry"), topic(READ)),
        (group(DESCRIBE, "registry"), topic(READ)),
        NO_GROUP,
        version=0,
        label="v0",
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        offset_fetch([{"name": TOPIC, "partition_indexes": [0]}]),
        (group(DESCRIBE), topic(DESCRIBE)),
        (topic(DESCRIBE),),
        NO_GROUP,
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        offset_fetch([{"name": TOPIC, "partition_indexes": [0]}]),
        (group(DESCRIBE), topic(DESCRIBE)),
        (group(DESCRIBE), topic(CREATE)),
        None,
        label="topic",
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        offset_fetch(None),
        (group(DESCRIBE), topic(DESCRIBE)),
        (group(DESCRIBE), topic(CREATE)),
        None,
        label="all",
        hidden=f"name={TOPIC}",
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        (group(DESCRIBE), topic(DESCRIBE)),
        (topic(DESCRIBE),),
        NO_GROUP,
        version=1,
        label="v1",
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        {"group_id": "registry", "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        (group(DESCRIBE, "registry"), topic(DESCRIBE)),
        (topic(DESCRIBE),),
        NO_GROUP,
        version=0,
        label="v0",
    ),
    Row(
        ApiKey.FIND_COORDINATOR,
        {"key_type": 0, "coordinator_keys": [GROUP]},
        (group(DESCRIBE),),
        (topic(DESCRIBE),),
        NO_GROUP,
    ),
    Row(
        ApiKey.FIND_COORDINATOR,
        {"key_type": 1, "coordinator_keys": [TRANSACTIONAL_ID]},
        (transaction(DESCRIBE),),
        (group(DESCRIBE, TRANSACTIONAL_ID),),
        NO_TRANSACTION,
        label="transaction",
    ),
    Row(
        ApiKey.FIND_COORDINATOR,
        {"key_type": 2, "coordinator_keys": ["share"]},
        (cluster(CLUSTER_ACTION),),
        (cluster(DESCRIBE), group(READ, "share")),
        NO_CLUSTER,
        label="share",
    ),
    Row(ApiKey.JOIN_GROUP, join_group(), (group(READ),), (group(DESCRIBE),), NO_GROUP),
    Row(ApiKey.HEARTBEAT, joined(), (group(READ),), (group(DESCRIBE),), NO_GROUP),
    Row(
        ApiKey.LEAVE_GROUP,
        {"group_id": GROUP, "members": [{"member_id": "member"}]},
        (group(READ),),
        (group(DELETE),),
        NO_GROUP,
    ),
    Row(
        ApiKey.SYNC_GROUP,
        joined(protocol_type="consumer", protocol_name="range"),
        (group(READ),),
        (group(DESCRIBE),),
        NO_GROUP,
    ),
    Row(
        ApiKey.DESCRIBE_GROUPS,
        {"groups": [GROUP], "include_authorized_operations": True},
        (group(DESCRIBE),),
        (group(CREATE),),
        NO_GROUP,
    ),
    Row(
        ApiKey.LIST_GROUPS,
        {},
        (group(DESCRIBE),),
        (topic(DESCRIBE),),
        None,
        hidden=f"group_id={GROUP}",
    ),
    Row(
        ApiKey.LIST_GROUPS,
        {},
        (cluster(DESCRIBE),),
        (cluster(CREATE),),
        None,
        label="cluster",
        hidden=f"group_id={GROUP}",
    ),
    Row(
        ApiKey.DELETE_GROUPS,
        {"groups_names": [ABSENT]},
        (group(DELETE, ABSENT),),
        (group(READ, ABSENT),),
        NO_GROUP,
    ),
    Row(
        ApiKey.OFFSET_DELETE,
        {"group_id": GROUP, "topics": [{"name": ABSENT, "partitions": [{"partition_index": 0}]}]},
        (group(DELETE), topic(READ, ABSENT)),
        (group(READ), topic(READ, ABSENT)),
        NO_GROUP,
    ),
    Row(
        ApiKey.OFFSET_DELETE,
        {"group_id": GROUP, "topics": [{"name": ABSENT, "partitions": [{"partition_index": 0}]}]},
        (group(DELETE), topic(READ, ABSENT)),
        (group(DELETE), topic(DESCRIBE, ABSENT)),
        None,
        label="topic",
    ),
    Row(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, (), (), None, version=1),
    Row(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b"x"}, (), (), None),
    Row(
        ApiKey.API_VERSIONS,
        {"client_software_name": "matrix", "client_software_version": "1"},
        (),
        (),
        None,
    ),
    Row(
        ApiKey.CREATE_TOPICS,
        {
            "topics": [{"name": "made", "num_partitions": 1, "replication_factor": 1}],
            "validate_only": True,
        },
        (topic(CREATE, "made"),),
        (topic(ALTER, "made"),),
        NO_TOPIC,
    ),
    Row(
        ApiKey.CREATE_TOPICS,
        {
            "topics": [{"name": "made", "num_partitions": 1, "replication_factor": 1}],
            "validate_only": True,
        },
        (cluster(CREATE), topic(DESCRIBE_CONFIGS, "made")),
        (cluster(ALTER), topic(DESCRIBE_CONFIGS, "made")),
        NO_TOPIC,
        label="cluster",
    ),
    Row(
        ApiKey.DELETE_TOPICS,
        {"topics": [{"name": ABSENT}], "timeout_ms": 1000},
        (topic(DELETE, ABSENT),),
        (topic(ALTER, ABSENT),),
        NO_TOPIC,
    ),
    Row(
        ApiKey.DELETE_TOPICS,
        lambda ids: {"topics": [{"topic_id": ids.topic_id}], "timeout_ms": 1000},
        (),
        (topic(ALTER),),
        NO_TOPIC,
        label="by-id",
    ),
    Row(
        ApiKey.DELETE_RECORDS,
        {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout_ms": 1000,
        },
        (topic(DELETE),),
        (topic(WRITE),),
        NO_TOPIC,
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": None, "transaction_timeout_ms": 1000},
        (topic(WRITE),),
        (topic(READ),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": None, "transaction_timeout_ms": 1000},
        (cluster(IDEMPOTENT_WRITE),),
        (
            topic(WRITE),
            Grant(ResourceType.TOPIC, "*", WRITE, Permission.DENY),
        ),
        NO_CLUSTER,
        label="cluster",
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        {"transactional_id": TRANSACTIONAL_ID, "transaction_timeout_ms": 600_000},
        (transaction(WRITE),),
        (transaction(DESCRIBE), cluster(IDEMPOTENT_WRITE)),
        NO_TRANSACTION,
        label="transactional",
    ),
    Row(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        (topic(DESCRIBE),),
        (topic(CREATE),),
        NO_TOPIC,
    ),
    Row(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        (cluster(CLUSTER_ACTION),),
        (cluster(DESCRIBE),),
        NO_TOPIC,
        label="broker",
    ),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {
            "v3_and_below_transactional_id": TRANSACTIONAL_ID,
            "v3_and_below_producer_id": 4711,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
        (transaction(WRITE), topic(WRITE)),
        (transaction(DESCRIBE), topic(WRITE)),
        NO_TRANSACTION,
        version=3,
    ),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {
            "v3_and_below_transactional_id": TRANSACTIONAL_ID,
            "v3_and_below_producer_id": 4711,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
        (transaction(WRITE), topic(WRITE)),
        (transaction(WRITE), topic(READ)),
        None,
        version=3,
        label="topic",
    ),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {
            "transactions": [
                {
                    **PRODUCER,
                    "transactional_id": TRANSACTIONAL_ID,
                    "verify_only": True,
                    "topics": [{"name": TOPIC, "partitions": [0]}],
                }
            ]
        },
        (cluster(CLUSTER_ACTION),),
        (transaction(WRITE), topic(WRITE)),
        NO_CLUSTER,
        label="broker",
    ),
    Row(
        ApiKey.ADD_OFFSETS_TO_TXN,
        {**PRODUCER, "transactional_id": TRANSACTIONAL_ID, "group_id": GROUP},
        (transaction(WRITE), group(READ)),
        (transaction(DESCRIBE), group(READ)),
        NO_TRANSACTION,
    ),
    Row(
        ApiKey.ADD_OFFSETS_TO_TXN,
        {**PRODUCER, "transactional_id": TRANSACTIONAL_ID, "group_id": GROUP},
        (transaction(WRITE), group(READ)),
        (transaction(WRITE), group(DESCRIBE)),
        None,
        label="group",
    ),
    Row(
        ApiKey.END_TXN,
        {**PRODUCER, "transactional_id": TRANSACTIONAL_ID, "committed": True},
        (transaction(WRITE),),
        (transaction(DESCRIBE),),
        NO_TRANSACTION,
    ),
    Row(
        ApiKey.WRITE_TXN_MARKERS,
        {"markers": [MARKER]},
        (cluster(CLUSTER_ACTION),),
        (cluster(DESCRIBE),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.WRITE_TXN_MARKERS,
        {"markers": [MARKER]},
        (cluster(ALTER),),
        (topic(WRITE, ABSENT),),
        NO_CLUSTER,
        label="operator",
    ),
    *(
        Row(
            ApiKey.TXN_OFFSET_COMMIT,
            {
                **PRODUCER,
                "transactional_id": TRANSACTIONAL_ID,
                "group_id": GROUP,
                "topics": [{"name": TOPIC, "partitions": [COMMITTED]}],
            },
            (transaction(WRITE), group(READ), topic(READ)),
            wrong,
            denied,
            label=label,
        )
        for label, wrong, denied in (
            ("", (group(READ), topic(READ)), NO_TRANSACTION),
            ("group", (transaction(WRITE), group(DESCRIBE), topic(READ)), None),
            ("topic", (transaction(WRITE), group(READ), topic(WRITE)), None),
        )
    ),
    Row(
        ApiKey.DESCRIBE_ACLS,
        ANY_ACL,
        (cluster(DESCRIBE),),
        (cluster(DESCRIBE_CONFIGS),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.CREATE_ACLS,
        {"creations": [NEW_ACL]},
        (cluster(ALTER),),
        (cluster(ALTER_CONFIGS),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.DELETE_ACLS,
        {"filters": [{**ANY_ACL, "principal_filter": "User:somebody"}]},
        (cluster(ALTER),),
        (cluster(DESCRIBE),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.DESCRIBE_CONFIGS,
        describe_config(TOPIC_CONFIG, TOPIC),
        (topic(DESCRIBE_CONFIGS),),
        (topic(DESCRIBE), cluster(DESCRIBE_CONFIGS)),
        NO_TOPIC,
    ),
    Row(
        ApiKey.DESCRIBE_CONFIGS,
        lambda ids: describe_config(BROKER, str(ids.broker_id)),
        (cluster(DESCRIBE_CONFIGS),),
        (cluster(DESCRIBE), topic(DESCRIBE_CONFIGS)),
        NO_CLUSTER,
        label="broker",
    ),
    Row(
        ApiKey.ALTER_CONFIGS,
        alter_config(TOPIC_CONFIG, TOPIC, "retention.ms", "1000"),
        (topic(ALTER_CONFIGS),),
        (topic(ALTER), cluster(ALTER_CONFIGS)),
        NO_TOPIC,
    ),
    Row(
        ApiKey.ALTER_CONFIGS,
        alter_config(BROKER, "", "log.retention.ms", "1000"),
        (cluster(ALTER_CONFIGS),),
        (cluster(ALTER),),
        NO_CLUSTER,
        label="broker",
    ),
    Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        change_config(TOPIC_CONFIG, TOPIC, "retention.ms", "1000"),
        (topic(ALTER_CONFIGS),),
        (topic(ALTER), cluster(ALTER_CONFIGS)),
        NO_TOPIC,
    ),
    Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        change_config(BROKER, "", "log.retention.ms", "1000"),
        (cluster(ALTER_CONFIGS),),
        (cluster(DESCRIBE_CONFIGS),),
        NO_CLUSTER,
        label="broker",
    ),
    Row(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": ABSENT, "partitions": [0]}]}]},
        (cluster(ALTER),),
        (cluster(DESCRIBE), topic(ALTER, ABSENT)),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.DESCRIBE_LOG_DIRS,
        {"topics": []},
        (cluster(DESCRIBE),),
        (topic(DESCRIBE),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.CREATE_PARTITIONS,
        {"topics": [{"name": TOPIC, "count": 2}], "timeout_ms": 1000, "validate_only": True},
        (topic(ALTER),),
        (topic(CREATE), cluster(ALTER)),
        NO_TOPIC,
    ),
    Row(
        ApiKey.CREATE_DELEGATION_TOKEN,
        {"owner_principal_type": "User", "owner_principal_name": "bob"},
        (USER_BOB,),
        (USER_BOB._replace(operation=Operation.DESCRIBE_TOKENS),),
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ),
    Row(ApiKey.RENEW_DELEGATION_TOKEN, {"hmac": b"none", "renew_period_ms": 1}, (), (), None),
    Row(
        ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": b"none", "expiry_time_period_ms": 1}, (), (), None
    ),
    Row(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        {"owners": [{"principal_type": "User", "principal_name": "bob"}]},
        (USER_BOB._replace(operation=Operation.DESCRIBE_TOKENS),),
        (),
        None,
    ),
    Row(
        ApiKey.ELECT_LEADERS,
        {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}], "timeout_ms": 1000},
        (cluster(ALTER),),
        (cluster(CLUSTER_ACTION), topic(ALTER)),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        {
            "timeout_ms": 1000,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}],
        },
        (cluster(ALTER),),
        (topic(ALTER),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        {"timeout_ms": 1000, "topics": None},
        (cluster(DESCRIBE),),
        (topic(DESCRIBE),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        {"components": [], "strict": False},
        (cluster(DESCRIBE_CONFIGS),),
        (cluster(DESCRIBE),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.ALTER_CLIENT_QUOTAS,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "client-id", "entity_name": "app"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
        (cluster(ALTER_CONFIGS),),
        (cluster(ALTER),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        {"users": [{"name": "nobody"}]},
        (cluster(DESCRIBE),),
        (cluster(DESCRIBE_CONFIGS),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [{"name": "nobody", "mechanism": 1}]},
        (cluster(ALTER),),
        (cluster(ALTER_CONFIGS),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.UPDATE_FEATURES,
        {"timeout_ms": 1000, "feature_updates": [], "validate_only": True},
        (cluster(ALTER),),
        (cluster(ALTER_CONFIGS),),
        NO_CLUSTER,
    ),
    Row(
        ApiKey.ENVELOPE,
        {"request_data": b"x", "request_principal": b"x", "client_host_address": b"\x7f\0\0\1"},
        (),
        (cluster(CLUSTER_ACTION),),
        None,
    ),
    Row(
        ApiKey.DESCRIBE_CLUSTER,
        {"include_cluster_authorized_operations": True},
        (cluster(DESCRIBE),),
        (cluster(CREATE),),
        None,
        hidden=f"cluster_authorized_operations={1 << DESCRIBE}",
    ),
    Row(
        ApiKey.DESCRIBE_PRODUCERS,
        {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        (topic(READ),),
        (topic(DESCRIBE),),
        NO_TOPIC,
    ),
    Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": [TRANSACTIONAL_ID]},
        (transaction(DESCRIBE),),
        (topic(DESCRIBE),),
        NO_TRANSACTION,
    ),
    Row(
        ApiKey.LIST_TRANSACTIONS,
        {},
        (transaction(DESCRIBE),),
        (group(DESCRIBE, TRANSACTIONAL_ID),),
        None,
        hidden=f"transactional_id={TRANSACTIONAL_ID}",
    ),
    Row(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        {"group_id": ABSENT, "member_id": "m", "member_epoch": 3},
        (group(READ, ABSENT),),
        (group(DESCRIBE, ABSENT),),
        NO_GROUP,
        is_kafka_4=True,
    ),
    Row(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        {
            "group_id": ABSENT,
            "member_id": "m",
            "member_epoch": 3,
            "subscribed_topic_names": [TOPIC],
        },
        (group(READ, ABSENT), topic(DESCRIBE)),
        (group(READ, ABSENT), topic(CREATE)),
        None,
        label="topic",
        is_kafka_4=True,
    ),
    Row(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        {"group_ids": [ABSENT], "include_authorized_operations": True},
        (group(DESCRIBE, ABSENT),),
        (group(CREATE, ABSENT),),
        NO_GROUP,
        is_kafka_4=True,
    ),
    Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": [{"name": TOPIC}]},
        (topic(DESCRIBE),),
        (topic(CREATE),),
        NO_TOPIC,
        is_kafka_4=True,
    ),
    Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": []},
        (topic(DESCRIBE),),
        (topic(CREATE),),
        None,
        label="all",
        hidden=f"name={TOPIC}",
        is_kafka_4=True,
    ),
)
