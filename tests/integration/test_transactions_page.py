"""The loop in docs/transactions.md runs, and copies each record once, also if a transaction fails in the middle."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import barnabas
from barnabas import ApiError, ErrorCode
from barnabas.client.group_coordinator import find_coordinator
from barnabas.client.transactional_producer import ProducerPhase, TransactionalProducer
from barnabas.wire.messages.find_coordinator import CoordinatorType

PAGE = (Path(__file__).parents[2] / "docs" / "transactions.md").read_text()
ORDERS = 20
TRANSACTIONS_MAX = 100
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}


def read_loop(client: str) -> str:
    """Return the loop with these arguments of its client."""
    block: str
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return block.replace('"localhost:9092"', client)


def run_loop(client: barnabas.Client, servers: str) -> None:
    """Run the loop with a short timeout and small transactions until it has copied all orders.

    It ends before that if it repeats without progress.
    """
    block = read_loop(f'"{servers}", request_timeout_ms=3_000')
    block = block.replace("poll(timeout=5)", "poll(timeout=1, max_records=4)")
    block = block.replace("if not records:", "if not records and is_done():")
    block = block.replace("while True:", f"for _ in range({TRANSACTIONS_MAX}):")
    exec(block, {"is_done": lambda: count_copied(client) == ORDERS})


def count_copied(client: barnabas.Client) -> int:
    return sum(client.admin().list_group_offsets("copier").values())


def write_orders(client: barnabas.Client) -> None:
    with client.producer() as producer:
        for number in range(ORDERS):
            producer.send("orders", f"order {number}")


def check_copies(client: barnabas.Client) -> None:
    consumer = client.consumer(
        "receipts", auto_offset_reset="earliest", isolation_level="read_committed"
    )
    copied = sorted(record.value or b"" for record in consumer.read_to_end())
    assert copied == sorted(b"ORDER %d" % number for number in range(ORDERS))
    assert count_copied(client) == ORDERS


def test_loop_copies_every_record_once() -> None:
    with barnabas.LocalCluster(settings=SETTINGS) as cluster:
        servers = cluster.bootstrap_servers
        with barnabas.Client(servers) as client:
            admin = client.admin()
            admin.create_topic("orders", num_partitions=2)
            admin.create_topic("receipts", num_partitions=1)
            write_orders(client)
            exec(read_loop(f'"{servers}"'), {})
            check_copies(client)


class Outage:
    """Stops all brokers but the coordinator during the second commit, until the loop begins its next transaction."""

    def __init__(
        self, cluster: barnabas.LocalCluster, patch: pytest.MonkeyPatch, *, is_flushed: bool
    ) -> None:
        self.cluster = cluster
        self.is_flushed = is_flushed
        self.commits = 0
        self.phase: ProducerPhase | None = None
        """Phase of the producer at the end of the outage."""
        self.commit: Callable[[barnabas.Producer], None] = barnabas.Producer.commit_transaction
        self.transaction: Callable[
            [barnabas.Producer], AbstractContextManager[barnabas.Producer]
        ] = barnabas.Producer.transaction
        patch.setattr(barnabas.Producer, "commit_transaction", lambda each: self.on_commit(each))
        patch.setattr(barnabas.Producer, "transaction", lambda each: self.on_begin(each))

    def on_commit(self, producer: barnabas.Producer) -> None:
        self.commits += 1
        if self.commits == 2:
            if self.is_flushed:
                producer.flush()
            _, port = find_coordinator(
                producer._connection._cluster, "copier-0", CoordinatorType.TRANSACTION
            )
            for number, broker in self.cluster.brokers.items():
                if not broker.address.endswith(f":{port}"):
                    self.cluster.kill(number)
        self.commit(producer)

    def on_begin(self, producer: barnabas.Producer) -> AbstractContextManager[barnabas.Producer]:
        if self.commits == 2 and self.phase is None:
            assert isinstance(producer._producer, TransactionalProducer)
            self.phase = producer._producer.phase
            self.cluster.restore()
        return self.transaction(producer)


@pytest.mark.parametrize(
    ("is_flushed", "phase"), [(True, ProducerPhase.ENDING), (False, ProducerPhase.FAILED)]
)
def test_loop_continues_after_outage_of_the_coordinator(
    monkeypatch: pytest.MonkeyPatch, is_flushed: bool, phase: ProducerPhase
) -> None:
    with (
        barnabas.LocalCluster(brokers=3, settings=SETTINGS) as cluster,
        barnabas.Client(cluster.bootstrap_servers) as client,
    ):
        admin = client.admin()
        admin.create_topic("orders", num_partitions=2, replication_factor=3)
        configs = {"min.insync.replicas": 2}
        admin.create_topic("receipts", num_partitions=1, replication_factor=3, configs=configs)
        write_orders(client)
        outage = Outage(cluster, monkeypatch, is_flushed=is_flushed)
        run_loop(client, cluster.bootstrap_servers)
        assert outage.phase is phase
        check_copies(client)


@pytest.mark.parametrize("is_response", [True, False])
def test_loop_continues_after_commit_with_unknown_result(
    monkeypatch: pytest.MonkeyPatch, is_response: bool
) -> None:
    commit = TransactionalProducer.commit
    commits = []

    def commit_without_response(producer: TransactionalProducer) -> None:
        commits.append(producer.identity)
        if len(commits) != 2:
            commit(producer)
            return
        end = producer.link.end

        def lose(*, is_commit: bool) -> None:
            if is_response:
                end(is_commit=is_commit)
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, "lost")

        with monkeypatch.context() as patch:
            patch.setattr(producer.link, "end", lose)
            commit(producer)

    monkeypatch.setattr(TransactionalProducer, "commit", commit_without_response)
    with (
        barnabas.LocalCluster(settings=SETTINGS) as cluster,
        barnabas.Client(cluster.bootstrap_servers) as client,
    ):
        client.admin().create_topic("orders", num_partitions=2)
        client.admin().create_topic("receipts", num_partitions=1)
        write_orders(client)
        run_loop(client, cluster.bootstrap_servers)
        assert commits[2] != commits[1], "a new epoch"
        check_copies(client)
