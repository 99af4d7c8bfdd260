"""Continuous input while streams are killed: numbered records, never far ahead of the slower stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

AT_ONCE = 25
PAUSE_S = 0.05
AHEAD_MAX = 800
"""Enough for four full batches, and few enough that the run ends soon after the last kill."""
RECORDS_MAX = 1_000_000


class Load:
    def __init__(self, servers: str, topic: str, read_by_all: Callable[[], int]) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self.topic = topic
        self.read_by_all = read_by_all
        self.sent = 0
        self.acknowledged = 0
        self.failed: list[str] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.stopping.is_set() and self.sent < RECORDS_MAX:
            if self.sent - self.read_by_all() < AHEAD_MAX:
                for _ in range(AT_ONCE):
                    value = b"%d" % self.sent
                    self.producer.produce(
                        self.topic, value, key=value, on_delivery=self.on_delivery
                    )
                    self.sent += 1
            self.producer.poll(0)
            self.stopping.wait(PAUSE_S)

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(str(error))

    def values(self) -> set[str]:
        return {str(number) for number in range(self.sent)}

    def stop(self) -> None:
        """Stop; on return, all sent records are in the topic."""
        self.stopping.set()
        self.thread.join()
        assert self.producer.flush(60) == 0
        assert not self.failed, self.failed[:3]
        assert self.acknowledged == self.sent

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopping.set()
        self.thread.join()
