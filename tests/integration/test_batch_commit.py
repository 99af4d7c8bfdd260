"""The commit of the exactly-once Spark sink on real brokers, without Spark: crashes between its steps, stale drivers,
and transactions that time out."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from uuid import uuid4

import pytest

from barnabas import Client, ConfigError, LocalCluster
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.client.transaction_states import (
    find_transaction_coordinators,
    list_open_transactions,
)
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, TopicPartition
from barnabas.spark.batch_commit import BatchCommit
from barnabas.spark.commit_log import CommitLog
from barnabas.spark.commit_records import (
    COMMIT_TOPIC,
    CommitRecord,
    LostTransactions,
    SinkKind,
    TaskTransaction,
    TransactionalIds,
    TransactionOutcome,
    encode_record,
    task_id_prefix,
)
from barnabas.spark.options import WriteOptions, parse_write
from barnabas.spark.task_transactions import (
    fresh_transactional_id,
    open_transaction,
    transaction_identity,
)
from support.waiting import eventually

SETTINGS = {
    "transaction.state.log.num.partitions": 6,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "default.replication.factor": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=SETTINGS) as running:
        yield running


class World:
    """One sink: its topic, its tasks and its drivers."""

    def __init__(self, client: Client, cluster: Cluster, servers: str) -> None:
        self.client = client
        self.cluster = cluster
        self.servers = servers
        self.scope = uuid4().hex
        self.topic = f"sink-{self.scope[:8]}"
        client.admin().create_topic(self.topic, num_partitions=1)

    def options(self, **more: str) -> WriteOptions:
        return parse_write(
            {
                "kafka.bootstrap.servers": self.servers,
                "topic": self.topic,
                "exactlyOnce": "true",
                **{name.replace("__", "."): value for name, value in more.items()},
            }
        )

    def task(
        self, value: str, *, transactional_id: str | None = None, **more: str
    ) -> TaskTransaction:
        """A task that has written one record, and whose transaction is open."""
        name = transactional_id or fresh_transactional_id(self.scope)
        producer = open_transaction(self.cluster, name, self.options(**more))
        producer.send(self.topic, value.encode(), partition=0)
        producer.send_buffers()
        return transaction_identity(producer)

    def driver(
        self,
        batch_id: int,
        *own: TaskTransaction,
        run_id: str = "run",
        kind: SinkKind = SinkKind.STREAM,
        **more: str,
    ) -> BatchCommit:
        return BatchCommit(
            self.cluster,
            self.options(**more),
            kind=kind,
            scope=self.scope,
            batch_id=batch_id,
            run_id=run_id,
            own=own,
        )

    def log(self) -> CommitLog:
        return CommitLog(self.cluster, self.scope, self.options().client)

    def crash_after_record(self, batch_id: int, *own: TaskTransaction) -> None:
        self.log().append(CommitRecord(batch_id=batch_id, run_id="first", transactions=own))

    def coordinator(self, transaction: TaskTransaction) -> int:
        """The broker that coordinates a transaction."""
        [(_, port)] = find_transaction_coordinators(self.cluster, [transaction.transactional_id])
        brokers = self.cluster.refresh([]).brokers
        return next(number for number, each in brokers.items() if each.port == port)

    def is_settled(self) -> bool:
        """Whether no transaction holds back read_committed readers."""
        partition = TopicPartition(self.topic, 0)
        stable = latest_offsets(self.cluster, [partition], committed=True)
        return stable == latest_offsets(self.cluster, [partition])

    def values(self) -> list[str]:
        """What a read_committed reader finds when all transactions have ended."""
        eventually(self.is_settled, "the end of all transactions")
        consumer = self.client.consumer(
            self.topic, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        with consumer:
            return [(record.value or b"").decode() for record in consumer.read_to_end()]

    def wait_for_timeout(self, *transactions: TaskTransaction) -> None:
        names = {each.transactional_id for each in transactions}
        eventually(
            lambda: (
                not names & set(list_open_transactions(self.cluster, task_id_prefix(self.scope)))
            ),
            "the timeout",
        )


@pytest.fixture
def world(cluster: LocalCluster) -> Iterator[World]:
    servers = cluster.bootstrap_servers
    with Client(servers) as client, Cluster(servers) as connection:
        yield World(client, connection, servers)


def test_commit_makes_rows_of_all_tasks_visible_once(world: World) -> None:
    own = [world.task("a"), world.task("b"), world.task("c")]
    for _ in range(2):  # Spark may call commit again
        world.driver(0, *own).commit()
        assert sorted(world.values()) == ["a", "b", "c"]
    world.driver(1, world.task("d")).commit()
    world.driver(0, world.task("a"), kind=SinkKind.JOB).commit()
    assert sorted(world.values()) == ["a", "b", "c", "d"]


def test_anonymous_job_leaves_no_record(world: World) -> None:
    world.driver(0, world.task("a"), kind=SinkKind.ANONYMOUS_JOB).commit()
    assert world.values() == ["a"]
    assert world.log().last() is None


def test_record_needs_two_in_sync_replicas(world: World) -> None:
    world.log()
    configs = world.client.admin().describe_configs(topic=COMMIT_TOPIC)
    assert configs["min.insync.replicas"].value == "2"


def test_outdated_checkpoint_is_an_error(world: World) -> None:
    for batch_id in range(2):
        world.driver(batch_id, world.task(f"{batch_id}")).commit()
    with pytest.raises(ConfigError, match="batch 0 is older than batch 1, the last one"):
        world.driver(0, world.task("other rows")).commit()
    assert world.values() == ["0", "1"]


def test_copied_checkpoint_with_other_topic_is_an_error(world: World) -> None:
    world.driver(0, world.task("a")).commit()
    own = world.task("b")
    with pytest.raises(ConfigError, match=f"batch 0 of this sink was written to .* {world.topic}"):
        world.driver(0, own, topic="other").commit()
    assert world.values() == ["a"]
    world.driver(1, world.task("c"), topic="other").commit()  # a new topic
    assert world.values() == ["a", "c"]


def test_crash_before_record_aborts_first_run(world: World) -> None:
    for value in ("a", "b"):
        world.task(value)
    own = [world.task("a"), world.task("b")]
    assert not world.is_settled()
    world.driver(0, *own, run_id="second").commit()
    assert sorted(world.values()) == ["a", "b"]


def test_crash_after_record_commits_first_run(world: World) -> None:
    world.crash_after_record(0, world.task("first a"), world.task("first b"))
    # The second run divides the rows between its tasks in another way.
    world.driver(0, world.task("second a b"), run_id="second").commit()
    assert sorted(world.values()) == ["first a", "first b"]


def test_crash_while_record_is_written_decides_nothing(world: World) -> None:
    log, own = world.log(), world.task("first")
    record = CommitRecord(batch_id=0, run_id="first", transactions=(own,))
    log.producer.begin()
    log.producer.send(
        COMMIT_TOPIC, encode_record(world.scope, record), key=world.scope.encode(), partition=0
    )
    log.producer.send_buffers()
    world.driver(0, world.task("second"), run_id="second").commit()
    assert world.values() == ["second"]


def test_abandoned_attempt_of_a_task_is_aborted(world: World) -> None:
    world.driver(0, world.task("a")).commit()
    world.task("killed")
    world.driver(1, world.task("b")).commit()
    assert world.values() == ["a", "b"]


def test_stale_driver_cannot_decide(world: World) -> None:
    stale, own = world.log(), world.task("stale")
    assert stale.last() is None
    world.driver(0, world.task("new"), run_id="second").commit()
    with pytest.raises(ApiError) as caught:
        stale.append(CommitRecord(batch_id=0, run_id="first", transactions=(own,)))
    assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    world.driver(0, own).abort()
    assert world.values() == ["new"]


def test_second_driver_repeats_batch_while_first_one_reuses_ids(world: World) -> None:
    ids = TransactionalIds("worker")

    def task(batch_id: int) -> TaskTransaction:
        transactional_id = ids.take(world.scope, batch_id)
        return world.task(f"batch {batch_id}", transactional_id=transactional_id)

    for batch_id in range(3):
        world.driver(batch_id, task(batch_id)).commit()
        following = task(batch_id + 1)  # must not hide the outcome of this batch
        repeated = world.task(f"batch {batch_id} again")
        world.driver(batch_id, repeated, run_id="second").commit()
        world.driver(batch_id + 1, following).abort()
    assert world.values() == ["batch 0", "batch 1", "batch 2"]


def test_transaction_that_other_driver_abandons_is_not_committed(world: World) -> None:
    world.driver(0, world.task("a")).commit()
    slow = world.task("slow")
    record = CommitRecord(batch_id=1, run_id="other", transactions=(), abandoned=(slow,))
    world.log().append(record)
    with pytest.raises(ConfigError, match="another driver of this query aborts"):
        world.driver(2, slow).commit()
    world.driver(2, slow).abort()
    assert world.values() == ["a"]


def test_abort_spares_decided_batch(world: World) -> None:
    own = world.task("a")
    world.crash_after_record(0, own)
    world.driver(0, own).abort()  # Spark calls abort after a failed commit
    world.driver(0, world.task("again"), run_id="second").commit()
    assert world.values() == ["a"]
    undecided = world.task("b")
    world.driver(1, undecided).abort()
    assert world.values() == ["a"]


def test_abort_of_anonymous_job_includes_killed_attempts(world: World) -> None:
    world.task("killed")
    world.driver(0, world.task("a"), kind=SinkKind.JOB).abort()
    assert not world.is_settled(), "another driver may record the transaction"
    world.driver(0, kind=SinkKind.ANONYMOUS_JOB).abort()
    assert world.values() == []
    decided = world.task("decided")
    world.crash_after_record(0, decided)
    world.driver(0, kind=SinkKind.ANONYMOUS_JOB).abort()
    world.driver(0, world.task("again"), kind=SinkKind.JOB).commit()
    assert world.values() == ["decided"]


@pytest.mark.parametrize("is_decided", [True, False])
def test_killed_coordinator_delays_commit(
    world: World, cluster: LocalCluster, is_decided: bool
) -> None:
    own = [world.task(f"{number}") for number in range(6)]
    if is_decided:
        world.crash_after_record(0, *own)
    cluster.kill(world.coordinator(own[0]))
    try:
        world.driver(0, *own).commit()
        assert sorted(world.values()) == [f"{number}" for number in range(6)]
    finally:
        cluster.restore()


def test_commit_survives_restart_of_all_brokers(world: World, cluster: LocalCluster) -> None:
    own = world.task("a")
    for broker in cluster.brokers:
        world.cluster.connection(BrokerId(broker))
    for broker in cluster.brokers:
        cluster.kill(broker)
    cluster.restore()
    world.driver(0, own).commit()
    assert world.values() == ["a"]


def test_decided_batch_is_committed_after_a_coordinator_was_unavailable(
    world: World, cluster: LocalCluster
) -> None:
    own = world.task("a")
    record = CommitRecord(batch_id=0, run_id="run", transactions=(own,))
    survivor = world.coordinator(own)
    for broker in {1, 2, 3} - {survivor}:
        cluster.kill(
            broker
        )  # the log of transactions has fewer replicas than its min.insync.replicas
    world.cluster.timeout_s = 0.3
    with ThreadPoolExecutor(1) as executor:
        outcomes = executor.submit(world.driver(0, own).commit_recorded, record)
        try:
            assert not wait([outcomes], timeout=1).done, "gave up after the request timeout"
        finally:
            cluster.restore()
        assert list(outcomes.result(30).values()) == [TransactionOutcome.COMMITTED]
    world.cluster.timeout_s = 30
    assert world.values() == ["a"]


def test_batch_near_its_timeout_is_rejected_before_the_decision(world: World) -> None:
    own = world.task("late", kafka__transaction__timeout__ms="1000")
    world.wait_for_timeout(own)
    with pytest.raises(
        ConfigError, match=r"kafka.transaction.timeout.ms: the transaction .* ended"
    ):
        world.driver(0, own).commit()
    assert world.log().last() is None
    world.driver(0, world.task("again")).commit()
    assert world.values() == ["again"]


def test_batch_is_written_again_if_all_its_transactions_timed_out(world: World) -> None:
    own = world.task("late", kafka__transaction__timeout__ms="1000")
    world.crash_after_record(0, own)
    world.wait_for_timeout(own)
    with pytest.raises(LostTransactions):
        world.driver(0, own).commit()
    for _ in range(2):
        world.driver(0, world.task("again"), run_id="second").commit()
        assert world.values() == ["again"]


def test_batch_with_expired_ids_may_be_written(world: World) -> None:
    expired = TaskTransaction(fresh_transactional_id(world.scope), 1, 0)  # no broker knows it
    world.crash_after_record(0, expired)
    own = world.task("again")
    with pytest.raises(LostTransactions, match="the outcome of 1 of 1 transactions is unknown"):
        world.driver(0, own, run_id="second").commit()
    world.driver(0, own, run_id="second", onLostTransactions="skip").commit()
    assert world.values() == []


@pytest.mark.parametrize(
    ("choice", "expected"), [("repeat", ["1st a", "2nd a", "2nd b"]), ("skip", ["1st a"])]
)
def test_partly_written_batch_is_an_error(world: World, choice: str, expected: list[str]) -> None:
    first = world.task("1st a")
    lost = world.task("1st b", kafka__transaction__timeout__ms="1000")
    world.crash_after_record(0, first, lost)
    world.wait_for_timeout(lost)
    own = [world.task("2nd a"), world.task("2nd b")]
    with pytest.raises(LostTransactions, match="1 of 2 transactions were aborted"):
        world.driver(0, *own, run_id="second").commit()
    world.driver(0, *own, run_id="second", onLostTransactions=choice).commit()
    assert sorted(world.values()) == expected
