"""A letter is not lost when the messenger falls: produce, kill -9, restart, consume, compare; then the same on Spark,
and with three brokers whose controller is killed.

Nothing here is ours but the broker: librdkafka writes, kafka-python reads, and the broker is a process of its own that
is really killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from demo import pipeline, three
from demo.quiet import QUIET

TOPIC = "letters"
PARTITIONS = 3
RECORDS = 60_000
KILL_AT = (20_000, 40_000)
DEADLINE_SECONDS = 60

LAST_WORDS = """
Every acknowledged record survived, once, and every count is right. To try it yourself:

   .venv/bin/barnabas up --brokers 3 --topic orders:6:3    # a cluster, and lines to paste for your client
   seq 1000 | .venv/bin/barnabas produce orders      # in another shell
   .venv/bin/barnabas sql "select partition, count(*) from orders group by partition"
"""


class Messenger:
    """One broker process and the acknowledgements its clients got."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Seconds until it answers."""
        began = time.monotonic()
        command = [str(Path(sys.executable).with_name("barnabas")), "up", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, "--data", str(self.data)], stdout=subprocess.DEVNULL
        )
        while True:
            if self.process.poll() is not None:
                sys.exit(f"the broker ended with exit code {self.process.returncode}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return time.monotonic() - began
            if time.monotonic() - began > DEADLINE_SECONDS:
                sys.exit("the broker did not come up")
            time.sleep(0.01)

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def fall(self) -> float:
        """Die and come back: seconds until it answers again."""
        self.kill()
        return self.start()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as directory:
        messenger = Messenger(Path(directory) / "data")
        try:
            play(messenger)
            if not pipeline.play(messenger.servers, messenger.fall, say, Path(directory)):
                sys.exit("The counts are wrong, which must not happen. Please report it.")
            if not three.play(say):
                sys.exit("Records were lost, which must not happen. Please report it.")
            say(LAST_WORDS)
        finally:
            messenger.stop()


def play(messenger: Messenger) -> None:
    seconds = messenger.start()
    say(f"1  A broker is up at {messenger.servers} after {seconds:.2f} s. Its data: one directory.")

    admin = AdminClient({"bootstrap.servers": messenger.servers}, logger=QUIET)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()
    say(f"2  Topic '{TOPIC}' with {PARTITIONS} partitions, created by confluent-kafka's admin.")

    say(
        f"3  librdkafka writes {RECORDS:,} records; the broker is killed twice (kill -9) meanwhile:"
    )
    began = time.monotonic()
    acknowledged = write(messenger)
    seconds = time.monotonic() - began
    say(f"   {len(acknowledged):,} acknowledged in {seconds:.1f} s, both deaths included.")

    found = read(messenger)
    say(f"4  kafka-python reads the topic from its beginning: {sum(found.values()):,} records.")

    lost = [value for value in acknowledged if value not in found]
    twice = [value for value, count in found.items() if count > 1]
    say(f"5  Lost: {len(lost)}.  Twice: {len(twice)}.")
    if lost or twice:
        sys.exit("That must not happen. Please report it.")


def write(messenger: Messenger) -> list[str]:
    """Write all records; whoever gets an acknowledgement is in the list."""
    acknowledged: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": messenger.servers,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "reconnect.backoff.max.ms": 200,
        },
        logger=QUIET,
    )

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged.append(message.value().decode())  # type: ignore[attr-defined]

    for number in range(RECORDS):
        while True:
            try:
                producer.produce(
                    TOPIC, f"letter {number}", key=str(number % 100), on_delivery=delivered
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        if number in KILL_AT:
            producer.poll(0.05)  # let some of them be under way
            seconds = messenger.fall()
            say(f"   killed after {number:,} were sent; back after {seconds:.2f} s")
    producer.flush(DEADLINE_SECONDS)
    return acknowledged


def read(messenger: Messenger) -> Counter[str]:
    consumer = KafkaConsumer(bootstrap_servers=messenger.servers, auto_offset_reset="earliest")
    with contextlib.closing(consumer):
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        return Counter(
            record.value.decode() for record in records_until(consumer, partitions, ends)
        )


def records_until(
    consumer: KafkaConsumer, partitions: list[TopicPartition], ends: dict[TopicPartition, int]
) -> Iterator[ConsumerRecord]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        if time.monotonic() > deadline:
            sys.exit("reading took too long")
        for batch in consumer.poll(timeout_ms=500).values():
            yield from batch


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
