"""Readers that read all the time.

A `Consumer` reads from the leaders, each offset once. A `BrokerReader` polls one broker, regardless of that broker's
role, and rereads records it has already seen. If a readable record were removed or replaced, it would have seen both
values. Its request to a paused broker waits in the socket and is the first request that a stale leader answers.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer as RdkafkaConsumer
from confluent_kafka import TopicPartition

from barnabas.batch.header import batch_headers
from barnabas.batch.records import records
from barnabas.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchResponse
from tests.compatibility.raw import Raw, fetch_request, partitions_of
from tests.faults.chaos.ledger import Ledger
from tests.faults.chaos.worker import Worker
from tests.faults.chaos.writer_process import REQUEST_MS

QUIET = logging.getLogger("tests.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
POLL_INTERVAL_S = 0.1
REREAD_RECORDS = 30
FETCH_BY_NAME = 12
BYTES = 20_000
GROUP_SESSION_S = 6.0
TRACE_LINES, TRACE_WIDTH = 300, 300


def logger_to(path: Path) -> logging.Logger:
    logger = logging.getLogger(f"tests.librdkafka.{path}")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    return logger


class Reader(Worker):
    def __init__(self, name: str, topic: str, partitions: int, ledger: Ledger) -> None:
        super().__init__(name)
        self.topic = topic
        self.partitions = partitions
        self.ledger = ledger
        self.positions = dict.fromkeys(range(partitions), 0)

    def trace(self) -> str:
        """Return the last lines of its log, if it has one."""
        return ""

    def take(self, partition: int, offset: int, value: bytes) -> None:
        """Note a record. All records before it have been read."""
        if offset > self.positions[partition]:
            self.ledger.report_contradiction(
                self.name, f"read {partition}@{offset} at {self.positions[partition]}"
            )
        self.positions[partition] = max(self.positions[partition], offset + 1)
        self.ledger.see(self.name, partition, offset, value)


class Consumer(Reader):
    """Also checks that no offset is skipped or repeated. With a log path, it logs its fetches."""

    def __init__(
        self,
        servers: str,
        topic: str,
        partitions: int,
        ledger: Ledger,
        log: Path | None = None,
        *,
        is_patient: bool = False,
    ) -> None:
        """A patient consumer waits for a response for a minute, librdkafka's default. Any other gives up early and
        would hide a fetch that is never answered."""
        super().__init__(
            "patient-consumer" if is_patient else "consumer", topic, partitions, ledger
        )
        self.log = log
        self.consumer = RdkafkaConsumer(
            {
                "bootstrap.servers": servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "socket.timeout.ms": 60_000 if is_patient else REQUEST_MS,
                "fetch.wait.max.ms": 500 if is_patient else 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 100,
                **({} if log is None else {"debug": "topic,metadata,fetch,consumer"}),
            },
            logger=QUIET if log is None else logger_to(log),
        )

    def work(self) -> None:
        self.consumer.assign([TopicPartition(self.topic, index, 0) for index in self.positions])
        while not self.stopping.is_set():
            for message in self.consumer.consume(500, timeout=0.1):
                if message.error() is not None:
                    if not message.error().retriable():
                        self.ledger.report_contradiction(self.name, str(message.error()))
                    continue
                self.take(message.partition(), message.offset(), message.value())
        self.consumer.close()

    def trace(self) -> str:
        lines = [] if self.log is None else self.log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines[-TRACE_LINES:] if len(line) < TRACE_WIDTH)

    def take(self, partition: int, offset: int, value: bytes) -> None:
        if offset < self.positions[partition]:
            self.ledger.report_contradiction(self.name, f"read {partition}@{offset} again")
        super().take(partition, offset, value)


class GroupConsumer(Reader):
    """Member of a consumer group that commits its offsets. It may read a record twice, but never skips one."""

    def __init__(self, servers: str, topic: str, partitions: int, ledger: Ledger) -> None:
        super().__init__("group-consumer", topic, partitions, ledger)
        self.consumer = RdkafkaConsumer(
            {
                "bootstrap.servers": servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": int(GROUP_SESSION_S * 1000),
                "heartbeat.interval.ms": 1000,
                "socket.timeout.ms": 2 * REQUEST_MS,
                "fetch.wait.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 100,
            },
            logger=QUIET,
        )

    def work(self) -> None:
        self.consumer.subscribe([self.topic])
        while not self.stopping.is_set():
            for message in self.consumer.consume(500, timeout=0.1):
                if message.error() is None:
                    self.take(message.partition(), message.offset(), message.value())
                elif message.error().fatal():
                    self.ledger.report_contradiction(self.name, str(message.error()))
        self.consumer.close()


class AiokafkaConsumer(Reader):
    """Reads assigned partitions with aiokafka, whose fetches use no sessions."""

    def __init__(self, servers: str, topic: str, partitions: int, ledger: Ledger) -> None:
        super().__init__("aiokafka", topic, partitions, ledger)
        self.servers = servers

    def work(self) -> None:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        asyncio.run(self.read())

    async def read(self) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka import TopicPartition as AiokafkaPartition
        from aiokafka.errors import KafkaError

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            request_timeout_ms=2 * REQUEST_MS,
            fetch_max_wait_ms=200,
            retry_backoff_ms=100,
            metadata_max_age_ms=2000,
        )
        await consumer.start()
        try:
            consumer.assign([AiokafkaPartition(self.topic, index) for index in self.positions])
            while not self.stopping.is_set():
                try:
                    found = await consumer.getmany(timeout_ms=100)
                except KafkaError:
                    continue
                for partition, messages in found.items():
                    for message in messages:
                        self.take(partition.partition, message.offset, message.value or b"")
        finally:
            await consumer.stop()


class BrokerReader(Reader):
    """Polls one broker."""

    def __init__(
        self, number: int, servers: str, topic: str, partitions: int, ledger: Ledger
    ) -> None:
        super().__init__(f"broker-reader-{number}", topic, partitions, ledger)
        self.servers = servers

    def work(self) -> None:
        while not self.stopping.wait(POLL_INTERVAL_S):
            with suppress(OSError), Raw(self.servers) as raw:
                while not self.stopping.wait(POLL_INTERVAL_S):
                    self.poll(raw)

    def poll(self, raw: Raw) -> None:
        offsets = {index: max(0, at - REREAD_RECORDS) for index, at in self.positions.items()}
        request = fetch_request(self.topic, offsets, partition_max_bytes=BYTES)
        answer = raw.ask(request, FetchResponse, FETCH_BY_NAME)
        if answer.error_code != ErrorCode.NONE:
            return
        for partition, found in partitions_of(answer).items():
            if found.error_code != ErrorCode.NONE:
                continue
            data = memoryview(found.records or b"")
            for at, header in batch_headers(data):
                if header.last_offset >= found.high_watermark:
                    self.ledger.report_contradiction(
                        self.name, f"{partition}@{header.last_offset} above {found.high_watermark}"
                    )
                for record in records(data[at : at + header.size]):
                    self.ledger.see(self.name, partition, record.offset, bytes(record.value or b""))
                self.positions[partition] = max(self.positions[partition], header.next_offset)
