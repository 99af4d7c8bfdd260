"""A loop of the Python client reads, copies and commits in transactions while each broker is killed once.

Every record is copied exactly once for a read_committed consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from barnabas import ApiError, Client, GroupConsumer, LocalCluster, Producer, TopicPartition
from barnabas.client.blocking import Deadline

RECORDS = 60
RECORDS_PER_TRANSACTION = 4
DEADLINE_S = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "min.insync.replicas": 2,
}


class Copier:
    """The loop. It creates a new consumer and producer after an error.

    It calls `in_transaction` between the records and the offsets of each transaction.
    """

    def __init__(self, client: Client, in_transaction: Callable[[], None]) -> None:
        self.client = client
        self.in_transaction = in_transaction
        self.producer: Producer | None = None
        self.consumer: GroupConsumer | None = None
        self.errors: list[str] = []

    def step(self) -> None:
        try:
            self.copy()
        except ApiError as error:
            self.errors.append(error.code.name)
            self.restart()

    def copy(self) -> None:
        if self.producer is None:
            self.producer = self.client.producer(transactional_id="copier-0")
        if self.consumer is None:
            self.consumer = self.client.group_consumer(
                "copier",
                ["input"],
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            )
        records = self.consumer.poll(0.5, max_records=RECORDS_PER_TRANSACTION)
        if not records:
            return
        with self.producer.transaction():
            for record in records:
                self.producer.send("output", record.value, partition=record.partition)
            self.producer.flush()
            self.in_transaction()
            self.producer.send_offsets_to_transaction(self.consumer)

    def restart(self) -> None:
        for part in (self.producer, self.consumer):
            if part is not None:
                part.close()
        self.producer = self.consumer = None


def test_every_record_is_copied_once_while_brokers_are_killed() -> None:
    with (
        LocalCluster(brokers=3, settings=SETTINGS) as cluster,
        Client(cluster.bootstrap_servers, request_timeout_ms=20_000) as client,
    ):
        admin = client.admin()
        admin.create_topic("input", num_partitions=2, replication_factor=3)
        admin.create_topic("output", num_partitions=2, replication_factor=3)
        with client.producer() as writer:
            for number in range(RECORDS):
                writer.send("input", str(number), partition=number % 2)
        victims = list(cluster.brokers)
        transactions = count()

        def kill_one() -> None:
            if next(transactions) % 3 == 1 and victims:
                cluster.kill(victims.pop())

        copier = Copier(client, kill_one)
        deadline = Deadline(DEADLINE_S)
        partitions = [TopicPartition("input", number) for number in range(2)]

        def is_done() -> bool:
            offsets = admin.list_group_offsets("copier")
            return sum(offsets.get(each, 0) for each in partitions) == RECORDS

        while not is_done():
            assert not deadline.passed, (copier.errors, admin.list_group_offsets("copier"))
            copier.step()
            cluster.restore()
        assert not victims
        found = read_committed(client)
        assert sorted(map(int, found)) == list(range(RECORDS)), copier.errors


def read_committed(client: Client) -> list[bytes]:
    consumer = client.consumer(
        "output", auto_offset_reset="earliest", isolation_level="read_committed"
    )
    return [record.value or b"" for record in consumer.read_to_end()]
