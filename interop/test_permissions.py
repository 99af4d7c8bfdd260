"""The permission matrix: Barnabas and Kafka 3.9 with the same ACLs give the same answers.

`python -m pytest interop/test_permissions.py` sends every request of support/permission_rows.py to both, with no
permission, with one that does not suffice, and with the right one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from barnabas.java.find import Java
from barnabas.security.acl.model import Operation, PatternType, Permission, ResourceType
from barnabas.wire.apis import ApiKey
from interop.harness.jars import Jars
from interop.harness.kafka import KafkaBroker
from interop.harness.member import start_together
from interop.harness.our_broker import OurBroker
from interop.harness.znodes import Znodes
from interop.harness.zookeeper import ZooKeeper
from support.message_builder import build_request
from support.permission_rows import ROWS, Row
from support.permissions import (
    ADMIN,
    SETTINGS,
    USER,
    Grant,
    Ids,
    PlainClient,
    Summary,
    prepare,
    set_grants,
)
from support.ports import free_port
from support.waiting import eventually

SAME = {**SETTINGS, "group.coordinator.rebalance.protocols": "classic"}
COMPARED = [row for row in ROWS if not row.is_kafka_4]


class Side:
    """One of the two brokers."""

    def __init__(self, admin: PlainClient, user: PlainClient, ids: Ids, chroot: str) -> None:
        self.chroot = chroot
        """Name of the znode of its cluster."""
        self.admin = admin
        self.user = user
        self.ids = ids

    def ask(self, row: Row, grants: tuple[Grant, ...]) -> Summary:
        set_grants(self.admin, grants)
        return self.user.summarize(build_request(row.key, row.build(self.ids)), row.version)


@contextmanager
def connect(port: int, chroot: str) -> Iterator[Side]:
    address = ("127.0.0.1", port)
    with PlainClient(address, ADMIN) as admin, PlainClient(address, USER) as user:
        yield Side(admin, user, prepare(admin, eventually), chroot)


def listeners(port: int, clients_port: int) -> dict[str, str]:
    both = f"PLAINTEXT://127.0.0.1:{port},CLIENTS://127.0.0.1:{clients_port}"
    return {"listeners": both, "advertised.listeners": both}


@pytest.fixture(scope="module")
def kafka_side(
    tmp_path_factory: pytest.TempPathFactory, java: Java, kafka_jars: Jars, zookeeper: ZooKeeper
) -> Iterator[Side]:
    port, clients_port = free_port(), free_port()
    directory = tmp_path_factory.mktemp("kafka-with-acls")
    broker = KafkaBroker(
        1,
        directory,
        java=java,
        jars=kafka_jars,
        zookeeper_connect=f"{zookeeper.address}/{directory.name}",
        settings={**SAME, **listeners(port, clients_port)},
        port=port,
    )
    try:
        broker.start()
        with connect(clients_port, directory.name) as side:
            yield side
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def our_side(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper, kafka_side: Side
) -> Iterator[Side]:
    clients_port = free_port()
    directory = tmp_path_factory.mktemp("ours-with-acls")
    broker = OurBroker(
        1, directory, zookeeper_connect=f"{zookeeper.address}/{directory.name}", settings=SAME
    )
    broker.settings |= listeners(broker.port, clients_port)
    try:
        start_together([broker])
        with connect(clients_port, directory.name) as side:
            yield side
    finally:
        broker.kill()


@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row.name)
def test_answer_equals_kafkas(kafka_side: Side, our_side: Side, row: Row) -> None:
    for grants in ((), row.wrong, row.right):
        ours, kafkas = our_side.ask(row, grants), kafka_side.ask(row, grants)
        assert ours == kafkas, f"with {grants or 'no permission'}"


# ---- random ACLs --------------------------------------------------------------------------------

NAMES = ("a", "ab", "abc", "b")
OPERATIONS = (
    *(Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS),
    *(Operation.DELETE, Operation.ALL, Operation.CREATE),
)


def random_grants(random: Random) -> list[Grant]:
    return [
        Grant(
            ResourceType.TOPIC,
            random.choice(("*", *NAMES)),
            random.choice(OPERATIONS),
            random.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
            random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
            random.choice(("User:alice", "User:*", "User:bob", "Group:alice")),
            random.choice(("*", "127.0.0.1", "10.9.9.9")),
        )
        for _ in range(random.randint(1, 8))
    ]


@pytest.mark.parametrize("seed", range(40))
def test_random_acls_decide_as_in_kafka(kafka_side: Side, our_side: Side, seed: int) -> None:
    """The allowed operations on several topics, and whether any topic may be written."""
    grants = random_grants(Random(seed))
    operations: dict[str, object] = {
        "topics": [{"name": name} for name in NAMES],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    any_topic: dict[str, object] = {"transactional_id": None, "transaction_timeout_ms": 1000}
    for key, fields in ((ApiKey.METADATA, operations), (ApiKey.INIT_PRODUCER_ID, any_topic)):
        ours, kafkas = (
            summaries_by_topic(side, key, fields, grants) for side in (our_side, kafka_side)
        )
        assert ours == kafkas, grants


def summaries_by_topic(
    side: Side, key: ApiKey, fields: dict[str, object], grants: list[Grant]
) -> list[Any]:
    set_grants(side.admin, grants)
    response = side.user.send(build_request(key, fields))
    if key is ApiKey.INIT_PRODUCER_ID:
        return [response.error_code]
    return sorted(
        (topic.name, topic.error_code, topic.topic_authorized_operations)
        for topic in response.topics
    )


def test_znodes_equal_those_of_kafka(
    kafka_side: Side, our_side: Side, zookeeper: ZooKeeper
) -> None:
    grants = random_grants(Random(7))
    grants += [each._replace(type=ResourceType.TRANSACTIONAL_ID) for each in grants]
    trees = []
    with Znodes(zookeeper.port) as znodes:
        for side in (our_side, kafka_side):
            set_grants(side.admin, grants)
            found = {
                path: normalise(data)
                for root in ("/kafka-acl", "/kafka-acl-extended")
                for path, (data, _) in znodes.tree(f"/{side.chroot}{root}").items()
            }
            for root in ("/kafka-acl-changes", "/kafka-acl-extended-changes"):
                changes = znodes.tree(f"/{side.chroot}{root}").values()
                found[root] = {data for data, _ in changes}
            trees.append(found)
    ours, kafkas = trees
    assert ours.keys() == kafkas.keys()
    for path in ours:
        if not path.endswith("-changes"):
            assert ours[path] == kafkas[path], path
    for root in ("/kafka-acl-changes", "/kafka-acl-extended-changes"):
        # Each has those of all earlier tests, which were the same.
        assert ours[root] == kafkas[root]


def normalise(data: bytes) -> object:
    """The content of a znode. The order of the ACLs has no meaning."""
    if not data:
        return data
    content = json.loads(data)
    content["acls"].sort(key=lambda acl: json.dumps(acl, sort_keys=True))
    return content
