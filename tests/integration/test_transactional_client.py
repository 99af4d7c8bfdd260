"""Transactions with the Python client on real brokers: commit, abort, offsets of groups, fencing, and wrong use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest

from barnabas import (
    ApiError,
    Client,
    ConfigError,
    ConsumedRecord,
    ErrorCode,
    GroupConsumer,
    LocalCluster,
    Producer,
    TopicPartition,
)
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.client.transactions import GroupSender, TransactionLink
from support.waiting import eventually

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.bootstrap_servers, request_timeout_ms=15_000) as client:
        yield client


def read_values(
    client: Client, topic: str, level: Literal["read_committed", "read_uncommitted"]
) -> list[bytes | None]:
    consumer = client.consumer(topic, auto_offset_reset="earliest", isolation_level=level)
    with consumer:
        return [record.value for record in consumer.read_to_end()]


def committed(client: Client, topic: str) -> list[bytes | None]:
    return read_values(client, topic, "read_committed")


def poll_once(consumer: GroupConsumer) -> list[ConsumedRecord]:
    found: list[ConsumedRecord] = []

    def has_records() -> bool:
        found.extend(consumer.poll(0.2))
        return bool(found)

    eventually(has_records, "the consumer gets records")
    return found


def test_read_committed_consumers_see_only_committed_transactions(client: Client) -> None:
    client.admin().create_topic("orders", num_partitions=3)
    producer = client.producer(transactional_id="orders-1", compression_type="lz4")
    with producer.transaction():
        for number in range(6):
            producer.send("orders", f"first {number}", partition=number % 3)
        producer.flush()
        assert committed(client, "orders") == []
        assert len(read_values(client, "orders", "read_uncommitted")) == 6
    eventually(lambda: len(committed(client, "orders")) == 6, "the first transaction is visible")
    with pytest.raises(ZeroDivisionError), producer.transaction():
        delivered = producer.send("orders", "dropped", partition=0)
        delivered.result()
        unsent = producer.send("orders", "never sent", partition=0)
        raise ZeroDivisionError
    with pytest.raises(Exception, match="the transaction was aborted"):
        unsent.result()
    with producer.transaction():
        producer.send("orders", "last", partition=0)

    eventually(lambda: b"last" in committed(client, "orders"), "the last one is visible")
    assert b"dropped" not in committed(client, "orders")
    assert b"dropped" in read_values(client, "orders", "read_uncommitted")


def test_offsets_of_a_group_are_committed_with_the_transaction(client: Client) -> None:
    admin = client.admin()
    admin.create_topic("input", num_partitions=1)
    admin.create_topic("output", num_partitions=1)
    with client.producer() as plain:
        for number in range(4):
            plain.send("input", str(number))
    partition = TopicPartition("input", 0)
    consumer = client.group_consumer(
        "copier",
        ["input"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = client.producer(transactional_id="copier-0")
    records = poll_once(consumer)
    with pytest.raises(RuntimeError), producer.transaction():
        producer.send("output", records[0].value)
        producer.send_offsets_to_transaction(consumer)
        raise RuntimeError
    assert consumer.committed(partition) is None
    consumer.seek_to_committed()
    records = poll_once(consumer)
    assert [record.value for record in records] == [b"0", b"1", b"2", b"3"]
    with producer.transaction():
        for record in records:
            producer.send("output", record.value)
        producer.send_offsets_to_transaction(consumer)
    eventually(lambda: consumer.committed(partition) == 4, "the offsets are committed")
    assert committed(client, "output") == [b"0", b"1", b"2", b"3"]
    consumer.close()
    late = client.group_consumer("copier", ["input"], enable_auto_commit=False)
    eventually(lambda: bool(late.poll(0.1) or late.assignment()), "the member joins")
    late._member.member.generation -= 1
    producer.begin_transaction()
    with pytest.raises(ApiError) as caught:
        producer.send_offsets_to_transaction(late, {partition: 9})
    assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
    producer.abort_transaction()
    assert late.committed(partition) == 4


def test_second_producer_fences_the_first(client: Client) -> None:
    client.admin().create_topic("fenced", num_partitions=1)
    first = client.producer(transactional_id="one-at-a-time")
    first.begin_transaction()
    first.send("fenced", "of the first").result()
    second = client.producer(transactional_id="one-at-a-time")
    with pytest.raises(ApiError, match="another producer uses it") as caught:
        first.commit_transaction()
    assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(ApiError) as again:
        first.begin_transaction()
    assert again.value.code is ErrorCode.PRODUCER_FENCED
    with second.transaction():
        second.send("fenced", "of the second")
    eventually(lambda: committed(client, "fenced") == [b"of the second"], "only the second")
    first.close()


def test_timed_out_transaction_is_aborted(client: Client) -> None:
    client.admin().create_topic("slow", num_partitions=1)
    producer = client.producer(transactional_id="slow-1", transaction_timeout_ms=300)
    producer.begin_transaction()
    producer.send("slow", "too late").result()
    partition = TopicPartition("slow", 0)
    with client.consumer(isolation_level="read_committed") as consumer:

        def is_aborted() -> bool:
            return consumer.end_offsets([partition])[partition] == 2

        eventually(is_aborted, "the abort marker is written")
    with pytest.raises(ApiError, match="open for more than 300 ms"):
        producer.commit_transaction()
    assert committed(client, "slow") == []


def test_failed_transaction_can_only_be_aborted(client: Client) -> None:
    admin = client.admin()
    admin.create_topic("small", num_partitions=1, configs={"max.message.bytes": 1000})
    producer = client.producer(transactional_id="large-records")
    with pytest.raises(ApiError) as caught, producer.transaction():
        producer.send("small", b"x" * 5000).result()
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    producer.begin_transaction()
    with pytest.raises(ApiError):
        producer.send("small", b"x" * 5000).result()
    for call in (producer.commit_transaction, producer.begin_transaction):
        with pytest.raises(ApiError, match=r"failed .*MESSAGE_TOO_LARGE.*; abort it") as caught:
            call()
        assert caught.value.code is ErrorCode.INVALID_TXN_STATE, "never a retriable code"
    before = producer._producer.ensure_identity()
    producer.abort_transaction()
    after = producer._producer.ensure_identity()
    assert after > before, "a new epoch, because the sequence numbers are unknown"
    with producer.transaction():
        producer.send("small", "fits")
    eventually(lambda: committed(client, "small") == [b"fits"], "the producer works again")


def test_next_transaction_works_after_partition_could_not_be_added(
    cluster: LocalCluster, client: Client
) -> None:
    for name in ("first", "deleted"):
        client.admin().create_topic(name, num_partitions=1)
    producer = client.producer(transactional_id="rejected-partitions")
    assert producer._connection._cluster.topic("deleted").partitions, "the metadata is cached"
    cluster.delete_topics(["deleted"])
    for number in range(2):  # at first the coordinator has no transaction, then a committed one
        with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"), producer.transaction():
            producer.send("deleted", "dropped", partition=0)
        with producer.transaction():
            producer.send("first", str(number))
    eventually(lambda: committed(client, "first") == [b"0", b"1"], "both are committed")


def test_next_transaction_works_after_group_could_not_be_added(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin().create_topic("second", num_partitions=1)
    producer = client.producer(transactional_id="rejected-groups")
    producer.begin_transaction()
    with monkeypatch.context() as patch:
        lose_request(patch, internals(producer).link, "add_group")
        with pytest.raises(ApiError, match="lost"):
            internals(producer).send_offsets(GroupSender("g"), {TopicPartition("second", 0): 0})
    producer.abort_transaction()
    with producer.transaction():
        producer.send("second", "kept")
    eventually(lambda: committed(client, "second") == [b"kept"], "the producer works again")


def test_abort_ends_transaction_whose_first_response_was_lost(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin().create_topic("unanswered", num_partitions=1)
    producer = client.producer(transactional_id="unanswered-1")
    with monkeypatch.context() as patch:
        lose_response(patch, internals(producer).link, "add_partitions")
        producer.begin_transaction()
        with pytest.raises(ApiError, match="lost"):
            producer.send("unanswered", "dropped").result()
    assert describe_state(client, "unanswered-1") == "Ongoing"
    producer.abort_transaction()
    assert describe_state(client, "unanswered-1") == "Empty", "aborted, and then initialized"
    with producer.transaction():
        producer.send("unanswered", "kept")
    eventually(lambda: committed(client, "unanswered") == [b"kept"], "the producer works again")


def test_abort_can_be_repeated_after_new_epoch_was_lost(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin().create_topic("repeated", num_partitions=1)
    producer = client.producer(transactional_id="repeated-1")
    producer.begin_transaction()
    producer.send("repeated", "dropped").result()
    internals(producer).fail(ApiError(ErrorCode.NETWORK_EXCEPTION))
    with monkeypatch.context() as patch:
        lose_response(patch, internals(producer).link, "init")
        with pytest.raises(ApiError, match="lost"):
            producer.abort_transaction()
    producer.abort_transaction()
    with producer.transaction():
        producer.send("repeated", "kept")
    eventually(lambda: committed(client, "repeated") == [b"kept"], "the producer works again")


def test_next_transaction_begins_after_abort_of_one_that_could_not_be_aborted(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin().create_topic("unended", num_partitions=1)
    producer = client.producer(transactional_id="unended-1")
    with (
        monkeypatch.context() as patch,
        pytest.raises(ZeroDivisionError),
        producer.transaction(),
    ):
        producer.send("unended", "dropped").result()
        lose_request(patch, internals(producer).link, "end")
        raise ZeroDivisionError
    assert describe_state(client, "unended-1") == "Ongoing"
    with producer.transaction():
        producer.send("unended", "kept")
    eventually(lambda: committed(client, "unended") == [b"kept"], "only the second")


def test_commit_with_unknown_result_can_be_aborted(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin().create_topic("unknown", num_partitions=1)
    producer = client.producer(transactional_id="unknown-1")
    with monkeypatch.context() as patch:
        lose_request(patch, internals(producer).link, "end")
        with pytest.raises(ApiError, match="lost"), producer.transaction():
            producer.send("unknown", "aborted")
    with pytest.raises(ApiError, match="result of the last commit is unknown; repeat it, or abort"):
        producer.begin_transaction()
    producer.abort_transaction()
    with monkeypatch.context() as patch:
        lose_request(patch, internals(producer).link, "end")
        with pytest.raises(ApiError, match="lost"), producer.transaction():
            producer.send("unknown", "repeated")
    producer.commit_transaction()
    eventually(lambda: committed(client, "unknown") == [b"repeated"], "the second is committed")


@pytest.mark.parametrize("is_abort_answered", [True, False])
def test_abort_reports_commit_that_took_effect(
    client: Client, monkeypatch: pytest.MonkeyPatch, is_abort_answered: bool
) -> None:
    name = f"effective-{is_abort_answered}"
    client.admin().create_topic(name, num_partitions=1)
    producer = client.producer(transactional_id=name)
    with monkeypatch.context() as patch:
        lose_response(patch, internals(producer).link, "end")
        with pytest.raises(ApiError, match="lost"), producer.transaction():
            producer.send(name, "first")
    if not is_abort_answered:
        with monkeypatch.context() as patch:
            lose_response(patch, internals(producer).link, "init")
            with pytest.raises(ApiError, match="lost"):
                producer.abort_transaction()
    with pytest.raises(ApiError, match="commit has taken effect") as caught, producer.transaction():
        raise AssertionError("the block must not run: the caller sends the first record again")
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    with producer.transaction():
        producer.send(name, "second")
    eventually(lambda: committed(client, name) == [b"first", b"second"], "both are committed")


def internals(producer: Producer) -> TransactionalProducer:
    assert isinstance(producer._producer, TransactionalProducer)
    return producer._producer


def lose_response(patch: pytest.MonkeyPatch, link: TransactionLink, method: str) -> None:
    """Let requests of the link succeed at the coordinator, but fail at the client."""
    request = getattr(link, method)

    def fail(*arguments: Any, **settings: Any) -> None:
        identity = link.identity
        request(*arguments, **settings)
        link.identity = identity
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, "the response was lost")

    patch.setattr(link, method, fail)


def lose_request(patch: pytest.MonkeyPatch, link: TransactionLink, method: str) -> None:
    """Let requests of the link fail before they are sent."""

    def fail(*arguments: Any, **settings: Any) -> None:
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, "the request was lost")

    patch.setattr(link, method, fail)


def describe_state(client: Client, transactional_id: str) -> str:
    return TransactionAdmin(client._cluster).describe_transaction(transactional_id).state


def test_wrong_use_names_the_next_step(client: Client) -> None:
    client.admin().create_topic("wrong", num_partitions=1)
    producer = client.producer(transactional_id="wrong-use")
    with pytest.raises(ApiError, match="no transaction is open; begin one first"):
        producer.send("wrong", "outside")
    for call in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(ApiError, match="no transaction"):
            call()
    with pytest.raises(ApiError, match="topic 'missing' does not exist"), producer.transaction():
        producer.send("missing", "record")
    with producer.transaction(), pytest.raises(ApiError, match="commit or abort it first"):
        producer.begin_transaction()
    with pytest.raises(ApiError, match="create it with transactional_id"):
        client.producer().begin_transaction()
    member = client.group_consumer("automatic", ["wrong"])
    with pytest.raises(ConfigError, match="must be False"), producer.transaction():
        producer.send_offsets_to_transaction(member)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"transactional_id": ""}, "is empty"),
        ({"transactional_id": "a", "acks": 1}, "needs acks='all'"),
        ({"transactional_id": "a", "enable_idempotence": False}, "needs enable_idempotence"),
        ({"transactional_id": "a", "transaction_timeout_ms": 0}, "is not greater than 0"),
    ],
)
def test_invalid_settings_are_rejected(
    client: Client, settings: dict[str, object], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        client.producer(**settings)  # type: ignore[arg-type]  # invalid on purpose


def test_too_long_timeout_is_rejected_by_the_coordinator(client: Client) -> None:
    with pytest.raises(ApiError, match=r"transaction\.max\.timeout\.ms") as caught:
        client.producer(transactional_id="patient", transaction_timeout_ms=2**31 - 1)
    assert caught.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_unknown_isolation_level_is_rejected(client: Client) -> None:
    with pytest.raises(ConfigError, match="'read_committed'"):
        client.consumer(isolation_level="committed")  # type: ignore[arg-type]  # invalid


def test_close_aborts_the_open_transaction(client: Client) -> None:
    client.admin().create_topic("closed", num_partitions=1)
    with client.producer(transactional_id="closing") as producer:
        producer.begin_transaction()
        producer.send("closed", "dropped").result()
    with client.producer() as plain:
        plain.send("closed", "kept")
    eventually(lambda: committed(client, "closed") == [b"kept"], "the transaction is aborted")
