"""How connections start, and when a broker closes one; without a client library."""

import struct
from collections.abc import Callable

import pytest

from barnabas.errors import ErrorCode
from barnabas.wire.apis import APIS
from barnabas.wire.codec import decode
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.compatibility.raw import Raw, batch_of, produce_request
from tests.raw_connection import with_size

HEADER = struct.Struct(">hhih")  # api key, version, correlation id, size of the client id
NAMED = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")


def test_unknown_api_versions_version_is_answered_with_version_0(raw: Raw) -> None:
    raw.send(with_size(HEADER.pack(18, 99, 7, -1) + b"fields of this version"))
    frame = raw.receive()
    assert struct.unpack_from(">i", frame) == (7,)
    answer = decode(ApiVersionsResponse, 0, frame, 4)
    assert answer.error_code == 35
    (itself,) = answer.api_keys
    assert (itself.api_key, itself.min_version, itself.max_version) == (18, 0, 4)
    # The connection stays open: the client retries with a version that both support.
    assert raw.ask(NAMED, ApiVersionsResponse, 4).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", APIS[18].versions)
def test_api_versions_lists_all_supported_apis(raw: Raw, version: int) -> None:
    request = NAMED if version >= 3 else ApiVersionsRequest()
    answer = raw.ask(request, ApiVersionsResponse, version)
    assert answer.error_code == ErrorCode.NONE
    assert {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys} == {
        key: (0, api.versions[-1]) for key, api in APIS.items()
    }


def test_empty_client_software_name_is_rejected(raw: Raw) -> None:
    nameless = ApiVersionsRequest(client_software_name="", client_software_version="1.0")
    assert raw.ask(nameless, ApiVersionsResponse, 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "version"),
    [(999, 0), (-1, 0), (55, 0), (3, 99), (3, -1), (0, 12)],
    ids=[
        "key 999",
        "key -1",
        "DescribeQuorum",
        "Metadata v99",
        "Metadata v-1",
        "Produce v12",
    ],
)
def test_unsupported_api_or_version_closes_connection(raw: Raw, key: int, version: int) -> None:
    raw.send(with_size(HEADER.pack(key, version, 1, -1) + bytes(20)))
    assert raw.is_hung_up()


@pytest.mark.parametrize("size", [-1, -(2**31), 104_857_601, 2**31 - 1])
def test_invalid_frame_size_closes_connection(raw: Raw, size: int) -> None:
    raw.socket.sendall(struct.pack(">i", size))
    assert raw.is_hung_up()


def test_http_closes_connection(raw: Raw) -> None:
    raw.socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert raw.is_hung_up()


def test_pipelined_requests_are_answered_in_order(raw: Raw, topic: str) -> None:
    begun = [
        raw.begin(MetadataRequest(topics=(MetadataRequestTopic(name=topic),))) for _ in range(50)
    ]
    for ticket in begun:
        assert raw.answer(MetadataResponse, *ticket).topics[0].name == topic


def test_request_may_arrive_byte_by_byte(raw: Raw, topic: str) -> None:
    payload = HEADER.pack(3, 1, 5, -1) + struct.pack(">ih", 1, len(topic)) + topic.encode()
    for byte in struct.pack(">i", len(payload)) + payload:
        raw.socket.sendall(bytes((byte,)))
    frame = raw.receive()
    assert decode(MetadataResponse, 1, frame, 4).topics[0].name == topic


@pytest.mark.parametrize("version", APIS[3].versions)
def test_every_metadata_version_returns_same_topic(
    raw: Raw, new_topic: Callable[..., str], version: int
) -> None:
    topic = new_topic(partitions=2)
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    answer = raw.ask(request, MetadataResponse, version)
    (broker,) = answer.brokers
    assert (broker.node_id, f"{broker.host}:{broker.port}") == (
        1,
        "{}:{}".format(*raw.socket.getpeername()),
    )
    (found,) = answer.topics
    assert (found.error_code, found.name, len(found.partitions)) == (0, topic, 2)
    for partition in found.partitions:
        assert (partition.error_code, partition.leader_id) == (0, 1)
        assert (partition.replica_nodes, partition.isr_nodes) == ((1,), (1,))


def test_metadata_of_missing_or_invalid_topic_returns_error(raw: Raw) -> None:
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name="nowhere"), MetadataRequestTopic(name="bad name")),
        allow_auto_topic_creation=False,
    )
    answer = raw.ask(request, MetadataResponse)
    assert [found.error_code for found in answer.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_acks_0_gets_no_response_and_failure_closes_connection(raw: Raw, topic: str) -> None:
    raw.begin(produce_request(topic, batch_of(b"x"), acks=0))
    assert raw.ask(NAMED, ApiVersionsResponse).error_code == ErrorCode.NONE
    raw.begin(produce_request("nowhere", batch_of(b"x"), acks=0))
    assert raw.is_hung_up()
