from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.wire.apis import APIS, Api, ApiKey, api_name


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_table_matches_message_classes(api: Api) -> None:
    for cls in (api.request, api.response):
        assert api.key == cls.API_KEY
        assert api.versions == cls.VERSIONS
        assert api.flexible_since == cls.FLEXIBLE_SINCE


def test_served_versions_match_kafka_3_9() -> None:
    assert {api.name: api.versions[-1] for api in APIS.values()} == {
        "Produce": 11,
        "Fetch": 17,
        "ListOffsets": 9,
        "Metadata": 12,
        "LeaderAndIsr": 7,
        "StopReplica": 4,
        "UpdateMetadata": 8,
        "ControlledShutdown": 3,
        "OffsetCommit": 9,
        "OffsetFetch": 9,
        "FindCoordinator": 6,
        "JoinGroup": 9,
        "Heartbeat": 4,
        "LeaveGroup": 5,
        "SyncGroup": 5,
        "DescribeGroups": 5,
        "ListGroups": 5,
        "ApiVersions": 4,
        "CreateTopics": 7,
        "DeleteTopics": 6,
        "DeleteRecords": 2,
        "InitProducerId": 5,
        "OffsetForLeaderEpoch": 4,
        "AddPartitionsToTxn": 5,
        "AddOffsetsToTxn": 4,
        "EndTxn": 4,
        "WriteTxnMarkers": 1,
        "DescribeTransactions": 0,
        "ListTransactions": 1,
        "TxnOffsetCommit": 4,
        "DescribeAcls": 3,
        "CreateAcls": 3,
        "DeleteAcls": 3,
        "DescribeConfigs": 4,
        "AlterReplicaLogDirs": 2,
        "DescribeLogDirs": 4,
        "CreatePartitions": 3,
        "DeleteGroups": 2,
        "ElectLeaders": 2,
        "OffsetDelete": 0,
        "AlterPartitionReassignments": 0,
        "ListPartitionReassignments": 0,
        "AlterPartition": 3,
        "UpdateFeatures": 1,
        "Envelope": 0,
        "DescribeCluster": 1,
        "DescribeProducers": 0,
        "AllocateProducerIds": 0,
        "ConsumerGroupHeartbeat": 1,  # of Kafka 4
        "ConsumerGroupDescribe": 0,
        "DescribeTopicPartitions": 0,
        "AlterConfigs": 2,
        "IncrementalAlterConfigs": 1,
        "DescribeClientQuotas": 1,
        "AlterClientQuotas": 1,
        "SaslHandshake": 1,
        "SaslAuthenticate": 2,
        "DescribeUserScramCredentials": 0,
        "AlterUserScramCredentials": 0,
        "CreateDelegationToken": 3,
        "RenewDelegationToken": 2,
        "ExpireDelegationToken": 2,
        "DescribeDelegationToken": 3,
    }
    assert all(api.versions[0] == 0 for api in APIS.values())


def test_every_key_has_a_name_for_log_lines() -> None:
    assert api_name(ApiKey.OFFSET_FOR_LEADER_EPOCH) == "OffsetForLeaderEpoch"
    assert api_name(0) == "Produce"
    assert api_name(87) == "ReadShareGroupStateSummary"
    assert api_name(-5) == "Api-5"
    assert sorted(ApiKey) == list(range(88))


def test_table_imports_no_messages() -> None:
    program = (
        "import sys, barnabas.wire.headers;"
        "assert not any('wire.messages' in name for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": "src"})
