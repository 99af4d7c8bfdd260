"""Consume-transform-produce loops: each copies the input topic to an output topic, in transactions.

A loop never stops because of an error. If its transaction must be aborted, it continues at the committed offsets. After
a fatal error it starts again with new clients and the same transactional id. It also does so now and then in the middle
of a transaction, as after a crash.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random

import aiokafka
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

INPUT = "input"
TRANSACTION_TIMEOUT_MS = 10_000
CALL_SECONDS = 5.0
BATCH_RECORDS = 50
POLL_SECONDS = 0.2
PAUSE_SECONDS = 0.1
CRASHES_PER_TRANSACTION = 0.05


class ClientCrash(Exception):
    """The clients of a loop are replaced in the middle of a transaction."""


class Loop:
    """One loop in a thread, until `stop`. `name` is its group, its output topic and its transactional id."""

    def __init__(self, servers: str, partitions: int, name: str, member: int = 0) -> None:
        self.servers = servers
        self.partitions = partitions
        self.name = name
        self.transactional_id = f"{name}-{member}"
        self.random = Random(self.transactional_id)
        self.over = threading.Event()
        self.committed = 0
        self.aborted: Counter[str] = Counter()
        """Aborted transactions by error."""
        self.restarts: Counter[str] = Counter()
        """New clients by error."""
        self.thread = threading.Thread(target=self.run, name=self.transactional_id, daemon=True)

    def run(self) -> None:
        while not self.over.is_set():
            try:
                self.copy()
            except (KafkaException, AiokafkaError, ClientCrash) as error:
                self.restarts[describe(error)] += 1
                time.sleep(PAUSE_SECONDS)

    def copy(self) -> None:
        """Copy records until the end of the run. Raises the client's exception if it needs new clients."""
        raise NotImplementedError

    def crash_sometimes(self) -> None:
        if self.random.random() < CRASHES_PER_TRANSACTION:
            raise ClientCrash

    def stop(self) -> None:
        self.over.set()
        self.thread.join(60)
        assert not self.thread.is_alive(), f"{self.transactional_id} does not stop"

    def report(self) -> str:
        return (
            f"{self.transactional_id}: {self.committed} transactions, "
            f"aborted {dict(self.aborted)}, restarted {dict(self.restarts)}"
        )


def describe(error: Exception) -> str:
    cause = error.args[0] if isinstance(error, KafkaException) else None
    return cause.name() if isinstance(cause, KafkaError) else type(error).__name__


class LibrdkafkaLoop(Loop):
    def copy(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        retry(lambda: producer.init_transactions(CALL_SECONDS), self.over)
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.name,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe([INPUT])
            while not self.over.is_set():
                messages = consumer.consume(BATCH_RECORDS, POLL_SECONDS)
                found = [message for message in messages if message.error() is None]
                if found:
                    self.copy_batch(producer, consumer, found)
        finally:
            consumer.close()

    def copy_batch(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
        """Copy the messages in one transaction. Raises KafkaException after a fatal error."""
        offsets = {message.partition(): message.offset() + 1 for message in messages}
        positions = [TopicPartition(INPUT, *each) for each in offsets.items()]
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(self.name, message.value(), partition=message.partition())
            group = consumer.consumer_group_metadata()
            retry(
                lambda: producer.send_offsets_to_transaction(positions, group, CALL_SECONDS),
                self.over,
            )
            producer.flush(CALL_SECONDS)
            self.crash_sometimes()
            retry(lambda: producer.commit_transaction(CALL_SECONDS), self.over)
            self.committed += 1
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            self.aborted[describe(error)] += 1
            retry(lambda: producer.abort_transaction(CALL_SECONDS), self.over)
            rewind(consumer, self.over)


def retry(call: Callable[[], object], over: threading.Event) -> None:
    """Call until it succeeds. Raises KafkaException if repeating it does not help, or after the end of the run."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or over.is_set():
                raise


def rewind(consumer: Consumer, over: threading.Event) -> None:
    """Continue at the committed offsets: the records of the aborted transaction are read again."""
    while not over.is_set():
        with suppress(KafkaException):
            for each in consumer.committed(consumer.assignment(), CALL_SECONDS):
                consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))
            return


class AiokafkaLoop(Loop):
    def copy(self) -> None:
        asyncio.run(self.copy_until_over())

    async def copy_until_over(self) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.servers,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=5_000,
        )
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=self.name,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=5_000,
        )
        # aiokafka does not send the generation of the group, so a fixed assignment must exclude other members.
        consumer.assign([aiokafka.TopicPartition(INPUT, at) for at in range(self.partitions)])
        try:
            # The producer first: then the last transaction of this id is complete, and its offsets are committed.
            await producer.start()
            await consumer.start()
            while not self.over.is_set():
                batches = await consumer.getmany(
                    timeout_ms=int(POLL_SECONDS * 1000), max_records=BATCH_RECORDS
                )
                if batches:
                    await self.copy_batches(producer, batches)
        finally:
            await consumer.stop()
            await producer.stop()

    async def copy_batches(
        self,
        producer: aiokafka.AIOKafkaProducer,
        batches: dict[aiokafka.TopicPartition, list[aiokafka.ConsumerRecord]],
    ) -> None:
        await producer.begin_transaction()
        sent = []
        for partition, records in batches.items():
            for record in records:
                sent.append(
                    await producer.send(self.name, record.value, partition=partition.partition)
                )
        offsets = {partition: records[-1].offset + 1 for partition, records in batches.items()}
        await producer.send_offsets_to_transaction(offsets, self.name)
        await asyncio.gather(*sent)
        self.crash_sometimes()
        await producer.commit_transaction()
        self.committed += 1
