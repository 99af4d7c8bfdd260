"""The second act: live events, counted by window on Spark, the result a topic again; the broker is killed in between.

Clicks come in as JSON. Spark reads the topic, counts clicks per page and minute, and writes every new count to another
topic, keyed by page and minute: who reads it keeps the last count of each key. That makes the result exact although the
sink may repeat itself after a failure.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition

from barnabas import spark as barnabas_spark
from demo.quiet import QUIET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

CLICKS, COUNTS = "clicks", "clicks_per_minute"
PAGES = ("/castle", "/village", "/inn")
EVENTS = 3_000
MINUTES = 3
BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEADLINE_SECONDS = 120
BAR_CHARACTERS = 40

Key = tuple[str, str]  # page, minute


def play(
    servers: str, restart: Callable[[], float], say: Callable[[str], None], scratch: Path
) -> bool:
    """True if every count is right."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=QUIET)
    wanted = [NewTopic(CLICKS, 3), NewTopic(COUNTS, 1)]
    for created in admin.create_topics(wanted).values():
        created.result()

    began = time.monotonic()
    say("6  Spark starts (the first time it also prepares quicker starts) ...")
    utc = {"spark.sql.session.timeZone": "UTC"}
    spark = barnabas_spark.session("local[2]", config=utc, progress=False, short=True)
    say(f"   up after {time.monotonic() - began:.1f} s; it counts '{CLICKS}' into '{COUNTS}'.")
    try:
        query = start_counting(spark, servers, scratch)
        expected = Counter[Key]()
        clicks = make_clicks()
        half = len(clicks) // 2
        send(servers, clicks[:half], expected)
        wait_for(servers, expected, query)
        say(f"7  {half:,} clicks counted live. The broker is killed, Spark is left alone:")
        say(f"   back after {restart():.2f} s; {len(clicks) - half:,} more clicks follow.")
        send(servers, clicks[half:], expected)
        found = wait_for(servers, expected, query)
        query.stop()
    finally:
        spark.stop()
    say("8  Clicks per page and minute, read from the topic by kafka-python:\n")
    for line in chart(found):
        say(line)
    return found == expected


def start_counting(spark: SparkSession, servers: str, scratch: Path) -> StreamingQuery:
    from pyspark.sql import functions as f

    clicks = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", CLICKS)
        .option("startingOffsets", "earliest")
        .load()
        .select(f.from_json(f.col("value").cast("string"), "page string, at timestamp").alias("c"))
        .select("c.page", "c.at")
    )
    counts = (
        clicks.withWatermark("at", "10 minutes")
        .groupBy("page", f.window("at", "1 minute").alias("minute"))
        .count()
        .select(
            "page",
            f.date_format("minute.start", "HH:mm").alias("minute"),
            "count",
        )
    )
    rows = counts.select(
        f.concat_ws(" ", "page", "minute").alias("key"),
        f.to_json(f.struct("page", "minute", "count")).alias("value"),
    )
    return (
        rows.writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", COUNTS)
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .outputMode("complete")
        .start()
    )


def make_clicks() -> list[tuple[str, datetime]]:
    choose = random.Random(1926)
    return sorted(
        (
            (page, BEGAN + timedelta(seconds=choose.randrange(60 * MINUTES)))
            for page in choose.choices(PAGES, weights=(5, 3, 2), k=EVENTS)
        ),
        key=lambda click: click[1],
    )


def send(servers: str, clicks: list[tuple[str, datetime]], expected: Counter[Key]) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True}, logger=QUIET)
    for page, at in clicks:
        value = json.dumps({"page": page, "at": at.isoformat()})
        producer.produce(CLICKS, value, key=page)
        expected[page, at.strftime("%H:%M")] += 1
    producer.flush(DEADLINE_SECONDS)


def wait_for(servers: str, expected: Counter[Key], query: StreamingQuery) -> Counter[Key]:
    """The counts as they stand, when they are right or the time is over."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        if (failure := query.exception()) is not None:
            raise failure
        found = read_counts(servers)
        if found == expected or time.monotonic() > deadline:
            return found


def read_counts(servers: str) -> Counter[Key]:
    """The last count of every key."""
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    with contextlib.closing(consumer):
        partition = TopicPartition(COUNTS, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        counts = Counter[Key]()
        while consumer.position(partition) < end:
            for records in consumer.poll(timeout_ms=500).values():
                for record in records:
                    row = json.loads(record.value)
                    counts[row["page"], row["minute"]] = row["count"]
        return counts


def chart(counts: Counter[Key]) -> list[str]:
    most = max(counts.values(), default=1)
    return [
        f"   {minute}  {page:9} {'█' * max(1, count * BAR_CHARACTERS // most)} {count}"
        for (page, minute), count in sorted(counts.items(), key=lambda row: (row[0][1], row[0][0]))
    ]
