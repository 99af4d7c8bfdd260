"""A listener with scripted responses, for behaviour a real broker does not show on demand."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Self

from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message, decode, encode
from barnabas.wire.headers import decode_request_header, encode_response_header
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Answer = Callable[[Any], Message | None]


class ScriptedBroker:
    """Broker whose `answers` map request classes to functions. A function that returns None closes
    the connection.
    """

    def __init__(
        self, answers: dict[type[Message], Answer] | None = None, node_id: int = 0
    ) -> None:
        self.node_id = node_id
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.requests: list[Message] = []
        self.topics: dict[str, int] = {"orders": 1}
        self.answers: dict[type[Message], Answer] = {
            ApiVersionsRequest: api_versions,
            MetadataRequest: self.metadata,
            **(answers or {}),
        }
        self.connections: list[socket.socket] = []
        self.threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def received(self, kind: type[Message]) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]

    def __enter__(self) -> Self:
        self.start(self.accept)
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone would not wake the thread blocked in accept.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.connections:
            connection.close()
        for thread in self.threads:
            thread.join(5)

    def start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            self.start(self.serve, connection)

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while head := stream.read(4):
                    frame = memoryview(stream.read(struct.unpack(">i", head)[0]))
                    header, at = decode_request_header(frame)
                    request = decode(APIS[header.api_key].request, header.api_version, frame, at)
                    self.requests.append(request)
                    answer = self.answers[type(request)](request)
                    if answer is None:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    body = encode_response_header(*header[:3]) + encode(answer, header.api_version)
                    connection.sendall(struct.pack(">i", len(body)) + body)
            except (OSError, ValueError):
                return

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = (
            self.topics
            if request.topics is None
            else [topic.name or "" for topic in request.topics]
        )
        return MetadataResponse(
            brokers=(
                MetadataResponseBroker(node_id=self.node_id, host="127.0.0.1", port=self.port),
            ),
            cluster_id="scripted",
            controller_id=self.node_id,
            topics=tuple(self.topic(name) for name in names),
        )

    def topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(error_code=3, name=name)
        here = (self.node_id,)
        partitions = [
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=self.node_id,
                leader_epoch=0,
                replica_nodes=here,
                isr_nodes=here,
            )
            for index in range(self.topics[name])
        ]
        return MetadataResponseTopic(error_code=0, name=name, partitions=tuple(partitions))


def api_versions(_request: ApiVersionsRequest) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=tuple(
            ApiVersion(api_key=api.key, min_version=api.versions[0], max_version=api.versions[-1])
            for api in APIS.values()
        )
    )
