"""Group the clicks of each user into sessions, which end after 30 minutes without a click.

    pip install 'barnabas[pipelines]'
    barnabas up --topic clicks:2:1 --topic sessions:2:1 &
    echo '{"user": "frieda", "at": "2026-11-17T12:00:05Z"}' | barnabas produce clicks
    python examples/pipelines/sessions.py

Spark calls the processor with the new clicks of a user, and again when the watermark reaches the timer of the session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

import barnabas.spark

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")
PAUSE_MS = 30 * 60 * 1000
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Sessions(StatefulProcessor):  # type: ignore[misc]
    """Collects the clicks of one user. Times are milliseconds since 1970."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.session = handle.getValueState("session", "begin long, end long, clicks int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for at in sorted(row["at_ms"] for row in rows):
            begin, end, clicks = self.session.get() or (at, at, 0)
            if at - end > PAUSE_MS:
                yield self.end_session(key)
                begin, end, clicks = at, at, 0
            self.session.update((begin, max(end, at), clicks + 1))
            self.set_timer(max(end, at) + PAUSE_MS)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        if self.session.exists():
            yield self.end_session(key)

    def end_session(self, key: Any) -> Row:
        begin, end, clicks = self.session.get()
        self.session.clear()
        return Row(user=key[0], begin=begin, end=end, clicks=clicks)

    def set_timer(self, at: int) -> None:
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(at)


def sessions(records: DataFrame) -> DataFrame:
    clicks = records.select(
        from_json(col("value").cast("string"), "user string, at timestamp").alias("click")
    ).selectExpr("click.user", "click.at", "unix_millis(click.at) as at_ms")
    found = (
        clicks.withWatermark("at", "1 minute")
        .groupBy("user")
        .transformWithState(
            statefulProcessor=Sessions(),
            outputStructType="user string, begin long, end long, clicks int",
            outputMode="Append",
            timeMode="EventTime",
        )
    )
    return found.selectExpr(
        "user", "timestamp_millis(begin) as begin", "timestamp_millis(end) as end", "clicks"
    )


def start(
    spark: SparkSession,
    directory: Path,
    servers: str = SERVERS,
    source: str = "clicks",
    target: str = "sessions",
    **trigger: Any,
) -> StreamingQuery:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    records = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        sessions(records)
        .selectExpr("user as key", "to_json(struct(*)) as value")
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", str(directory / "sessions"))
        .trigger(**trigger or {"processingTime": "0 seconds"})
        .start()
    )


if __name__ == "__main__":
    start(barnabas.spark.session(), Path("clicks")).awaitTermination()
