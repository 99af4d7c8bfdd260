"""Two streams survive repeated SIGKILLs of their driver, its Python workers and the broker. Parquet holds every record
once, the topic every record at least once. By default, one kill of each kind is aimed at each stream.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from support.broker import BrokerProcess
from support.seed import choose_seed
from tests.faults.raw_client import RawClient
from tests.spark_faults.stream_kills import (
    PARTITIONS,
    SINK,
    SOURCE,
    Other,
    Run,
    kill_repeatedly,
    kill_rounds,
    report,
    running,
)
from tests.spark_faults.stream_position import Stream, TopicStream

ROUNDS = kill_rounds(2)


@pytest.mark.timeout(300 + 150 * ROUNDS)
def test_kills_lose_nothing_and_parquet_has_no_duplicates(
    tmp_path: Path, trained_spark: str
) -> None:
    began = time.monotonic()
    chance = Random(choose_seed())
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.address) as client:
            assert client.create_topic(SOURCE, PARTITIONS) == 0
            assert client.create_topic(SINK, PARTITIONS) == 0
        streams = {
            "parquet": Stream("parquet", tmp_path / "parquet-checkpoint", tmp_path / "parquet"),
            "topic": TopicStream("topic", tmp_path / "topic-checkpoint", broker.log_dir, SINK),
        }
        with running(Run(broker, tmp_path, chance, streams)) as run:
            load = kill_repeatedly(run, ROUNDS, began)
        parquet = Counter((tmp_path / "found.txt").read_text().split())
        with RawClient(broker.address) as client:
            copied = [
                record.value
                for partition in range(PARTITIONS)
                for record in client.read_all(SINK, partition)
            ]
        assert "Traceback" not in broker.log()
    topic = Counter(value.decode() for value in copied if value is not None)
    report(run.tally, load, {"parquet": parquet, "topic": topic}, time.monotonic() - began)

    wanted = load.values()
    assert parquet == Counter(wanted)
    assert set(topic) == wanted
    assert not run.tally.failures_after(Other.BROKER)
