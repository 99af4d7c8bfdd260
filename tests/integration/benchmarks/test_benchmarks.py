"""The benchmark harness runs, with amounts too small to measure speed."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.batch.compression import Compression
from barnabas.batch.header import BatchHeader
from benchmarks import floor, frames, latency, librdkafka, plots, profiling, report, suite
from benchmarks.broker import BenchmarkBroker
from benchmarks.loads import KB, MB, Load, format_size, parse_size
from benchmarks.targets import summary

SMALL = Load(batch_bytes=16 * KB, partitions=2, total_bytes=MB)


def fake_results(extent: suite.Extent) -> dict[str, list[float]]:
    """Wide numbers for every name that the tables and plots use."""
    found = {"latency/acks=all/acknowledged/p99_ms": [0.1, 12.5, 123.0]}
    for way, direction in itertools.product(suite.CLIENTS, ("produce", "fetch")):
        for record, batch, partitions in itertools.product(
            extent.record_sizes, extent.batch_sizes, extent.partitions
        ):
            name = suite.load_name(way, direction, record, batch, partitions)
            found[f"{name}/mb_per_s"] = [1000.0, 1234.5, 9999.0]
            found[f"{name}/cpu_s_per_gb"] = [1.111, 2.222, 19.99]
    for direction, batch in itertools.product(("produce", "fetch"), extent.batch_sizes):
        name = suite.floor_name(direction, batch)
        found[f"{name}/mb_per_s"] = [9999.0]
        found[f"{name}/cpu_s_per_gb"] = [1.111]
    return found


@pytest.mark.parametrize("way", [frames, librdkafka])
def test_load_is_produced_and_fetched(way: object) -> None:
    assert way in suite.CLIENTS.values()
    with BenchmarkBroker() as broker:
        produced, fetched = way.run_produce_and_fetch(broker, SMALL)  # type: ignore[attr-defined]
    assert produced.data_bytes == SMALL.batches * SMALL.batch_bytes == MB
    assert fetched.data_bytes >= MB
    assert produced.cpu_s > 0


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_load_is_counted_before_compression(codec: str) -> None:
    load = replace(SMALL, codec=codec, varies=True)
    with BenchmarkBroker() as broker:
        produced, fetched = frames.run_produce_and_fetch(broker, load)
    assert produced.data_bytes == MB
    assert fetched.data_bytes > 2 * frames.FETCHED_SHARE * MB


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("record_bytes", [100, KB])
@pytest.mark.parametrize("varies", [False, True])
def test_records_compress_like_log_text(
    codec: Compression, record_bytes: int, varies: bool
) -> None:
    _, batch = frames.build_exact_batch(128 * KB, record_bytes, varies=varies, codec=codec)
    assert BatchHeader(batch).compression == codec
    assert 3 < 128 * KB / len(batch) < 6


def test_batches_of_a_load_differ_but_hold_equally_many_records() -> None:
    load = replace(SMALL, record_bytes=100, varies=True)
    count, batches = frames.build_batches(load)
    assert len(set(batches)) == frames.DISTINCT_BATCHES
    assert {BatchHeader(batch).count for batch in batches} == {count}


def test_missing_batch_is_detected() -> None:
    with BenchmarkBroker() as broker:
        driver = frames.FrameDriver(broker, broker.create_topic("load", 2), SMALL)
        driver.produced += 2
        with pytest.raises(RuntimeError, match="should end at"):
            frames.check_all_arrived(broker, driver)
        driver.close()


def test_latency_run_acknowledges_and_consumes_every_record() -> None:
    with BenchmarkBroker() as broker:
        acknowledged, consumed = latency.measure(broker, acks=-1, rate=1000, seconds=0.1)
    assert 0 < acknowledged.p50_ms <= acknowledged.p99_ms
    assert 0 < consumed.p50_ms <= consumed.p99_ms


def test_call_profile_lists_broker_functions() -> None:
    found = profiling.profile("produce", SMALL, "calls")
    assert found.requests == SMALL.batches
    assert any(row.where == "broker/router.py" for row in found.by_function())


@pytest.mark.parametrize("batch_bytes", [KB, 16 * KB, 128 * KB, MB])
@pytest.mark.parametrize("record_bytes", [100, KB])
@pytest.mark.parametrize("varies", [False, True])
def test_exact_batch_has_requested_size(batch_bytes: int, record_bytes: int, varies: bool) -> None:
    count, batch = frames.build_exact_batch(batch_bytes, record_bytes, varies=varies)
    assert len(batch) == batch_bytes
    assert BatchHeader(batch).count == count


@pytest.mark.parametrize("extent", [suite.QUICK, suite.FULL])
def test_tables_fit_120_columns(extent: suite.Extent) -> None:
    assert max(map(len, report.table(fake_results(extent), extent))) <= 120


def test_report_starts_with_number_of_targets_met(tmp_path: Path) -> None:
    found = {
        "frames/produce/1k/128k/1p/cpu_s_per_gb": [0.5, 0.6, 0.9],
        "idle/0p/resident_mb": [50.0],
    }
    lines = list(summary(report.verdicts(found)))
    assert lines == ["1 of 2 targets met, missed:", "  idle 0p, resident MB: 50.00, target ≤40"]
    report.write_json(tmp_path / "latest.json", found, quick=True, repeat=3)
    written = json.loads((tmp_path / "latest.json").read_text())
    assert written["summary"] == {"targets": 2, "met": 1, "missed": ["idle 0p, resident MB"]}
    assert written["measurements"]["idle/0p/resident_mb"]["is_met"] is False


def test_floor_moves_as_many_bytes_as_the_load() -> None:
    produced, fetched = floor.measure(Load(batch_bytes=16 * KB, total_bytes=4 * MB))
    assert produced.data_bytes == 4 * MB
    assert fetched.data_bytes == frames.FETCHED_SHARE * 4 * MB
    assert produced.cpu_s > 0
    assert fetched.cpu_s > 0


def test_both_plots_are_drawn(tmp_path: Path) -> None:
    drawn = plots.draw(tmp_path, fake_results(suite.FULL), suite.FULL)
    assert [path.name for path in drawn] == ["cpu_s_per_gb.svg", "mb_per_s.svg"]
    assert all(path.stat().st_size for path in drawn)


@pytest.mark.parametrize("text", ["100", "1k", "16k", "128k", "1m", "3g"])
def test_sizes_round_trip(text: str) -> None:
    assert format_size(parse_size(text)) == text
