from __future__ import annotations

import socket
import threading

import pytest

from barnabas.client.admin import Admin, NewPartitions, NewTopic
from barnabas.client.blocking import BlockingConnection
from barnabas.client.cluster import Cluster, Unreachable, parse_addresses
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.wire.codec import Message
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from barnabas.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.scripted_broker import Answer, ScriptedBroker


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_addresses_are_parsed_with_default_port_and_ipv6() -> None:
    assert parse_addresses("a:1, b:2") == [("a", 1), ("b", 2)]
    assert parse_addresses(["a"]) == [("a", 9092)]
    assert parse_addresses("[::1]:9093,[::1]") == [("::1", 9093), ("::1", 9092)]


@pytest.mark.parametrize("text", ["", " , ", "a:", ":1", "a:b", "a:0", "a:70000"])
def test_invalid_address_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_addresses(text)


def test_unreachable_cluster_lists_attempts() -> None:
    ports = unused_port(), unused_port()
    with (
        Cluster([f"127.0.0.1:{port}" for port in ports]) as cluster,
        pytest.raises(Unreachable) as caught,
    ):
        cluster.topic("orders")
    assert [address for address, _ in caught.value.tried] == [f"127.0.0.1:{port}" for port in ports]
    assert "refused" in caught.value.tried[0][1]


def test_one_reachable_address_is_enough() -> None:
    with (
        ScriptedBroker() as broker,
        Cluster([f"127.0.0.1:{unused_port()}", broker.address]) as cluster,
    ):
        assert cluster.topic("orders").replication_factor == 1
        assert cluster.view.cluster_id == "scripted"


def test_unknown_topic_is_an_error_after_retries() -> None:
    with ScriptedBroker() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with pytest.raises(ApiError) as caught:
            cluster.topic("ordres")
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(broker.received(MetadataRequest)) > 1
        assert all(
            not request.allow_auto_topic_creation for request in broker.received(MetadataRequest)
        )


def test_request_is_retried_on_new_connection() -> None:
    requests: list[object] = []

    def create(request: CreateTopicsRequest) -> CreateTopicsResponse | None:
        requests.append(request)
        if len(requests) == 1:
            return None
        return CreateTopicsResponse(topics=(CreatableTopicResult(name="a", num_partitions=3),))

    with (
        ScriptedBroker({CreateTopicsRequest: create}) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
    ):
        (outcome,) = Admin(cluster).create_topics([NewTopic(name="a")])
    assert outcome.error is None
    assert outcome.partitions == 3
    assert len(requests) == 2


def test_new_controller_is_looked_up_after_not_controller() -> None:
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.TOPIC_ALREADY_EXISTS]

    def create(_request: CreateTopicsRequest) -> CreateTopicsResponse:
        result = CreatableTopicResult(name="a", error_code=codes.pop(0), error_message="reason")
        return CreateTopicsResponse(topics=(result,))

    with (
        ScriptedBroker({CreateTopicsRequest: create}) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
    ):
        (outcome,) = Admin(cluster).create_topics([NewTopic(name="a")])
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert outcome.error.message == "reason"
    assert not codes


def test_only_rejected_topics_are_requested_again() -> None:
    declined, granted = ErrorCode.NOT_CONTROLLER, ErrorCode.NONE
    codes = [{"a": granted, "b": declined, "c": granted}, {"b": declined}, {"b": granted}]

    def create(request: CreateTopicsRequest) -> CreateTopicsResponse:
        answer = codes.pop(0)
        assert [topic.name for topic in request.topics] == [*answer]
        return CreateTopicsResponse(
            topics=tuple(CreatableTopicResult(name=n, error_code=c) for n, c in answer.items())
        )

    def delete(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        answer = codes.pop(0)
        assert list(request.topic_names) == [*answer]
        return DeleteTopicsResponse(
            responses=tuple(DeletableTopicResult(name=n, error_code=c) for n, c in answer.items())
        )

    def grow(request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        answer = codes.pop(0)
        assert {topic.name: topic.count for topic in request.topics} == dict.fromkeys(answer, 3)
        return CreatePartitionsResponse(
            results=tuple(CreatePartitionsTopicResult(n, c) for n, c in answer.items())
        )

    answers: dict[type[Message], Answer] = {
        CreateTopicsRequest: create,
        DeleteTopicsRequest: delete,
        CreatePartitionsRequest: grow,
    }
    with ScriptedBroker(answers) as broker, Cluster(broker.address, timeout_s=30) as cluster:
        created = Admin(cluster).create_topics([NewTopic(name=name) for name in "abc"])
        assert not codes
        codes += [{"a": declined, "b": granted}, {"a": granted}]
        deleted = Admin(cluster).delete_topics(["a", "b"])
        assert not codes
        both = {"a": declined, "b": declined}
        codes += [both, {"a": granted, "b": declined}, {"b": granted}]
        new_partitions = [NewPartitions(name=name, count=3) for name in "ab"]
        grown = Admin(cluster).create_partitions(new_partitions)
        assert not codes
    assert [(each.name, each.error) for each in created] == [("a", None), ("b", None), ("c", None)]
    assert [(each.name, each.error) for each in deleted] == [("a", None), ("b", None)]
    assert [(each.name, each.error) for each in grown] == [("a", None), ("b", None)]


def test_creation_waits_for_pending_deletion_with_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exists = ErrorCode.TOPIC_ALREADY_EXISTS
    responses = [
        (exists, "Topic 'a' is marked for deletion."),
        (exists, "marked for deletion"),
        (0, ""),
    ]

    def create(_request: CreateTopicsRequest) -> CreateTopicsResponse:
        code, message = responses.pop(0) if len(responses) > 1 else responses[0]
        result = CreatableTopicResult(name="a", error_code=code, error_message=message)
        return CreateTopicsResponse(topics=(result,))

    with (
        ScriptedBroker({CreateTopicsRequest: create}) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
    ):
        admin = Admin(cluster)
        assert [each.error for each in admin.create_topics([NewTopic(name="a")])] == [None]
        assert len(broker.received(CreateTopicsRequest)) == 3
        monkeypatch.setattr("barnabas.client.admin.DELETION_WAIT_S", 0.1)
        responses[:] = [(exists, "still marked for deletion")]
        (outcome,) = admin.create_topics([NewTopic(name="a")])
        assert outcome.error is not None
        responses[:] = [(exists, "already exists")]
        before = len(broker.received(CreateTopicsRequest))
        admin.create_topics([NewTopic(name="a")])
        assert len(broker.received(CreateTopicsRequest)) == before + 1


def test_silent_broker_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ApiError) as caught:
        BlockingConnection.open("127.0.0.1", silent.getsockname()[1], client_id="me", timeout_s=0.1)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_closed_handshake_is_a_network_exception() -> None:
    with (
        ScriptedBroker({ApiVersionsRequest: lambda _: None}) as broker,
        pytest.raises(ApiError) as caught,
    ):
        BlockingConnection.open("127.0.0.1", broker.port, client_id="me")
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION


def test_timed_out_connection_is_not_reused() -> None:
    over = threading.Event()

    def never(_request: MetadataRequest) -> None:
        over.wait(10)

    with ScriptedBroker({MetadataRequest: never}) as broker:
        connection = BlockingConnection.open("127.0.0.1", broker.port, client_id="me")
        with pytest.raises(ApiError) as caught:
            connection.exchange(MetadataRequest(topics=None), MetadataResponse, timeout_s=0.1)
        over.set()
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert not connection.is_open


def test_new_connections_prefer_brokers_that_respond() -> None:
    with ScriptedBroker({}) as broker:
        dead = f"127.0.0.1:{unused_port()}"
        with Cluster([dead, broker.address], timeout_s=5) as cluster:
            cluster.any_connection()
            with cluster.with_new_connections(timeout_s=5) as other:
                assert [f"{host}:{port}" for host, port in other.bootstrap] == [
                    broker.address,
                    dead,
                ]
