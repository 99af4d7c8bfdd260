"""Responses that once differed from Kafka's for the same request. Each test pins Kafka's behaviour."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.batch.header import batch_headers
from barnabas.batch.records import Record, TimestampType, build_batch
from barnabas.errors import ErrorCode
from barnabas.model import ZERO_ID
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.broker import BrokerProcess
from support.command import run
from support.waiting import eventually
from tests.compatibility.raw import TIMESTAMP, Raw, batch_of, fetch_request, values_in

FAR = 4_000_000_000_000


def test_duplicate_topic_is_rejected_for_each_occurrence(raw: Raw) -> None:
    twin = CreatableTopic("twin", 1, 1)
    answer = raw.ask(CreateTopicsRequest(topics=(twin, twin)), CreateTopicsResponse)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST] * 2


def test_last_assignment_of_duplicate_partition_wins(raw: Raw) -> None:
    assignments = (CreatableReplicaAssignment(0, (77,)), CreatableReplicaAssignment(0, (1,)))
    wanted = CreatableTopic("reassigned", -1, -1, assignments)
    answer = raw.ask(
        CreateTopicsRequest(topics=(wanted,), validate_only=True), CreateTopicsResponse
    )
    assert answer.topics[0].error_code == ErrorCode.NONE


def test_create_topics_with_timeout_0_returns_topic_id(raw: Raw) -> None:
    wanted = CreateTopicsRequest(topics=(CreatableTopic("hasty", 1, 1),), timeout_ms=0)
    (result,) = raw.ask(wanted, CreateTopicsResponse).topics
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    eventually(lambda: result.topic_id == raw.topic_id("hasty"), "the topic exists")


def test_delete_topics_response_uses_requested_names(raw: Raw, topic: str) -> None:
    wanted = (DeleteTopicState(topic), DeleteTopicState(topic), DeleteTopicState(None))
    request = DeleteTopicsRequest(topics=wanted, timeout_ms=5000)
    first, second, nameless = raw.ask(request, DeleteTopicsResponse).responses
    assert (first.name, first.topic_id, first.error_code) == (topic, ZERO_ID, ErrorCode.NONE)
    assert second == first
    assert nameless.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_invalid_metadata_request_returns_no_cluster_info(raw: Raw, topic: str) -> None:
    topic_id = raw.topic_id(topic)
    request = MetadataRequest(topics=(MetadataRequestTopic(topic_id, topic),))
    answer = raw.ask(request, MetadataResponse, 10)
    assert (answer.brokers, answer.cluster_id, answer.controller_id) == ((), None, -1)
    assert answer.topics[0].topic_id == topic_id
    assert answer.topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_all_authorized_operations_are_reported(raw: Raw, topic: str) -> None:
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=topic),),
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = raw.ask(request, MetadataResponse, 9)
    assert answer.cluster_authorized_operations == 8096
    assert answer.topics[0].topic_authorized_operations == 3576
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = raw.ask(cluster, DescribeClusterResponse)
    assert response.cluster_authorized_operations == 8096


@pytest.mark.parametrize("rest", [3, 16, 30, 60])
def test_produce_ignores_partial_trailing_batch(raw: Raw, topic: str, rest: int) -> None:
    one = batch_of(b"one")
    assert raw.produce(topic, one + one[:rest]).error_code == ErrorCode.NONE
    assert values_in(raw.fetch(topic, 0)) == [b"one"]


def test_transactional_batch_requires_transactional_id(raw: Raw, topic: str) -> None:
    batch = batch_of(b"x", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    for _ in range(2):  # the second goes through the fast path
        answer = raw.produce(topic, batch)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert raw.list_offset(topic, -1).offset == 0


def test_log_append_time_flag_from_producer_is_cleared(
    raw: Raw, topic: str, new_topic: Callable[..., str]
) -> None:
    batch = batch_of(b"x", timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert raw.produce(topic, batch).error_code == ErrorCode.NONE
    ((_, header),) = batch_headers(raw.fetch(topic, 0).records or b"")
    assert not header.is_log_append_time
    assert header.max_timestamp == TIMESTAMP
    stamping = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    assert raw.produce(stamping, batch).error_code == ErrorCode.INVALID_TIMESTAMP


def test_invalid_records_are_listed_by_batch_index(raw: Raw, new_topic: Callable[..., str]) -> None:
    keyed = new_topic(**{"cleanup.policy": "compact"})
    batch = build_batch(
        [Record(n, TIMESTAMP, key, b"v") for n, key in enumerate((b"k", None, b"k", None))]
    )
    refused = raw.produce(keyed, batch)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1, 3]
    timed = new_topic(**{"message.timestamp.after.max.ms": "1000"})
    refused = raw.produce(timed, batch_of(b"x", timestamp=FAR))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [0]


def test_duplicate_batch_returns_its_timestamp(raw: Raw, topic: str) -> None:
    batch = batch_of(b"x", producer_id=9, producer_epoch=0, base_sequence=0)
    assert raw.produce(topic, batch).log_append_time_ms == -1
    assert raw.produce(topic, batch).log_append_time_ms == TIMESTAMP


def test_fetch_session_may_start_empty(raw: Raw, topic: str) -> None:
    answer = raw.ask(fetch_request(topic, {}, session_epoch=0), FetchResponse, 12)
    assert answer.session_id


def test_unknown_topic_has_empty_aborted_transactions(raw: Raw) -> None:
    answer = raw.fetch("nobody", 0)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.aborted_transactions == ()


def test_max_timestamp_without_timestamps_is_first_record(raw: Raw, topic: str) -> None:
    raw.produce(topic, batch_of(b"a", b"b", timestamp=-1))
    found = raw.list_offset(topic, -3)
    assert (found.timestamp, found.offset, found.leader_epoch) == (-1, 0, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_restarted_single_leader_keeps_its_epoch(tmp_path: Path, number: int) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Raw(broker.bootstrap_servers) as raw:
            raw.create_topic("orders")
            raw.produce("orders", batch_of(b"before"))
        broker.restart(number)
        with Raw(broker.bootstrap_servers) as raw:
            raw.produce("orders", batch_of(b"after"))
            assert raw.list_offset("orders", -1).leader_epoch == 0
            assert values_in(raw.fetch("orders", 0)) == [b"before", b"after"]


def test_feature_znode_exists(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data"):
        response = run("registry", "get", "/feature", "--data", str(tmp_path / "data"))
    assert json.loads(response.stdout) == {"version": 2, "status": 1, "features": {}}


def test_api_versions_reports_finalized_features_epoch_0(raw: Raw) -> None:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    assert raw.ask(request, ApiVersionsResponse).finalized_features_epoch == 0
