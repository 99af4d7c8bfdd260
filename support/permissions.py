"""A client that logs in with SASL PLAIN, sends requests of the permission matrix, and summarises the responses.

It works with Barnabas and with Kafka.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self
from uuid import UUID

from barnabas.batch.records import Record, build_batch
from barnabas.errors import ErrorCode
from barnabas.security.acl.model import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codec import Message, decode, encode
from barnabas.wire.headers import RequestHeader, decode_response_header, encode_request_header
from support.broker import BrokerProcess
from support.message_builder import build_request
from support.ports import free_port

ADMIN, USER, PASSWORD = "admin", "alice", "secret"
"""The super user and the user of the matrix. Both have the same password."""
PRINCIPAL = f"User:{USER}"
TOPIC, GROUP, TRANSACTIONAL_ID = "orders", "app", "payments"
ABSENT = "absent"
"""A topic and a group that do not exist."""
TIMEOUT_S = 60.0
SIZE = struct.Struct(">i")
CLOSED = "closed"
BATCH = build_batch([Record(0, 1_700_000_000_000, None, b"x")])
TRANSACTIONAL_BATCH = build_batch(
    [Record(0, 1_700_000_000_000, None, b"x")],
    producer_id=4711,
    producer_epoch=0,
    base_sequence=0,
    is_transactional=True,
)

PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{ADMIN}="{PASSWORD}" user_{USER}="{PASSWORD}";'
)
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{ADMIN}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": PLAIN_USERS,
    "delegation.token.secret.key": "a key for tests",
}
"""Settings of a broker for the matrix, without its listeners. Clients use the listener CLIENTS."""


class SecuredBroker(NamedTuple):
    """A broker with ACLs. Clients log in at `address`; the port of the process is for brokers."""

    process: BrokerProcess
    address: tuple[str, int]

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"


@contextmanager
def secured_broker(
    data: Path, settings: Mapping[str, str] | None = None
) -> Iterator[SecuredBroker]:
    """Run a broker with the settings of the matrix and the listener CLIENTS."""
    port = free_port()
    process = BrokerProcess(data, {**SETTINGS, **(settings or {})})
    listeners = f"PLAINTEXT://127.0.0.1:{process.port},CLIENTS://127.0.0.1:{port}"
    process.settings |= {"listeners": listeners, "advertised.listeners": listeners}
    with process:
        yield SecuredBroker(process, ("127.0.0.1", port))


class Grant(NamedTuple):
    """An ACL, of the user unless it has another principal."""

    type: ResourceType
    name: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern: PatternType = PatternType.LITERAL
    principal: str = PRINCIPAL
    host: str = "*"


def topic(operation: Operation, name: str = TOPIC) -> Grant:
    return Grant(ResourceType.TOPIC, name, operation)


def group(operation: Operation, name: str = GROUP) -> Grant:
    return Grant(ResourceType.GROUP, name, operation)


def transaction(operation: Operation) -> Grant:
    return Grant(ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID, operation)


def cluster(operation: Operation) -> Grant:
    return Grant(ResourceType.CLUSTER, CLUSTER_NAME, operation)


class Ids(NamedTuple):
    """Facts about a cluster that requests contain."""

    topic_id: UUID
    broker_id: int


class Summary(NamedTuple):
    """The parts of a response that depend on permissions."""

    codes: tuple[str, ...]
    """Names of all error codes, each once."""
    names: tuple[str, ...]
    """Names of topics, groups and transactions, and allowed operations."""


NAME_FIELDS = frozenset(
    {
        *("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "user"),
        *("authorized_operations", "topic_authorized_operations", "cluster_authorized_operations"),
        *("num_partitions", "replication_factor"),
    }
)


def summarize(response: Message) -> Summary:
    fields = list(walk(response))
    codes = {ErrorCode(value).name for name, value in fields if name.endswith("error_code")}
    names = {f"{name}={value}" for name, value in fields if name in NAME_FIELDS and value != ""}
    return Summary(tuple(sorted(codes)), tuple(sorted(names)))


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a message and of its items, except for the settings in it."""
    names: tuple[str, ...] = getattr(value, "__struct_fields__", ()) or getattr(
        value, "_fields", ()
    )
    for name in names:
        found = getattr(value, name)
        if name in ("configs", "synonyms"):
            continue
        if isinstance(found, tuple) and not hasattr(found, "_fields"):
            for item in found:
                yield from walk(item)
        elif hasattr(found, "_fields") or hasattr(found, "__struct_fields__"):
            yield from walk(found)
        else:
            yield name, found


class PlainClient:
    """A connection that has logged in."""

    def __init__(self, address: tuple[str, int], user: str) -> None:
        self.address = address
        self.user = user
        self.socket = self.connect()
        self.correlation_id = 0

    def connect(self) -> socket.socket:
        self.socket = socket.create_connection(self.address, TIMEOUT_S)
        self.exchange_frame(struct.pack(">hhihh", 17, 1, 0, -1, 5) + b"PLAIN")
        token = f"\0{self.user}\0{PASSWORD}".encode()
        found = self.exchange_frame(struct.pack(">hhihi", 36, 0, 0, -1, len(token)) + token)
        assert struct.unpack_from(">ih", found)[1] == 0, "login failed"
        return self.socket

    def exchange_frame(self, frame: bytes) -> bytes:
        self.socket.sendall(SIZE.pack(len(frame)) + frame)
        return self.receive(SIZE.unpack(self.receive(4))[0])

    def receive(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            chunk = self.socket.recv(size - len(found))
            if not chunk:
                raise ConnectionError("closed by the broker")
            found += chunk
        return bytes(found)

    def send(self, request: Message, version: int | None = None) -> Any:
        """Return the response. Raises ConnectionError if the broker closes the connection."""
        version = APIS[request.API_KEY].versions[-1] if version is None else version
        self.begin(request, version)
        return self.finish(request.API_KEY, version)

    def begin(self, request: Message, version: int) -> None:
        """Send a request without waiting for its response."""
        self.correlation_id += 1
        header = RequestHeader(request.API_KEY, version, self.correlation_id, "matrix")
        frame = encode_request_header(header) + encode(request, version)
        self.socket.sendall(SIZE.pack(len(frame)) + frame)

    def finish(self, key: int, version: int) -> Any:
        """Receive the response of the last request."""
        frame = self.receive(SIZE.unpack(self.receive(4))[0])
        _, at = decode_response_header(key, version, memoryview(frame))
        return decode(APIS[key].response, version, frame, at)

    def summarize(self, request: Message, version: int | None = None) -> Summary:
        """Send a request. If the broker closes the connection, log in again."""
        try:
            return summarize(self.send(request, version))
        except ConnectionError:
            self.socket.close()
            self.connect()
            return Summary((CLOSED,), ())

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def set_grants(admin: PlainClient, grants: Iterable[Grant]) -> None:
    """Replace all ACLs."""
    wanted = [
        {
            "resource_type": each.type,
            "resource_name": each.name,
            "resource_pattern_type": each.pattern,
            "principal": each.principal,
            "host": each.host,
            "operation": each.operation,
            "permission_type": each.permission,
        }
        for each in grants
    ]
    everything = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    deleted = admin.send(build_request(ApiKey.DELETE_ACLS, {"filters": [everything]}))
    assert summarize(deleted).codes == ("NONE",), deleted
    if wanted:
        created = admin.send(build_request(ApiKey.CREATE_ACLS, {"creations": wanted}))
        assert {each.error_code for each in created.results} == {0}, created


def prepare(admin: PlainClient, eventually: Callable[..., Any]) -> Ids:
    """Create the topic, the coordinators' topics, the group and the transaction of the matrix."""
    wanted = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    admin.send(build_request(ApiKey.CREATE_TOPICS, {"topics": [wanted]}))
    for key_type, key in ((0, GROUP), (1, TRANSACTIONAL_ID)):
        fields = {"key_type": key_type, "coordinator_keys": [key]}
        request = build_request(ApiKey.FIND_COORDINATOR, fields)
        eventually(lambda request=request: succeeds(admin, request), "a coordinator", seconds=30)
    partition = {"partition_index": 0, "committed_offset": 0}
    commit = {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [partition]}]}
    request = build_request(ApiKey.OFFSET_COMMIT, commit)
    eventually(lambda: succeeds(admin, request), "a group", seconds=30)
    init = {"transactional_id": TRANSACTIONAL_ID, "transaction_timeout_ms": 600_000}
    request = build_request(ApiKey.INIT_PRODUCER_ID, init)
    eventually(lambda: succeeds(admin, request), "a transactional id", seconds=30)
    metadata = build_request(ApiKey.METADATA, {"topics": [{"name": TOPIC}]})
    eventually(lambda: succeeds(admin, metadata), "the topic", seconds=30)
    found = admin.send(metadata)
    return Ids(found.topics[0].topic_id, found.brokers[0].node_id)


def succeeds(client: PlainClient, request: Message) -> bool:
    return client.summarize(request).codes == ("NONE",)
