"""ACLs with real clients and over time: changes apply at once, also to requests that repeat earlier ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from barnabas.errors import ErrorCode
from barnabas.security.acl.model import Operation, PatternType, Permission
from barnabas.security.acl.model import ResourceType as Type
from barnabas.wire.apis import ApiKey
from support.message_builder import build_request
from support.permission_rows import PARTITION, fetch, produce
from support.permissions import (
    ABSENT,
    ADMIN,
    BATCH,
    PASSWORD,
    TOPIC,
    USER,
    Grant,
    Ids,
    PlainClient,
    SecuredBroker,
    group,
    prepare,
    secured_broker,
    set_grants,
    topic,
)
from support.waiting import eventually

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("acls") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: SecuredBroker) -> Iterator[PlainClient]:
    with PlainClient(broker.address, ADMIN) as connected:
        yield connected


@pytest.fixture(scope="module")
def ids(admin: PlainClient) -> Ids:
    return prepare(admin, eventually)


@pytest.fixture
def user(broker: SecuredBroker, ids: Ids) -> Iterator[PlainClient]:
    with PlainClient(broker.address, USER) as connected:
        yield connected


def client_settings(broker: SecuredBroker, name: str = USER) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": name,
        "sasl.password": PASSWORD,
    }


# ---- real clients -------------------------------------------------------------------------------


def produce_one(broker: SecuredBroker, name: str) -> KafkaError | None:
    """Return the error of the delivery."""
    errors: list[KafkaError | None] = []
    settings = client_settings(broker) | {"message.timeout.ms": 60_000}
    producer = Producer(settings)
    producer.produce(name, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(90)
    return errors[0]


def test_confluent_producer_needs_write(
    broker: SecuredBroker, admin: PlainClient, ids: Ids
) -> None:
    set_grants(admin, [topic(DESCRIBE)])
    error = produce_one(broker, TOPIC)
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    set_grants(admin, [topic(WRITE)])
    assert produce_one(broker, TOPIC) is None


def test_confluent_consumer_needs_read_of_topic_and_group(
    broker: SecuredBroker, admin: PlainClient, ids: Ids
) -> None:
    set_grants(admin, [topic(WRITE)])
    assert produce_one(broker, TOPIC) is None

    def consume() -> int | None:
        """Return the first error code, or None if there is a record."""
        settings = {"group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = Consumer(client_settings(broker) | settings)
        consumer.subscribe([TOPIC])
        try:
            found = consumer.poll(60)
            assert found is not None
            error = found.error()
            return None if error is None else int(error.code())
        finally:
            consumer.close()

    set_grants(admin, [topic(READ)])
    assert consume() == KafkaError.GROUP_AUTHORIZATION_FAILED
    set_grants(admin, [topic(DESCRIBE), group(READ, "readers")])
    assert consume() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    set_grants(admin, [topic(READ), group(READ, "readers")])
    assert consume() is None


def test_kafka_python_manages_acls(broker: SecuredBroker, ids: Ids) -> None:
    client = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=ADMIN,
        sasl_plain_password=PASSWORD,
    )
    try:
        acl = ACL(
            principal="User:carol",
            host="*",
            operation=ACLOperation.READ,
            permission_type=ACLPermissionType.ALLOW,
            resource_pattern=ResourcePattern(ResourceType.TOPIC, "carols"),
        )
        assert client.create_acls([acl])["failed"] == []
        wanted = ACLFilter(
            principal="User:carol",
            host=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            resource_pattern=ResourcePatternFilter(
                ResourceType.TOPIC, "carols", ACLResourcePatternType.ANY
            ),
        )
        found, _ = client.describe_acls(wanted)
        assert [each.principal for each in found] == ["User:carol"]
        (deleted,) = client.delete_acls([wanted])
        assert len(deleted[1]) == 1
        assert client.describe_acls(wanted)[0] == []
    finally:
        client.close()


def test_confluent_admin_lists_only_visible_topics(
    broker: SecuredBroker, admin: PlainClient, ids: Ids
) -> None:
    set_grants(admin, [])
    assert AdminClient(client_settings(broker)).list_topics(timeout=60).topics == {}
    prefix = Grant(Type.TOPIC, TOPIC[:3], DESCRIBE, Permission.ALLOW, PatternType.PREFIXED)
    set_grants(admin, [prefix])
    assert set(AdminClient(client_settings(broker)).list_topics(timeout=60).topics) == {TOPIC}


# ---- changes apply at once ----------------------------------------------------------------------


def test_revoked_write_stops_repeated_produce(admin: PlainClient, user: PlainClient) -> None:
    request = build_request(ApiKey.PRODUCE, produce(BATCH))

    def code() -> int:
        found: int = user.send(request).responses[0].partition_responses[0].error_code
        return found

    for _ in range(2):
        set_grants(admin, [topic(WRITE)])
        assert [code() for _ in range(4)] == [0] * 4  # the later ones take the fast path
        set_grants(admin, [topic(READ)])
        assert [code() for _ in range(3)] == [DENIED] * 3


@pytest.mark.parametrize("session_epoch", [-1, 0], ids=["without-session", "session"])
def test_revoked_read_stops_repeated_fetch(
    admin: PlainClient, user: PlainClient, session_epoch: int
) -> None:
    set_grants(admin, [topic(WRITE), topic(READ)])
    user.send(build_request(ApiKey.PRODUCE, produce(BATCH)))
    topics = [{"topic": TOPIC, "partitions": [PARTITION]}]
    fields = {**fetch(topics=topics), "session_epoch": session_epoch}
    found = user.send(build_request(ApiKey.FETCH, fields), 12)
    if session_epoch == 0:
        fields = {**fetch(topics=[]), "session_epoch": 1, "session_id": found.session_id}

    def partition(response: Any) -> Any:
        return response.responses[0].partitions[0]

    assert partition(found).records
    if session_epoch == -1:
        for _ in range(3):  # the later ones take the fast path
            assert partition(user.send(build_request(ApiKey.FETCH, fields), 12)).records
    set_grants(admin, [topic(DESCRIBE)])
    denied = partition(user.send(build_request(ApiKey.FETCH, fields), 12))
    assert denied.error_code == DENIED
    assert not denied.records


def test_waiting_fetch_returns_nothing_after_read_is_revoked(
    admin: PlainClient, user: PlainClient
) -> None:
    set_grants(admin, [topic(READ)])
    end = {"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}
    offsets = admin.send(build_request(ApiKey.LIST_OFFSETS, {"topics": [end]}))
    offset = offsets.topics[0].partitions[0].offset
    topics = [{"topic": TOPIC, "partitions": [{**PARTITION, "fetch_offset": offset}]}]
    fields = {"max_wait_ms": 20_000, "min_bytes": 1, "max_bytes": 1000, "topics": topics}
    user.begin(build_request(ApiKey.FETCH, fields), 12)
    set_grants(admin, [topic(DESCRIBE)])
    admin.send(build_request(ApiKey.PRODUCE, produce(BATCH)))
    found = user.finish(ApiKey.FETCH, 12).responses[0].partitions[0]
    assert found.error_code == DENIED
    assert not found.records


@pytest.mark.parametrize("name", [TOPIC, ABSENT])
def test_denied_topic_looks_the_same_whether_it_exists(
    admin: PlainClient, user: PlainClient, name: str
) -> None:
    set_grants(admin, [])
    offsets = {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}
    partition = {"index": 0, "records": BATCH}
    requests: dict[ApiKey, dict[str, Any]] = {
        ApiKey.METADATA: {"topics": [{"name": name}]},
        ApiKey.LIST_OFFSETS: {"topics": [offsets]},
        ApiKey.DELETE_TOPICS: {"topics": [{"name": name}], "timeout_ms": 1000},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": name}]},
        ApiKey.DESCRIBE_PRODUCERS: {"topics": [{"name": name, "partition_indexes": [0]}]},
        ApiKey.PRODUCE: {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": [{"name": name, "partition_data": [partition]}],
        },
    }
    for key, fields in requests.items():
        found = user.summarize(build_request(key, fields))
        assert set(found.codes) - {"NONE"} == {DENIED.name}, key


def test_acks_0_without_permission_closes_connection(admin: PlainClient, user: PlainClient) -> None:
    set_grants(admin, [])
    request = build_request(ApiKey.PRODUCE, {**produce(BATCH), "acks": 0})
    assert user.summarize(request).codes == ("closed",)


# ---- audit, restarts and settings ---------------------------------------------------------------


def test_denied_request_is_in_audit_log(
    broker: SecuredBroker, admin: PlainClient, user: PlainClient
) -> None:
    set_grants(admin, [])
    offsets = {"name": "secret-plans", "partitions": [{"partition_index": 0, "timestamp": -1}]}
    request = build_request(ApiKey.LIST_OFFSETS, {"topics": [offsets]})
    line = (
        "denied principal=User:alice host=127.0.0.1 operation=Describe "
        "resource=Topic:secret-plans api=ListOffsets"
    )

    def is_logged() -> bool:
        user.send(request)  # again: there is a limit of lines per second
        return line in broker.process.log()

    eventually(is_logged, "a line in the audit log")


def test_unknown_numbers_in_acl_requests_close_connection(user: PlainClient) -> None:
    acl = {
        "resource_type": 0,
        "resource_name": "x",
        "principal": "User:x",
        "host": "*",
        "operation": READ,
        "permission_type": 3,
    }
    assert user.summarize(build_request(ApiKey.CREATE_ACLS, {"creations": [acl]})).codes == (
        "closed",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"resource_name": ""},
        {"resource_name": "a/b"},
        {"resource_name": ".."},
        {"resource_name": "a\nb"},
        {"resource_type": Type.CLUSTER},
        {"resource_type": 99},
        {"resource_pattern_type": PatternType.MATCH},
        {"operation": Operation.ANY},
        {"operation": 99},
        {"permission_type": Permission.ANY},
        {"principal": "alice"},
    ],
    ids=json.dumps,
)
def test_invalid_acl_is_rejected_and_others_created(
    admin: PlainClient, ids: Ids, change: dict[str, Any]
) -> None:
    valid = {
        "resource_type": Type.TOPIC,
        "resource_name": "valid",
        "principal": "User:x",
        "host": "*",
        "operation": READ,
        "permission_type": Permission.ALLOW,
    }
    request = build_request(ApiKey.CREATE_ACLS, {"creations": [{**valid, **change}, valid]})
    found = admin.send(request).results
    assert [each.error_code for each in found] == [ErrorCode.INVALID_REQUEST, 0]
    set_grants(admin, [])


def test_acls_survive_restart(tmp_path: Path) -> None:
    with secured_broker(tmp_path / "data") as broker:
        with PlainClient(broker.address, ADMIN) as admin:
            prepare(admin, eventually)
            set_grants(admin, [topic(DESCRIBE)])
        broker.process.stop()
        broker.process.start()
        request = build_request(ApiKey.METADATA, {"topics": None})
        with PlainClient(broker.address, USER) as user:
            assert [each.name for each in user.send(request).topics] == [TOPIC]


class OwnTopics:
    """An authorizer: a user may do everything with topics that begin with its name."""

    def configure(self, settings: dict[str, str]) -> None:
        assert settings["authorizer.class.name"].endswith(":OwnTopics")

    def authorize(self, request: Any) -> bool:
        if request.resource_name == "broken":
            raise RuntimeError("a defect")
        name: str = request.principal.removeprefix("User:")
        is_topic: bool = request.resource_type == "Topic"
        return is_topic and request.resource_name.startswith(name)


def test_python_authorizer_decides_instead_of_acls(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": "tests.security.test_acls:OwnTopics"}
    with (
        secured_broker(tmp_path / "data", settings) as broker,
        PlainClient(broker.address, ADMIN) as admin,
        PlainClient(broker.address, USER) as user,
    ):
        for name in ("alice-orders", "bob-orders"):
            wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
            codes = [
                each.send(build_request(ApiKey.CREATE_TOPICS, {"topics": [wanted]}))
                .topics[0]
                .error_code
                for each in (user, admin)
            ]
            is_own = name.startswith(USER)
            assert codes == ([0, ErrorCode.TOPIC_ALREADY_EXISTS] if is_own else [DENIED, 0])
        offsets = {"name": "broken", "partitions": [{"partition_index": 0, "timestamp": -1}]}
        request = build_request(ApiKey.LIST_OFFSETS, {"topics": [offsets]})
        assert user.send(request).topics[0].partitions[0].error_code == DENIED
        acls = admin.send(
            build_request(
                ApiKey.DESCRIBE_ACLS,
                {
                    "resource_type_filter": Type.ANY,
                    "resource_name_filter": None,
                    "pattern_type_filter": PatternType.ANY,
                    "principal_filter": None,
                    "host_filter": None,
                    "operation": Operation.ANY,
                    "permission_type": Permission.ANY,
                },
            )
        )
        assert acls.error_code == ErrorCode.SECURITY_DISABLED
