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


def test_addresses_are_read_as_people_write_them() -> None:
    assert parse_addresses("a:1, b:2") == [("a", 1), ("b", 2)]
    assert parse_addresses(["a"]) == [("a", 9092)]
    assert parse_addresses("[::1]:9093,[::1]") == [("::1", 9093), ("::1", 9092)]


@pytest.mark.parametrize("text", ["", " , ", "a:", ":1", "a:b", "a:0", "a:70000"])
def test_what_is_no_address_is_a_wrong_setting(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_addresses(text)


def test_where_nobody_listens_it_says_what_was_tried_at_once() -> None:
    ports = unused_port(), unused_port()
    with (
        Cluster([f"127.0.0.1:{port}" for port in ports]) as cluster,
        pytest.raises(Unreachable) as caught,
    ):
        cluster.topic("orders")
    assert [address for address, _ in caught.value.tried] == [f"127.0.0.1:{port}" for port in ports]
    assert "refused" in caught.value.tried[0][1]


def test_one_address_that_answers_is_enough() -> None:
    with (
        ScriptedBroker() as broker,
        Cluster([f"127.0.0.1:{unused_port()}", broker.address]) as cluster,
    ):
        assert cluster.topic("orders").replication_factor == 1
        assert cluster.view.cluster_id == "scripted"


def test_a_topic_that_stays_unknown_is_an_error_after_a_moment() -> None:
    with ScriptedBroker() as broker, Cluster(broker.address, timeout_s=30) as cluster:
        with pytest.raises(ApiError) as caught:
            cluster.topic("ordres")
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(broker.asked(MetadataRequest)) > 1
        assert all(
            not request.allow_auto_topic_creation for request in broker.asked(MetadataRequest)
        )


def test_a_lost_connection_is_made_anew_and_the_question_asked_again() -> None:
    hung_up: list[object] = []

    def create(request: CreateTopicsRequest) -> CreateTopicsResponse | None:
        hung_up.append(request)
        if len(hung_up) == 1:
            return None
        return CreateTopicsResponse(topics=(CreatableTopicResult(name="a", num_partitions=3),))

    with (
        ScriptedBroker({CreateTopicsRequest: create}) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
    ):
        (outcome,) = Admin(cluster).create_topics([NewTopic(name="a")])
    assert outcome.error is None
    assert outcome.partitions == 3
    assert len(hung_up) == 2


def test_the_new_controller_is_looked_for_when_the_old_one_declines() -> None:
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.TOPIC_ALREADY_EXISTS]

    def create(_request: CreateTopicsRequest) -> CreateTopicsResponse:
        result = CreatableTopicResult(name="a", error_code=codes.pop(0), error_message="told")
        return CreateTopicsResponse(topics=(result,))

    with (
        ScriptedBroker({CreateTopicsRequest: create}) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
    ):
        (outcome,) = Admin(cluster).create_topics([NewTopic(name="a")])
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert outcome.error.message == "told"
    assert not codes


def test_who_was_declined_while_others_were_granted_is_asked_for_again_alone() -> None:
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
        wishes = [NewPartitions(name=name, count=3) for name in "ab"]
        grown = Admin(cluster).create_partitions(wishes)
        assert not codes
    assert [(each.name, each.error) for each in created] == [("a", None), ("b", None), ("c", None)]
    assert [(each.name, each.error) for each in deleted] == [("a", None), ("b", None)]
    assert [(each.name, each.error) for each in grown] == [("a", None), ("b", None)]


def test_a_name_whose_deletion_is_not_finished_is_waited_for_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exists = ErrorCode.TOPIC_ALREADY_EXISTS
    told = [(exists, "Topic 'a' is marked for deletion."), (exists, "marked for deletion"), (0, "")]

    def create(_request: CreateTopicsRequest) -> CreateTopicsResponse:
        code, why = told.pop(0) if len(told) > 1 else told[0]
        result = CreatableTopicResult(name="a", error_code=code, error_message=why)
        return CreateTopicsResponse(topics=(result,))

    with (
        ScriptedBroker({CreateTopicsRequest: create}) as broker,
        Cluster(broker.address, timeout_s=30) as cluster,
    ):
        admin = Admin(cluster)
        assert [each.error for each in admin.create_topics([NewTopic(name="a")])] == [None]
        assert len(broker.asked(CreateTopicsRequest)) == 3
        monkeypatch.setattr("barnabas.client.admin.DELETION_WAIT_S", 0.1)
        told[:] = [(exists, "still marked for deletion")]
        (outcome,) = admin.create_topics([NewTopic(name="a")])
        assert outcome.error is not None
        told[:] = [(exists, "already exists")]
        before = len(broker.asked(CreateTopicsRequest))
        admin.create_topics([NewTopic(name="a")])
        assert len(broker.asked(CreateTopicsRequest)) == before + 1


def test_a_broker_that_does_not_answer_is_left_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ApiError) as caught:
        BlockingConnection.open("127.0.0.1", silent.getsockname()[1], client_id="me", timeout_s=0.1)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_listener_of_another_kind_is_recognised() -> None:
    with (
        ScriptedBroker({ApiVersionsRequest: lambda _: None}) as broker,
        pytest.raises(ApiError) as caught,
    ):
        BlockingConnection.open("127.0.0.1", broker.port, client_id="me")
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION


def test_a_timed_out_connection_is_not_used_again() -> None:
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
