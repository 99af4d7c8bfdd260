"""Spark reads, writes and copies topics: with the source and sink of Barnabas, and with Spark's own Kafka connector."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer
from barnabas.client.producer import Producer
from barnabas.model import TopicPartition
from benchmarks.broker import BenchmarkBroker
from benchmarks.kafka import KAFKA, OURS, SIDES, Found, add_values
from benchmarks.loads import KB, TOPIC
from benchmarks.spark import MASTER, PARTITIONS, WARM_UP_ROUNDS, Extent, fill_topic
from interop.harness.jars import SPARK_KAFKA, fetch

FORMATS = {OURS: "barnabas", KAFKA: "kafka"}
PART = "part"
WRITTEN_SHARE = 5
"""Writes and copies use a fifth of the rows, because every round leaves another topic."""
LATENCY_PARTITIONS = (PARTITIONS, 4, 12)
"""With many partitions, most micro-batches have records of a few of them."""
PHASES = ("latestOffset", "commitOffsets")
"""Phases of a micro-batch that the source influences. A median is over up to the last 100 batches."""
PACE_S = 0.02
WARM_UP_RECORDS = 200
numbers = count()


def measure(extent: Extent) -> Found:
    """Measure both sides with a broker of Barnabas, so that only Spark's sources and sinks differ."""
    from barnabas.spark.launcher import session

    found: Found = {}
    jars = ",".join(str(path) for path in fetch().of(SPARK_KAFKA))
    spark = session(MASTER, progress=False, archive=False, config={"spark.jars": jars})
    scratch = Path(tempfile.mkdtemp(prefix="barnabas-spark-benchmark-"))
    try:
        for record_bytes, rows in extent.rows.items():
            with BenchmarkBroker() as broker:
                stored = fill_topic(broker, extent, record_bytes, rows)
                Comparison(found, spark, broker, scratch).measure_jobs(
                    extent.rounds, record_bytes, stored
                )
        with BenchmarkBroker() as broker:
            comparison = Comparison(found, spark, broker, scratch)
            for _ in range(extent.rounds):
                for partitions in LATENCY_PARTITIONS:
                    comparison.measure_latency(extent.micro_batches * 10, partitions)
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    return found


class Comparison:
    """The same jobs with both formats, in alternating order."""

    def __init__(self, found: Found, spark: Any, broker: BenchmarkBroker, scratch: Path) -> None:
        self.found = found
        self.spark = spark
        self.broker = broker
        self.scratch = scratch

    def measure_jobs(self, rounds: int, record_bytes: int, stored: int) -> None:
        size = "1k" if record_bytes == KB else str(record_bytes)
        few = stored // WRITTEN_SHARE
        jobs: dict[str, tuple[int, Callable[[str], None]]] = {
            "count": (stored, lambda side: self.count(side, stored)),
            "parquet": (stored, self.write_parquet),
            "write": (few, lambda side: self.write_topic(side, record_bytes, few)),
            "copy": (few, self.copy_topic),
        }
        self.broker.create_topic(PART, PARTITIONS)
        self.generate(OURS, PART, record_bytes, few)
        for turn in range(WARM_UP_ROUNDS + rounds):
            for name, (rows, job) in jobs.items():
                for side in SIDES if turn % 2 else reversed(SIDES):
                    began = time.perf_counter()
                    job(side)
                    took_s = time.perf_counter() - began
                    if turn >= WARM_UP_ROUNDS:
                        values = {f"spark/{name}/{size}/rows_per_s": rows / took_s}
                        add_values(self.found, side, values)

    def count(self, side: str, stored: int) -> None:
        counted = self.options(self.spark.read, side).option("subscribe", TOPIC).load().count()
        if counted != stored:
            raise RuntimeError(f"{counted} rows were counted, {stored} are there")

    def write_parquet(self, side: str) -> None:
        rows = self.options(self.spark.read, side).option("subscribe", TOPIC).load()
        rows.write.mode("overwrite").parquet(str(self.scratch / "rows"))

    def write_topic(self, side: str, record_bytes: int, rows: int) -> None:
        with self.new_topic() as topic:
            self.generate(side, topic, record_bytes, rows)

    def generate(self, side: str, topic: str, record_bytes: int, rows: int) -> None:
        generated = self.spark.range(0, rows, 1, PARTITIONS).selectExpr(
            "cast(id as string) as key", f"repeat('x', {record_bytes}) as value"
        )
        self.options(generated.write, side).option("topic", topic).mode("append").save()

    def copy_topic(self, side: str) -> None:
        with self.new_topic() as target:
            query = self.start_copy(side, PART, target).trigger(availableNow=True).start()
            query.awaitTermination()

    def start_copy(self, side: str, source: str, target: str) -> Any:
        rows = (
            self.options(self.spark.readStream, side)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .load()
            .select("key", "value")
        )
        writer = self.options(rows.writeStream, side).option("topic", target)
        checkpoint = self.scratch / f"checkpoint-{next(numbers)}"
        return writer.option("checkpointLocation", str(checkpoint))

    def measure_latency(self, records: int, partitions: int) -> None:
        """Measure the time from sending a record to receiving its copy, which a running stream makes."""
        for side in SIDES:
            with self.new_topic(partitions) as source, self.new_topic(partitions) as target:
                query = self.start_copy(side, source, target).start()
                try:
                    seconds = self.send_and_receive(source, target, partitions, records)
                    batches = [each for each in query.recentProgress if each["numInputRows"]]
                finally:
                    query.stop()
            hundredths = statistics.quantiles(seconds, n=100)
            prefix = f"spark/latency/{partitions} partitions"
            values = {
                f"{prefix}/p50_ms": hundredths[49] * 1e3,
                f"{prefix}/p99_ms": hundredths[98] * 1e3,
            }
            for phase in PHASES:
                times = [float(batch["durationMs"][phase]) for batch in batches]
                values[f"{prefix}/{phase}_ms"] = statistics.median(times)
            add_values(self.found, side, values)

    def send_and_receive(
        self, source: str, target: str, partitions: int, records: int
    ) -> list[float]:
        received: list[float] = []

        def receive() -> None:
            with Cluster(self.broker.bootstrap_servers) as cluster:
                targets = [TopicPartition(target, index) for index in range(partitions)]
                consumer = Consumer(cluster, dict.fromkeys(targets, Beginning()))
                received.extend(
                    time.monotonic() - float(record.value or b"0")
                    for record in islice(consumer.records(), WARM_UP_RECORDS + records)
                )

        receiver = threading.Thread(target=receive)
        receiver.start()
        with Cluster(self.broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
            for _ in range(WARM_UP_RECORDS + records):
                producer.send(source, str(time.monotonic()).encode())
                producer.flush()
                time.sleep(PACE_S)
        receiver.join()
        return received[WARM_UP_RECORDS:]

    def options(self, builder: Any, side: str) -> Any:
        servers = self.broker.bootstrap_servers
        return builder.format(FORMATS[side]).option("kafka.bootstrap.servers", servers)

    @contextmanager
    def new_topic(self, partitions: int = PARTITIONS) -> Iterator[str]:
        name = f"topic-{next(numbers)}"
        self.broker.create_topic(name, partitions)
        yield name
        self.broker.delete_topic(name)
