"""The API tables: what is served here and what can only be spoken, in which versions, with which classes.

APIS is what ApiVersions advertises, so an entry without a handler would be a promise nobody keeps. What has messages
and no handler yet stands in NOT_YET_SERVED, and serving it means moving its line. Versions are those of Kafka 3.9, from
0 on where 3.9 has them: some clients silently lose features when a minimum is raised. A family's classes are loaded
when first asked for, so that a short command does not pay for messages it never sends.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import NamedTuple

from barnabas.wire.codec import Message


class Api(NamedTuple):
    """One kind of request and its answer."""

    key: int
    name: str
    versions: range
    flexible_since: int
    family: str
    """The file in `messages/` that has its classes."""

    @property
    def request(self) -> type[Message]:
        return message_class(self.family, self.name + "Request")

    @property
    def response(self) -> type[Message]:
        return message_class(self.family, self.name + "Response")


@cache
def message_class(family: str, name: str) -> type[Message]:
    module = import_module(f"barnabas.wire.messages.{family}")
    found: type[Message] = getattr(module, name)
    return found


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(0, "Produce", range(12), 9, "produce"),
        Api(1, "Fetch", range(18), 12, "fetch"),
        Api(2, "ListOffsets", range(10), 6, "offsets"),
        Api(3, "Metadata", range(13), 9, "metadata"),
        Api(4, "LeaderAndIsr", range(8), 4, "leader_and_isr"),
        Api(5, "StopReplica", range(5), 2, "stop_replica"),
        Api(6, "UpdateMetadata", range(9), 6, "update_metadata"),
        Api(7, "ControlledShutdown", range(4), 3, "controlled_shutdown"),
        Api(8, "OffsetCommit", range(10), 8, "group_offsets"),
        Api(9, "OffsetFetch", range(10), 6, "group_offsets"),
        Api(10, "FindCoordinator", range(7), 3, "coordinator"),
        Api(11, "JoinGroup", range(10), 6, "group_membership"),
        Api(12, "Heartbeat", range(5), 4, "group_membership"),
        Api(13, "LeaveGroup", range(6), 4, "group_membership"),
        Api(14, "SyncGroup", range(6), 4, "group_membership"),
        Api(15, "DescribeGroups", range(6), 5, "groups"),
        Api(16, "ListGroups", range(6), 3, "groups"),
        Api(18, "ApiVersions", range(5), 3, "api_versions"),
        Api(19, "CreateTopics", range(8), 5, "topics"),
        Api(20, "DeleteTopics", range(7), 4, "topics"),
        Api(21, "DeleteRecords", range(3), 2, "offsets"),
        Api(22, "InitProducerId", range(6), 2, "produce"),
        Api(23, "OffsetForLeaderEpoch", range(5), 4, "offsets"),
        Api(32, "DescribeConfigs", range(5), 4, "configs"),
        Api(35, "DescribeLogDirs", range(5), 2, "cluster"),
        Api(37, "CreatePartitions", range(4), 2, "create_partitions"),
        Api(42, "DeleteGroups", range(3), 2, "groups"),
        Api(43, "ElectLeaders", range(3), 2, "elect_leaders"),
        Api(47, "OffsetDelete", range(1), 1, "group_offsets"),
        Api(56, "AlterPartition", range(4), 0, "alter_partition"),
        Api(60, "DescribeCluster", range(2), 0, "cluster"),
    )
}

NOT_YET_SERVED: dict[int, Api] = {
    api.key: api
    for api in (
        Api(33, "AlterConfigs", range(3), 2, "alter_configs"),
        Api(44, "IncrementalAlterConfigs", range(2), 1, "alter_configs"),
        Api(45, "AlterPartitionReassignments", range(1), 0, "reassignments"),
        Api(46, "ListPartitionReassignments", range(1), 0, "reassignments"),
        Api(67, "AllocateProducerIds", range(1), 0, "allocate_producer_ids"),
    )
}

SPOKEN: dict[int, Api] = APIS | NOT_YET_SERVED
"""Every API whose messages can be written and read here."""


def api_name(key: int) -> str:
    """For log lines: never fails."""
    return API_NAMES.get(key, f"Api{key}")


API_NAMES: dict[int, str] = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    4: "LeaderAndIsr",
    5: "StopReplica",
    6: "UpdateMetadata",
    7: "ControlledShutdown",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    34: "AlterReplicaLogDirs",
    35: "DescribeLogDirs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    42: "DeleteGroups",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    47: "OffsetDelete",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials",
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    55: "DescribeQuorum",
    56: "AlterPartition",
    57: "UpdateFeatures",
    58: "Envelope",
    59: "FetchSnapshot",
    60: "DescribeCluster",
    61: "DescribeProducers",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    65: "DescribeTransactions",
    66: "ListTransactions",
    67: "AllocateProducerIds",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    70: "ControllerRegistration",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    73: "AssignReplicasToDirs",
    74: "ListClientMetricsResources",
    75: "DescribeTopicPartitions",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    82: "UpdateRaftVoter",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
}
"""Every API of release 3.9, spoken here or not."""
