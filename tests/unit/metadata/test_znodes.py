import json
from collections.abc import Callable
from uuid import UUID

import pytest

from barnabas.errors import RegistryError
from barnabas.metadata import znodes
from barnabas.metadata.znodes import ProducerIdBlock, ReplicaAssignment, TopicAssignment
from barnabas.model import (
    Broker,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    TopicPartition,
    ZnodeVersion,
)

ORDERS_0 = TopicPartition("orders", 0)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def test_paths_match_kafka() -> None:
    assert znodes.broker_path(3) == "/brokers/ids/3"
    assert znodes.topic_path("orders") == "/brokers/topics/orders"
    assert znodes.partitions_path("orders") == "/brokers/topics/orders/partitions"
    assert znodes.partition_path(ORDERS_0) == "/brokers/topics/orders/partitions/0"
    assert znodes.state_path(ORDERS_0) == "/brokers/topics/orders/partitions/0/state"
    assert znodes.topic_config_path("orders") == "/config/topics/orders"
    assert znodes.config_path("brokers", znodes.DEFAULT_ENTITY) == "/config/brokers/<default>"
    assert znodes.delete_topic_path("orders") == "/admin/delete_topics/orders"


def test_persistent_paths_are_listed_after_their_parents() -> None:
    made = {"/"}
    for path in znodes.PERSISTENT_PATHS:
        assert (path.rpartition("/")[0] or "/") in made
        made.add(path)
    assert len(made) == len(znodes.PERSISTENT_PATHS) + 1


def test_controller_znode() -> None:
    data = znodes.encode_controller(1, timestamp_ms=1700000000000)
    assert data == (
        b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
    )
    assert znodes.decode_controller(data) == 1
    assert znodes.decode_controller(b'{"version":1,"brokerid":7,"timestamp":"1"}') == 7


def test_controller_epoch_is_a_plain_number() -> None:
    assert znodes.encode_controller_epoch(12) == b"12"
    assert znodes.decode_controller_epoch(b"12") == 12


def test_cluster_id_version_is_a_string() -> None:
    data = znodes.encode_cluster_id("Zm9vYmFyYmF6cXV4cXV1eA")
    assert data == b'{"version":"1","id":"Zm9vYmFyYmF6cXV4cXV1eA"}'
    assert znodes.decode_cluster_id(data) == "Zm9vYmFyYmF6cXV4cXV1eA"


BROKER = Broker(
    id=BrokerId(1),
    endpoints=(
        Endpoint(listener="OUTSIDE", host="example.org", port=9093),
        Endpoint(listener="INSIDE", host="::1", port=9092),
    ),
    rack="r1",
)


def test_broker_znode_names_first_endpoint_for_old_readers() -> None:
    data = znodes.encode_broker(BROKER, timestamp_ms=5)
    assert data == (
        b'{"version":5,"host":"example.org","port":9093,"jmx_port":-1,"timestamp":"5",'
        b'"endpoints":["OUTSIDE://example.org:9093","INSIDE://[::1]:9092"],'
        b'"listener_security_protocol_map":{"OUTSIDE":"PLAINTEXT","INSIDE":"PLAINTEXT"},'
        b'"rack":"r1","features":{}}'
    )
    assert znodes.decode_broker(1, data) == BROKER


def test_broker_znode_without_rack() -> None:
    broker = Broker(id=BrokerId(2), endpoints=(Endpoint(listener="PLAINTEXT", host="h", port=1),))
    data = znodes.encode_broker(broker, timestamp_ms=5)
    assert data == (
        b'{"version":5,"host":"h","port":1,"jmx_port":-1,"timestamp":"5",'
        b'"endpoints":["PLAINTEXT://h:1"],'
        b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{}}'
    )
    assert znodes.decode_broker(2, data) == broker


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1"}',
        b'{"version":2,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1",'
        b'"endpoints":["PLAINTEXT://h:9092"]}',
        b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://h:9092"],"rack":null,"version":4}',
    ],
)
def test_older_broker_znodes_are_read(data: bytes) -> None:
    endpoint = Endpoint(listener="PLAINTEXT", host="h", port=9092)
    assert znodes.decode_broker(1, data) == Broker(id=BrokerId(1), endpoints=(endpoint,))


def test_rack_is_read_since_version_3() -> None:
    data = b'{"version":3,"endpoints":["PLAINTEXT://h:1"],"rack":"dc1"}'
    assert znodes.decode_broker(1, data).rack == "dc1"


TOPIC_ID = UUID("c6cf7d4c-1a2b-4c3d-8e9f-001122334455")
TOPIC = TopicAssignment(
    topic_id=TOPIC_ID,
    partitions={
        0: ReplicaAssignment(replicas=ids(1, 2)),
        1: ReplicaAssignment(replicas=ids(3, 2, 1), adding=ids(3), removing=ids(1)),
        10: ReplicaAssignment(replicas=ids(2, 3)),
        2: ReplicaAssignment(replicas=ids(2, 3)),
    },
)


def test_topic_znode_lists_partitions_in_order() -> None:
    data = znodes.encode_topic(TOPIC)
    assert data == (
        b'{"version":3,"topic_id":"xs99TBorTD2OnwARIjNEVQ",'
        b'"partitions":{"0":[1,2],"1":[3,2,1],"2":[2,3],"10":[2,3]},'
        b'"adding_replicas":{"1":[3]},"removing_replicas":{"1":[1]}}'
    )
    read = znodes.decode_topic("orders", data)
    assert read == TOPIC
    assert list(read.partitions) == [0, 1, 2, 10]


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"partitions":{"0":[0]}}',
        b'{"removing_replicas":{},"partitions":{"0":[0]},"adding_replicas":{},"version":2}',
    ],
)
def test_older_topic_znodes_have_no_id(data: bytes) -> None:
    read = znodes.decode_topic("orders", data)
    assert read.topic_id is None
    assert read.partitions == {0: ReplicaAssignment(replicas=ids(0))}


def test_topic_without_id_is_written_without_id() -> None:
    topic = TopicAssignment(topic_id=None, partitions={0: ReplicaAssignment(replicas=ids(1))})
    assert znodes.encode_topic(topic) == (
        b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}'
    )


def test_partition_state_has_znode_version_as_partition_epoch() -> None:
    state = LeaderAndIsr(
        leader=BrokerId(1),
        isr=ids(1, 2),
        leader_epoch=LeaderEpoch(0),
        controller_epoch=ControllerEpoch(1),
        partition_epoch=ZnodeVersion(4),
    )
    data = znodes.encode_state(state)
    assert data == (b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1,2]}')
    assert znodes.decode_state(ORDERS_0, data, version=4) == state


@pytest.mark.parametrize("leader", [-1, 0, 7, 999_999_999, 2_000_000_000])
@pytest.mark.parametrize("isr", [(), (0,), (3, 1, 2), (1_000_000_000, 5)])
def test_state_is_read_in_any_json_form(leader: int, isr: tuple[int, ...]) -> None:
    state = LeaderAndIsr(
        leader=BrokerId(leader),
        isr=ids(*isr),
        leader_epoch=LeaderEpoch(leader + 1),
        controller_epoch=ControllerEpoch(12),
        partition_epoch=ZnodeVersion(leader + 2),
    )
    ours = znodes.encode_state(state)
    content = json.loads(ours)
    by_others = json.dumps(dict(reversed(content.items())), indent=1).encode()
    for data in (ours, by_others):
        assert znodes.decode_state(ORDERS_0, data, version=leader + 2) == state


@pytest.mark.parametrize("number", [b"01", b"+1", b"1_0", b"", b"1,", b"1 2"])
def test_state_with_invalid_isr_is_rejected(number: bytes) -> None:
    data = b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[2,%s]}' % number
    with pytest.raises(RegistryError):
        znodes.decode_state(ORDERS_0, data, version=0)


def test_recovery_state_is_written_only_while_recovering() -> None:
    data = (
        b'{"version":1,"leader":1,"leader_epoch":3,"controller_epoch":1,"isr":[1],'
        b'"leader_recovery_state":1}'
    )
    state = znodes.decode_state(ORDERS_0, data, version=0)
    assert state.recovering
    assert znodes.encode_state(state) == data


def test_config_values_are_strings() -> None:
    data = znodes.encode_config({"retention.ms": "1", "cleanup.policy": "compact"})
    assert data == b'{"version":1,"config":{"cleanup.policy":"compact","retention.ms":"1"}}'
    path = znodes.topic_config_path("orders")
    assert znodes.decode_config(path, data) == {"cleanup.policy": "compact", "retention.ms": "1"}
    assert znodes.decode_config(path, b"") == {}


def test_config_changes_of_both_versions_are_read() -> None:
    data = znodes.encode_config_change("topics/orders")
    assert data == b'{"version":2,"entity_path":"topics/orders"}'
    path = znodes.CONFIG_CHANGE_PREFIX + "0000000007"
    assert znodes.decode_config_change(path, data) == ("topics", "orders")
    old = b'{"version":1,"entity_type":"topics","entity_name":"orders"}'
    assert znodes.decode_config_change(path, old) == ("topics", "orders")


def test_znode_requests_for_the_controller() -> None:
    elected = znodes.encode_partitions([ORDERS_0])
    assert elected == b'{"version":1,"partitions":[{"topic":"orders","partition":0}]}'
    assert znodes.decode_partitions(znodes.PREFERRED_REPLICA_ELECTION, elected) == (ORDERS_0,)
    moved = znodes.encode_reassignment({ORDERS_0: [2, 3]})
    assert moved == (
        b'{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2,3]}]}'
    )
    assert znodes.decode_reassignment(moved) == {ORDERS_0: (2, 3)}
    failed = znodes.encode_log_dir_event(3)
    assert failed == b'{"version":1,"broker":3,"event":1}'
    assert znodes.decode_log_dir_event(znodes.LOG_DIR_EVENT_PREFIX + "0000000001", failed) == 3


def test_producer_id_block_bounds_are_strings() -> None:
    block = ProducerIdBlock(broker=BrokerId(1), start=1000, end=1999)
    data = znodes.encode_producer_id_block(block)
    assert data == b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'
    assert znodes.decode_producer_id_block(data) == block


def test_feature_znode_has_status_enabled() -> None:
    assert znodes.encode_features() == b'{"version":2,"status":1,"features":{}}'


def test_text_is_not_escaped_to_ascii() -> None:
    assert znodes.encode_config({"k": "é"}) == '{"version":1,"config":{"k":"é"}}'.encode()


@pytest.mark.parametrize(
    "read",
    [
        lambda: znodes.decode_controller(b"not json"),
        lambda: znodes.decode_controller(b"[]"),
        lambda: znodes.decode_controller(b'{"version":2}'),
        lambda: znodes.decode_controller(b"\xff"),
        lambda: znodes.decode_controller_epoch(b"x"),
        lambda: znodes.decode_cluster_id(b'{"id":3}'),
        lambda: znodes.decode_broker(1, b'{"version":0}'),
        lambda: znodes.decode_broker(1, b'{"version":5}'),
        lambda: znodes.decode_broker(1, b'{"version":5,"endpoints":["nonsense"]}'),
        lambda: znodes.decode_topic("t", b'{"version":1,"partitions":{"x":[1]}}'),
        lambda: znodes.decode_topic("t", b'{"version":1,"partitions":{"0":["a"]}}'),
        lambda: znodes.decode_topic("t", b'{"version":1,"partitions":[]}'),
        lambda: znodes.decode_topic("t", b'{"version":3,"topic_id":"short","partitions":{}}'),
        lambda: znodes.decode_state(ORDERS_0, b'{"leader":1}', version=0),
        lambda: znodes.decode_config("/config/topics/t", b'{"config":[]}'),
        lambda: znodes.decode_config_change("/c", b'{"version":2,"entity_path":"orders"}'),
        lambda: znodes.decode_partitions("/p", b'{"partitions":["orders-0"]}'),
    ],
)
def test_corrupt_znode_is_an_error_with_its_path(read: Callable[[], object]) -> None:
    with pytest.raises(RegistryError, match=r"RegistryError: /"):
        read()


@pytest.mark.parametrize(
    "path",
    ["/config/users/alice", "/config/brokers/1", "/delegation_token/tokens/x", "/barnabas/secret"],
)
@pytest.mark.parametrize("data", [b'{"SCRAM-SHA-256":"salt=c2FsdA', b'["salt=c2FsdA"]'])
def test_errors_do_not_quote_secrets(path: str, data: bytes) -> None:
    with pytest.raises(RegistryError, match=f"{len(data)} bytes") as caught:
        znodes.decode_json(path, data)
    assert "c2FsdA" not in str(caught.value)
    with pytest.raises(RegistryError, match="c2FsdA"):
        znodes.decode_json("/config/topics/orders", data)
