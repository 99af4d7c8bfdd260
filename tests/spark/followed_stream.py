"""Runs a stream into memory and exposes its rows and its failure."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

import psutil
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from barnabas.client.blocking import Deadline, pause
from support.process import pause_process
from tests.spark.topics import Topics, values_of

SOURCE = "python_streaming_source_runner"


class FollowedStream:
    """A stream into an in-memory table."""

    def __init__(self, topics: Topics, rows: DataFrame, checkpoint: str) -> None:
        self.table = f"seen_{uuid4().hex[:8]}"
        self.spark = topics.spark
        self.query: StreamingQuery = (
            rows.writeStream.format("memory")
            .queryName(self.table)
            .option("checkpointLocation", checkpoint)
            .start()
        )

    def values(self) -> list[str]:
        return values_of(self.spark.table(self.table))

    def wait_for(self, count: int) -> list[str]:
        def arrived() -> list[str] | bool:
            failure = self.query.exception()
            if failure is not None:
                raise failure
            return self.spark.table(self.table).count() >= count and self.values()

        return wait_until(arrived)

    @contextmanager
    def pause_sources(self) -> Iterator[None]:
        """Pause the stream's source processes, so that they never see intermediate changes."""
        sources = self.sources()
        for source in sources:
            pause_process(source)
        try:
            yield
        finally:
            for source in sources:
                os.kill(source, signal.SIGCONT)

    def sources(self) -> list[int]:
        """Source process ids. Spark leaves the process of a failed stream running for a while."""
        java = psutil.Process(self.spark.sparkContext._gateway.proc.pid)
        found = []
        for process in java.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if process.cmdline()[-1:] and process.cmdline()[-1].endswith(SOURCE):
                    found.append(process.pid)
        assert found
        return found

    def failure(self) -> str:
        with pytest.raises(Exception) as error:
            self.query.awaitTermination(90)
        return str(error.value)


def wait_until(condition: Callable[[], list[str] | bool]) -> list[str]:
    deadline = Deadline(90)
    while not (found := condition()):
        assert not deadline.passed
        pause(0.05)
    assert not isinstance(found, bool)
    return found


@contextmanager
def follow(topics: Topics, checkpoint: str, **options: object) -> Iterator[FollowedStream]:
    rows = topics.stream(**{"startingOffsets": "earliest", **options}).load()
    stream = FollowedStream(topics, rows, checkpoint)
    try:
        yield stream
    finally:
        stream.query.stop()
