"""The public Python API against real brokers: what it does, and the messages of its errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

import barnabas
from barnabas import (
    Admin,
    ApiError,
    BarnabasError,
    Client,
    ClientClosed,
    ConfigError,
    ConsumedRecord,
    Consumer,
    ErrorCode,
    GroupConsumer,
    LocalCluster,
    Producer,
    RecordMetadata,
    TopicPartition,
)
from support.ports import free_port
from support.process import ENVIRONMENT
from support.waiting import eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"auto.create.topics.enable": False, "log.retention.ms": -1}
    with LocalCluster(brokers=2, settings=settings) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.bootstrap_servers, request_timeout_ms=10_000) as client:
        yield client


def values(records: list[ConsumedRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def wait_for_partitions(admin: Admin, topic: str, count: int) -> None:
    def is_known() -> bool:
        return len(admin.describe_topic(topic).partitions) == count

    eventually(is_known, f"{topic} has {count} partitions")


# ---- producer and consumer -------------------------------------------------------------------------------------------


def test_record_has_its_key_headers_timestamp_and_offset(client: Client) -> None:
    client.admin().create_topic("letters", num_partitions=2)
    producer = client.producer(compression_type="lz4")
    first = producer.send(
        "letters", "Grüße", key="K.", headers={"from": "Klamm"}, timestamp=1_000, partition=1
    )
    second = producer.send("letters", None, key=b"K.", partition=1, timestamp=2_000)
    assert not first.done()
    assert first.result() == RecordMetadata("letters", 1, 0, 1_000)
    assert second.done()
    assert second.result().offset == 1
    found = list(client.consumer("letters", auto_offset_reset="earliest").read_to_end())
    assert found == [
        ConsumedRecord("letters", 1, 0, 1_000, b"K.", "Grüße".encode(), (("from", b"Klamm"),)),
        ConsumedRecord("letters", 1, 1, 2_000, b"K.", None),
    ]


def test_every_class_connects_with_bootstrap_servers(cluster: LocalCluster) -> None:
    servers = cluster.bootstrap_servers.split(",")
    with Admin(servers) as admin:
        admin.create_topic("alone")
    with Producer(cluster.bootstrap_servers, acks=1, linger_ms=0) as producer:
        assert producer.send("alone", b"1").done()
        producer.send("alone", b"2")
    with Consumer(servers, "alone", auto_offset_reset="earliest") as consumer:
        assert values(list(consumer.read_to_end())) == [b"1", b"2"]
    with GroupConsumer(servers, "loners", ["alone"], auto_offset_reset="earliest") as member:
        assert values(member.poll(30)) == [b"1", b"2"]


def test_producer_sends_when_oldest_record_is_linger_ms_old(client: Client) -> None:
    client.admin().create_topic("lingering")
    producer = client.producer(linger_ms=1)
    first = producer.send("lingering", b"first")
    deliveries = [first]

    def is_sent() -> bool:
        deliveries.append(producer.send("lingering", b"next"))
        return first.done()

    eventually(is_sent, "the buffer is sent")
    producer.flush()
    assert [each.result().offset for each in deliveries] == list(range(len(deliveries)))


def test_full_buffer_is_sent_and_offsets_stay_exact(client: Client) -> None:
    client.admin().create_topic("large", num_partitions=3)
    producer = client.producer(linger_ms=60_000)
    deliveries = [producer.send("large", bytes(100_000), key=str(n)) for n in range(100)]
    assert deliveries[0].done()
    assert not deliveries[-1].done()
    producer.close()
    found = {
        (record.partition, record.offset): record.key
        for record in client.consumer("large", auto_offset_reset="earliest").read_to_end()
    }
    places = [(each.result().partition, each.result().offset) for each in deliveries]
    assert [found[place] for place in places] == [str(n).encode() for n in range(100)]


def test_acks_0_has_no_offset(client: Client) -> None:
    client.admin().create_topic("unconfirmed")
    assert client.producer(acks=0).send("unconfirmed", b"?").result().offset == -1


def test_rejected_record_fails_its_delivery_and_producer_continues(client: Client) -> None:
    client.admin().create_topic("small", configs={"max.message.bytes": 1000})
    producer = client.producer()
    large = producer.send("small", bytes(2000))
    with pytest.raises(ApiError) as raised:
        producer.flush()
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
        large.result()
    assert producer.send("small", b"fits").result().offset == 0


def test_rejected_record_fails_no_records_of_other_partitions(client: Client) -> None:
    client.admin().create_topic("good")
    client.admin().create_topic("narrow", configs={"max.message.bytes": 1000})
    producer = client.producer(linger_ms=60_000)
    good = [producer.send("good", bytes(400_000)) for _ in range(3)]
    narrow = [producer.send("narrow", bytes(size)) for size in (600_000, 10)]
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
        producer.flush()
    assert [each.result().offset for each in good] == [0, 1, 2]
    for delivery in narrow:
        with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
            delivery.result()
    assert producer.send("good", b"next").result().offset == 3


def test_argument_of_wrong_type_fails_only_its_send(client: Client) -> None:
    client.admin().create_topic("typed")
    producer = client.producer(linger_ms=60_000)
    delivery = producer.send("typed", b"0")
    with pytest.raises(TypeError, match="timestamp must be an int, not float"):
        producer.send("typed", b"?", timestamp=1e12)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="partition must be an int, not str"):
        producer.send("typed", b"?", partition="0")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the name of header b'trace' must be str, not bytes"):
        producer.send("typed", b"?", headers={b"trace": b"1"})  # type: ignore[arg-type]
    assert delivery.result().offset == 0
    assert producer.send("typed", b"1").result().offset == 1


def test_failed_send_of_full_buffer_keeps_deliveries_exact(client: Client) -> None:
    client.admin().create_topic("crates", num_partitions=2)
    producer = client.producer(linger_ms=60_000)
    sizes = [400_000, 1_500_000] + [500_000] * 12
    deliveries = [producer.send("crates", bytes(size), partition=0) for size in sizes]
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
        producer.send("crates", bytes(600_000), partition=1)
    assert deliveries[0].result().offset == 0
    for delivery in deliveries[1:]:
        with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
            delivery.result()
    later = [producer.send("crates", b"later", partition=partition) for partition in (0, 1)]
    assert [delivery.result().offset for delivery in later] == [1, 1]


def test_failed_with_block_sends_no_buffered_records(cluster: LocalCluster, client: Client) -> None:
    client.admin().create_topic("dropped")
    with pytest.raises(ZeroDivisionError), Producer(cluster.bootstrap_servers) as producer:
        delivery = producer.send("dropped", b"lost")
        raise ZeroDivisionError
    with pytest.raises(BarnabasError, match="not sent: the with block of the producer raised"):
        delivery.result()
    end = client.admin().list_offsets({TopicPartition("dropped", 0): "latest"})
    assert list(end.values()) == [0]


def test_consumer_iterates_seeks_and_reports_positions(client: Client) -> None:
    client.admin().create_topic("numbers")
    partition = TopicPartition("numbers", 0)
    with client.producer() as producer:
        for number in range(10):
            producer.send("numbers", str(number), timestamp=1_000 + number)
    consumer = client.consumer("numbers", auto_offset_reset="earliest", consumer_timeout_ms=300)
    for record in consumer:
        if record.offset == 3:
            break
    assert consumer.position(partition) == 4
    assert values(consumer.poll(10, max_records=2)) == [b"4", b"5"]
    assert consumer.position(partition) == 6
    consumer.seek(partition, 8)
    assert values(list(consumer)) == [b"8", b"9"]
    consumer.seek_to_beginning()
    assert consumer.poll(10, max_records=1)[0].offset == 0
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 10
    assert consumer.poll(0.05) == []
    assert consumer.offsets_for_times({partition: 1_007}) == {partition: 7}
    assert consumer.offsets_for_times({partition: 9_999}) == {partition: None}
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 10}
    consumer.assign({partition: 9})
    assert values(list(consumer.read_to_end())) == [b"9"]
    consumer.assign(consumer.partitions_for_topic("numbers"))
    assert consumer.assignment() == [partition]
    assert len(list(consumer.read_to_end())) == 10


def test_consumer_starts_at_latest_by_default(client: Client) -> None:
    client.admin().create_topic("news")
    producer = client.producer(linger_ms=0)
    producer.send("news", b"old")
    consumer = client.consumer("news")
    producer.send("news", b"new")
    assert values(consumer.poll(10)) == [b"new"]


def test_new_consumer_reads_partitions_added_since_last_use(
    cluster: LocalCluster, client: Client
) -> None:
    client.admin().create_topic("grown")
    client.producer(linger_ms=0).send("grown", b"0")
    client.consumer("grown").close()
    client.admin().create_partitions("grown", 2)
    for address in cluster.bootstrap_servers.split(","):  # the client may ask either broker
        with Admin(address) as admin:
            wait_for_partitions(admin, "grown", 2)
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send("grown", b"1", partition=1)
    consumer = client.consumer("grown", auto_offset_reset="earliest")
    assert {record.value for record in consumer.read_to_end()} == {b"0", b"1"}
    client.admin().create_partitions("grown", 3)
    eventually(lambda: len(consumer.partitions_for_topic("grown")) == 3, "the new partition")


# ---- groups ----------------------------------------------------------------------------------------------------------


def test_group_continues_after_processed_records(cluster: LocalCluster, client: Client) -> None:
    client.admin().create_topic("orders")
    partition = TopicPartition("orders", 0)
    with client.producer() as producer:
        for number in range(6):
            producer.send("orders", str(number))

    def member() -> GroupConsumer:
        return client.group_consumer("billing", ["orders"], auto_offset_reset="earliest")

    with member() as consumer:
        for record in consumer:
            if record.offset == 1:
                break
        assert consumer.group_id == "billing"
        assert consumer.subscription() == ["orders"]
        assert consumer.assignment() == [partition]
    assert client.admin().list_group_offsets("billing") == {partition: 2}

    with pytest.raises(ZeroDivisionError), member() as consumer:
        assert next(iter(consumer)).value == b"2"
        assert next(iter(consumer)).value == b"3"
        raise ZeroDivisionError
    assert client.admin().list_group_offsets("billing") == {partition: 3}


def test_group_commits_by_hand_without_auto_commit(client: Client) -> None:
    client.admin().create_topic("manual")
    partition = TopicPartition("manual", 0)
    with client.producer() as producer:
        for number in range(6):
            producer.send("manual", str(number))
    with client.group_consumer(
        "careful", ["manual"], auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        first, second, _ = consumer.poll(30, max_records=3)
        assert consumer.committed(partition) is None
        consumer.commit(first)
        assert consumer.committed(partition) == 1
        consumer.commit({partition: second.offset + 1})
        assert consumer.committed(partition) == 2
        consumer.commit()
        assert consumer.committed(partition) == consumer.position(partition) == 3
        consumer.seek(partition, 1)
        consumer.commit()
        assert consumer.committed(partition) == 1
        assert consumer.poll(30, max_records=1)[0].value == b"1"
    assert client.admin().list_group_offsets("careful") == {partition: 1}


def test_failed_with_block_keeps_explicit_commit(cluster: LocalCluster, client: Client) -> None:
    client.admin().create_topic("signed")
    with client.producer() as producer:
        for number in range(3):
            producer.send("signed", str(number))
    with (
        pytest.raises(ZeroDivisionError),
        client.group_consumer("clerks", ["signed"], auto_offset_reset="earliest") as consumer,
    ):
        for record in consumer:
            if record.offset == 1:
                consumer.commit(record)
                raise ZeroDivisionError
    assert client.admin().list_group_offsets("clerks") == {TopicPartition("signed", 0): 2}


def test_commit_is_retried_after_restart_of_coordinator() -> None:
    partition = TopicPartition("orders", 0)
    with LocalCluster() as running, Client(running.bootstrap_servers) as client:
        running.create_topic("orders")
        client.producer(linger_ms=0).send("orders", b"0")
        consumer = client.group_consumer("billing", ["orders"], auto_offset_reset="earliest")
        (record,) = consumer.poll(30)
        for offset in (1, 2):
            running.kill(1)
            running.restore()
            consumer.commit(record if offset == 1 else {partition: offset})
            assert consumer.committed(partition) == offset


def test_callback_of_revoked_partitions_can_commit_on_close(
    cluster: LocalCluster, client: Client
) -> None:
    client.admin().create_topic("handed-over")
    client.producer(linger_ms=0).send("handed-over", b"0")
    with Client(cluster.bootstrap_servers) as other:
        consumer = other.group_consumer(
            "orderly",
            ["handed-over"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            on_revoked=lambda _: consumer.commit(),
        )
        assert values(consumer.poll(30)) == [b"0"]
    offsets = client.admin().list_group_offsets("orderly")
    assert offsets == {TopicPartition("handed-over", 0): 1}


def test_iteration_waits_for_group_before_its_timeout_counts(client: Client) -> None:
    client.admin().create_topic("awaited")
    client.producer(linger_ms=0).send("awaited", b"0")
    consumer = client.group_consumer(
        "patient", ["awaited"], auto_offset_reset="earliest", consumer_timeout_ms=0.001
    )
    # A member needs several round trips to join. Then the timeout may end the loop before a fetch returns.
    assert values(list(consumer)) in ([b"0"], [])
    assert consumer.assignment() == [TopicPartition("awaited", 0)]


def test_callback_of_assigned_partitions_can_seek(client: Client) -> None:
    client.admin().create_topic("replayed")
    partition = TopicPartition("replayed", 0)
    with client.producer() as producer:
        for number in range(10):
            producer.send("replayed", str(number))
    client.admin().alter_group_offsets("historians", {partition: 7})
    consumer = client.group_consumer(
        "historians", ["replayed"], on_assigned=lambda added: consumer.seek(added[0], 0)
    )
    assert len(consumer.poll(30)) == 10
    assert consumer.position(partition) == 10


def test_members_share_partitions_and_buffered_records_move(cluster: LocalCluster) -> None:
    with (
        Client(cluster.bootstrap_servers) as one,
        Client(cluster.bootstrap_servers, client_id="second") as two,
    ):
        one.admin().create_topic("shared", num_partitions=2)
        with one.producer() as producer:
            for number in range(20):
                producer.send("shared", str(number), partition=number % 2)
        revoked: list[TopicPartition] = []
        first = one.group_consumer(
            "team",
            ["shared"],
            auto_offset_reset="earliest",
            heartbeat_interval_ms=50,
            on_revoked=revoked.extend,
        )
        seen = values(first.poll(30, max_records=1))
        second = two.group_consumer("team", ["shared"], heartbeat_interval_ms=50)

        def is_shared() -> bool:
            seen.extend(values(first.poll(0.05, max_records=1)))
            seen.extend(values(second.poll(0.05, max_records=1)))
            return len(first.assignment()) == len(second.assignment()) == 1

        eventually(is_shared, "both members have a partition")
        assert revoked == [TopicPartition("shared", 0), TopicPartition("shared", 1)]
        eventually(lambda: is_shared() and len(set(seen)) == 20, "all records are read")
        # Each record was processed once: the first member committed before the rebalance, and dropped its buffer.
        assert sorted(int(value or b"") for value in seen) == list(range(20))
        group = one.admin().describe_group("team")
        assert group.state == "Stable"
        assert {member.client_id for member in group.members} == {"barnabas", "second"}


def test_committed_does_not_disturb_join(cluster: LocalCluster) -> None:
    with Client(cluster.bootstrap_servers) as one, Client(cluster.bootstrap_servers) as two:
        one.admin().create_topic("halved", num_partitions=2)
        partition = TopicPartition("halved", 0)
        first = one.group_consumer("halves", ["halved"], heartbeat_interval_ms=50)
        eventually(lambda: first.poll(0.05) == [] != first.assignment(), "the first has joined")
        first.commit({partition: 0})
        second = two.group_consumer("halves", ["halved"], heartbeat_interval_ms=50)

        def is_joining() -> bool:
            second.poll(0.05)
            return one.admin().describe_group("halves").state == "PreparingRebalance"

        eventually(is_joining, "the second member waits for the first")
        assert second.committed(partition) == 0
        assert second.committed(TopicPartition("halved", 7)) is None
        joining = one.admin().describe_group("halves")
        assert (joining.state, len(joining.members)) == ("PreparingRebalance", 2)
        with pytest.raises(ApiError, match="REBALANCE_IN_PROGRESS"):
            second.commit({partition: 1})

        def is_shared() -> bool:
            first.poll(0.05)
            second.poll(0.05)
            return len(first.assignment()) == len(second.assignment()) == 1

        eventually(is_shared, "both members have a partition")


# ---- admin -----------------------------------------------------------------------------------------------------------


def test_admin_manages_topics_configs_and_records(cluster: LocalCluster, client: Client) -> None:
    admin = client.admin()
    admin.create_topic("checked", validate_only=True)
    assert "checked" not in admin.list_topics()
    admin.create_topic(
        "managed", num_partitions=2, replication_factor=2, configs={"retention.ms": 60_000}
    )
    eventually(lambda: "managed" in admin.list_topics(), "the topic is listed")
    topic = admin.describe_topic("managed")
    assert (len(topic.partitions), topic.replication_factor) == (2, 2)
    admin.create_partitions("managed", 3)
    wait_for_partitions(admin, "managed", 3)

    assert admin.describe_configs(topic="managed")["retention.ms"].value == "60000"
    admin.alter_configs({"retention.ms": None, "preallocate": True}, topic="managed")

    def is_changed() -> bool:
        found = admin.describe_configs(topic="managed")
        return found["retention.ms"].value == "-1" and found["preallocate"].value == "true"

    eventually(is_changed, "the configs are changed")
    assert admin.describe_configs(broker=1)["log.retention.ms"].value == "-1"

    partition = TopicPartition("managed", 0)
    client.producer(linger_ms=0).send("managed", b"old", partition=0, timestamp=1_000)
    assert admin.list_offsets({partition: 500}) == {partition: 0}
    assert admin.delete_records({partition: -1}) == {partition: 1}
    assert admin.list_offsets({partition: "earliest"}) == {partition: 1}
    admin.delete_topic("managed")
    eventually(lambda: "managed" not in admin.list_topics(), "the topic is deleted")


def test_admin_manages_groups_and_shows_cluster(client: Client) -> None:
    admin = client.admin()
    admin.create_topic("grouped")
    partition = TopicPartition("grouped", 0)
    admin.alter_group_offsets("offline", {partition: 5})
    assert "offline" in admin.list_groups()
    assert admin.describe_group("offline").state == "Empty"
    assert admin.list_group_offsets("offline") == {partition: 5}
    admin.delete_group("offline")
    assert admin.describe_group("offline").state == "Dead"
    assert "__consumer_offsets" in admin.list_topics(internal=True)
    assert "__consumer_offsets" not in admin.list_topics()
    found = admin.describe_cluster()
    assert sorted(found.brokers) == [1, 2]
    assert found.controller in found.brokers


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_unknown_topic_is_named_with_next_step(client: Client) -> None:
    message = (
        "UNKNOWN_TOPIC_OR_PARTITION: topic 'nope' does not exist; create it with Admin.create_topic"
    )
    for call in (
        lambda: client.producer().send("nope", b"?"),
        lambda: client.consumer("nope"),
        lambda: client.group_consumer("g", ["nope"]),
        lambda: client.admin().describe_topic("nope"),
    ):
        with pytest.raises(ApiError) as raised:
            call()
        assert str(raised.value) == message


def test_errors_have_kafkas_names(client: Client) -> None:
    admin = client.admin()
    admin.create_topic("once")
    with pytest.raises(ApiError) as raised:
        admin.create_topic("once")
    assert raised.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(ApiError, match=r"INVALID_CONFIG: .*retention\.mss"):
        admin.create_topic("never", configs={"retention.mss": 1})
    with pytest.raises(ApiError, match="INVALID_PARTITIONS"):
        admin.create_partitions("once", 1)
    with pytest.raises(ApiError, match="GROUP_ID_NOT_FOUND"):
        admin.delete_group("nobody")
    with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION: once has no partition 7"):
        client.producer().send("once", b"?", partition=7)
    with pytest.raises(ApiError, match="once-7 is not assigned to this consumer"):
        client.consumer("once").seek(TopicPartition("once", 7), 0)


def test_unreachable_broker_is_named_at_once() -> None:
    address = f"127.0.0.1:{free_port()}"
    with Client(address) as client, pytest.raises(barnabas.Unreachable) as raised:
        client.consumer("orders")
    why = f"NETWORK_EXCEPTION: no broker reached: {address} (Connection refused)"
    assert str(raised.value) == why
    with pytest.raises(ConfigError, match=r"'localhost:x' is not an address; write host:port"):
        Producer("localhost:x")


def test_wrong_setting_is_named(client: Client) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'ack'"):
        client.producer(ack="all")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="enable_idempotence: needs acks='all'"):
        client.producer(acks=1, enable_idempotence=True)
    with pytest.raises(ConfigError, match="linger_ms: -1 is less than 0"):
        client.producer(linger_ms=-1)
    with pytest.raises(ConfigError, match="topics: is empty"):
        client.group_consumer("g", [])
    with pytest.raises(ConfigError, match="topic, broker: pass one of them"):
        client.admin().describe_configs()
    with pytest.raises(ConfigError, match="'newest' is not 'earliest', 'latest' or a time"):
        client.admin().list_offsets({TopicPartition("x", 0): "newest"})  # type: ignore[dict-item]


def test_use_after_close_is_reported(cluster: LocalCluster) -> None:
    client = Client(cluster.bootstrap_servers)
    client.admin().create_topic("closed")
    producer, consumer = client.producer(), client.consumer("closed")
    delivery = producer.send("closed", b"flushed on close")
    client.close()
    client.close()
    assert delivery.result().offset == 0
    for call in (
        lambda: producer.send("closed", b"?"),
        producer.flush,
        consumer.poll,
        lambda: next(iter(consumer)),
        lambda: consumer.position(TopicPartition("closed", 0)),
    ):
        with pytest.raises(ClientClosed, match=r"this (Producer|Consumer) is closed; create a new"):
            call()
    with pytest.raises(ClientClosed, match="this Client is closed; create a new one"):
        client.producer()


def test_import_of_package_loads_no_client() -> None:
    program = (
        "import sys, barnabas\n"
        "loaded = [name for name in sys.modules if name.startswith('barnabas.')]\n"
        "assert loaded == ['barnabas.compiled'], loaded\n"
        "barnabas.Client\n"
        "assert 'barnabas.broker' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, check=True, timeout=30)
