"""The table of Kafka's APIs: keys, versions and message classes.

The files of an API carry its name. ApiKey.ELECT_LEADERS, for example:

    wire/messages/elect_leaders.py      its schema: ElectLeadersRequest, ElectLeadersResponse
    broker/handlers/elect_leaders.py    its handler, which broker/router.py calls

Versions are those of Kafka 3.9, with all old ones: some clients silently lose features if the minimum version rises.
ConsumerGroupHeartbeat also has version 1.
Message classes are imported on first use, so that a short command does not load messages that it never sends.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from barnabas.wire.codec import Message


class ApiKey(IntEnum):
    """Every API of Kafka 3.9. APIS has those that Barnabas serves."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CLIENT_METRICS_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87


class Api(NamedTuple):
    """An API that brokers serve, and its versions."""

    key: ApiKey
    versions: range
    flexible_since: int
    """The first version with compact sizes and tagged fields; above the last version if none has them."""

    @property
    def name(self) -> str:
        """Kafka's name, such as ElectLeaders."""
        return api_name(self.key)

    @property
    def module(self) -> str:
        """Name of the files with its schema and its handler, such as elect_leaders."""
        return self.key.name.lower()

    @property
    def request(self) -> type[Message]:
        return message_class(self.module, self.name + "Request")

    @property
    def response(self) -> type[Message]:
        return message_class(self.module, self.name + "Response")


@cache
def message_class(module: str, name: str) -> type[Message]:
    found: type[Message] = getattr(import_module(f"barnabas.wire.messages.{module}"), name)
    return found


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, range(12), 9),
        Api(ApiKey.FETCH, range(18), 12),
        Api(ApiKey.LIST_OFFSETS, range(10), 6),
        Api(ApiKey.METADATA, range(13), 9),
        Api(ApiKey.LEADER_AND_ISR, range(8), 4),
        Api(ApiKey.STOP_REPLICA, range(5), 2),
        Api(ApiKey.UPDATE_METADATA, range(9), 6),
        Api(ApiKey.CONTROLLED_SHUTDOWN, range(4), 3),
        Api(ApiKey.OFFSET_COMMIT, range(10), 8),
        Api(ApiKey.OFFSET_FETCH, range(10), 6),
        Api(ApiKey.FIND_COORDINATOR, range(7), 3),
        Api(ApiKey.JOIN_GROUP, range(10), 6),
        Api(ApiKey.HEARTBEAT, range(5), 4),
        Api(ApiKey.LEAVE_GROUP, range(6), 4),
        Api(ApiKey.SYNC_GROUP, range(6), 4),
        Api(ApiKey.DESCRIBE_GROUPS, range(6), 5),
        Api(ApiKey.LIST_GROUPS, range(6), 3),
        Api(ApiKey.SASL_HANDSHAKE, range(2), 2),
        Api(ApiKey.API_VERSIONS, range(5), 3),
        Api(ApiKey.CREATE_TOPICS, range(8), 5),
        Api(ApiKey.DELETE_TOPICS, range(7), 4),
        Api(ApiKey.DELETE_RECORDS, range(3), 2),
        Api(ApiKey.INIT_PRODUCER_ID, range(6), 2),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, range(5), 4),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, range(6), 3),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, range(5), 3),
        Api(ApiKey.END_TXN, range(5), 3),
        Api(ApiKey.WRITE_TXN_MARKERS, range(2), 1),
        Api(ApiKey.TXN_OFFSET_COMMIT, range(5), 3),
        Api(ApiKey.DESCRIBE_ACLS, range(4), 2),
        Api(ApiKey.CREATE_ACLS, range(4), 2),
        Api(ApiKey.DELETE_ACLS, range(4), 2),
        Api(ApiKey.DESCRIBE_CONFIGS, range(5), 4),
        Api(ApiKey.ALTER_CONFIGS, range(3), 2),
        Api(ApiKey.ALTER_REPLICA_LOG_DIRS, range(3), 2),
        Api(ApiKey.DESCRIBE_LOG_DIRS, range(5), 2),
        Api(ApiKey.SASL_AUTHENTICATE, range(3), 2),
        Api(ApiKey.CREATE_PARTITIONS, range(4), 2),
        Api(ApiKey.CREATE_DELEGATION_TOKEN, range(4), 2),
        Api(ApiKey.RENEW_DELEGATION_TOKEN, range(3), 2),
        Api(ApiKey.EXPIRE_DELEGATION_TOKEN, range(3), 2),
        Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, range(4), 2),
        Api(ApiKey.DELETE_GROUPS, range(3), 2),
        Api(ApiKey.ELECT_LEADERS, range(3), 2),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, range(2), 1),
        Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, range(1), 0),
        Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, range(1), 0),
        Api(ApiKey.OFFSET_DELETE, range(1), 1),
        Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, range(2), 1),
        Api(ApiKey.ALTER_CLIENT_QUOTAS, range(2), 1),
        Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, range(1), 0),
        Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, range(1), 0),
        Api(ApiKey.ALTER_PARTITION, range(4), 0),
        Api(ApiKey.UPDATE_FEATURES, range(2), 0),
        Api(ApiKey.ENVELOPE, range(1), 0),
        Api(ApiKey.DESCRIBE_CLUSTER, range(2), 0),
        Api(ApiKey.DESCRIBE_PRODUCERS, range(1), 0),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, range(1), 0),
        Api(ApiKey.LIST_TRANSACTIONS, range(2), 0),
        Api(ApiKey.ALLOCATE_PRODUCER_IDS, range(1), 0),
        Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, range(2), 0),
        Api(ApiKey.CONSUMER_GROUP_DESCRIBE, range(1), 0),
        Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, range(1), 0),
    )
}
"""The APIs that a broker serves. ApiVersions advertises them, so each must have a handler."""


class ApiMessage(Struct, frozen=True, kw_only=True):
    """Base of the requests and responses. Key and versions come from APIS, by the name of the module."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range]
    FLEXIBLE_SINCE: ClassVar[int]

    def __init_subclass__(cls) -> None:
        module = cls.__module__.rpartition(".")[2]
        api = APIS[ApiKey[module.upper()]]
        cls.API_KEY, cls.VERSIONS, cls.FLEXIBLE_SINCE = api.key, api.versions, api.flexible_since


API_NAMES: dict[int, str] = {
    key: "".join(word.capitalize() for word in key.name.split("_")) for key in ApiKey
}
"""Kafka's name of each API by its key."""


def api_name(key: int) -> str:
    """Return the name of an API for log lines; for an unknown key, such as 999, Api999."""
    return API_NAMES.get(key, f"Api{key}")
