"""The examples windows and join under kills: their topics, a continuous input, and the expected results."""

from __future__ import annotations

import json
import runpy
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from tests.spark.topics import Topics

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
USERS = 3
STEP_S = 5
"""Seconds of event time that each call of `ExampleInput.write` adds."""
PAYMENT_DELAY_S = 30
DEADLINE_S = 180
TOPICS = ("clicks", "clicks-per-minute", "orders", "payments", "paid-orders")


def at(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_700_000_040 + second))


LATE_CLICK = {"user": "end", "at": at(1_000_000)}


class ExampleInput:
    """One click and one order for each second of event time. An order is paid later."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.seconds = 0
        self.paid = 0

    def write(self) -> None:
        """Write the clicks and orders of the next STEP_S seconds, and the payments that are due."""
        seconds = range(self.seconds, self.seconds + STEP_S)
        self.seconds += STEP_S
        clicks = [{"user": f"u{each % USERS}", "at": at(each)} for each in seconds]
        orders = [{"order": each, "item": f"i{each}", "at": at(each)} for each in seconds]
        self.send({"clicks": clicks, "orders": orders})
        self.pay(self.seconds - PAYMENT_DELAY_S)

    def pay(self, end: int) -> None:
        """Pay all orders before second `end`."""
        due = range(self.paid, max(self.paid, end))
        self.paid = due.stop
        payments = [
            {"order": each, "amount": 2 * each, "at": at(each + PAYMENT_DELAY_S)} for each in due
        ]
        self.send({"payments": payments})

    def finish(self) -> None:
        """Pay the rest."""
        self.pay(self.seconds)

    def send(self, events: dict[str, list[dict[str, Any]]]) -> None:
        with Cluster(self.servers) as cluster, Producer(cluster) as producer:
            for topic, found in events.items():
                for event in found:
                    producer.send(topic, json.dumps(event).encode())


@cache
def load(name: str) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(EXAMPLES / f"{name}.py")))


def start_windows(
    spark: SparkSession, directory: Path, servers: str, **trigger: Any
) -> list[StreamingQuery]:
    queries: list[StreamingQuery] = load("windows").start(
        spark, directory / "clicks", servers, **trigger
    )
    return queries


def start_join(
    spark: SparkSession, directory: Path, servers: str, **trigger: Any
) -> list[StreamingQuery]:
    return [load("join").start(spark, directory / "orders", servers, **trigger)]


class Example(NamedTuple):
    start: Callable[..., list[StreamingQuery]]

    def complete(self, spark: SparkSession, directory: Path, servers: str) -> None:
        """Process all input that is there, and finish all minutes with a click that is later than every other one.

        Spark emits finished minutes in one more batch without input. A stream that was stopped before that batch runs
        it only after new input. So the late click must not be written while an earlier run can still process it.
        """
        ExampleInput(servers).send({"clicks": [LATE_CLICK]})
        for query in self.start(spark, directory, servers, availableNow=True):
            assert query.awaitTermination(DEADLINE_S)


EXAMPLE_STREAMS = {"windows": Example(start_windows), "join": Example(start_join)}


def has_planned_a_batch(directory: Path, began_ns: int) -> bool:
    """True if every stream has written to its checkpoint since `began_ns`."""
    checkpoints = ("clicks/to-topic", "clicks/to-files", "orders/paid-orders")
    return all(
        any(
            path.stat().st_mtime_ns > began_ns
            for path in list((directory / checkpoint / "offsets").glob("[0-9]*"))
        )
        for checkpoint in checkpoints
    )


# ---- check ------------------------------------------------------------------------------------------------------


def check_windows(topics: Topics, directory: Path, seconds: int) -> None:
    """The files have each minute once. The last record of each key in the topic is right."""
    expected = Counter((f"u{each % USERS}", at(each - each % 60)) for each in range(seconds))
    minutes = "date_format(minute, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"
    table = topics.spark.read.parquet(str(directory / "clicks" / "minutes"))
    rows = table.selectExpr("user", minutes, "clicks").collect()
    assert sorted((user, minute, count) for user, minute, count in rows) == sorted(
        (user, minute, count) for (user, minute), count in expected.items()
    )
    last = {
        record.key: json.loads(record.value or b"")["clicks"]
        for records in topics.records("clicks-per-minute").values()
        for record in records
    }
    assert Counter(last.values()) == Counter(expected.values())
    assert len(last) == len(expected)


def check_join(topics: Topics, seconds: int) -> None:
    found = [
        json.loads(record.value or b"")
        for records in topics.records("paid-orders").values()
        for record in records
    ]
    paid = {each["order"]: (each["item"], each["amount"]) for each in found}
    assert paid == {each: (f"i{each}", 2 * each) for each in range(seconds)}
