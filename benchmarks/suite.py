"""The steps of `python -m benchmarks`, which are repeated in rounds.

A round runs every step once, so that other load on the machine affects all steps alike. A step returns numbers by name.
The last part of a name is the unit:

    frames/produce/1k/128k/1p/cpu_s_per_gb
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from types import ModuleType

from benchmarks import broker_lifecycle, floor, frames, latency, librdkafka
from benchmarks.broker import BenchmarkBroker, MeasuredBroker
from benchmarks.loads import GB, KB, MB, NO_CODEC, Cost, Load, format_size

CLIENTS: dict[str, ModuleType] = {"frames": frames, "librdkafka": librdkafka}
ACKS = {"1": 1, "all": -1}
VARIED = "varied"
"""Name for frames whose records differ in size. The broker validates such records one by one."""
VARIED_BATCH_SIZES = (16 * KB, 128 * KB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Parameters of a run. `bytes_of` is the amount of data per client and record size."""

    record_sizes: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    partitions: tuple[int, ...]
    bytes_of: dict[tuple[str, int], int]
    rate: int
    latency_s: float
    idle_s: float
    idle_partitions: tuple[int, ...]
    recovery_bytes: int


FULL = Extent(
    record_sizes=(100, KB),
    batch_sizes=(16 * KB, 128 * KB, MB),
    partitions=(1, 8),
    bytes_of={
        ("frames", 100): 512 * MB,
        ("frames", KB): 512 * MB,
        ("librdkafka", 100): 64 * MB,
        ("librdkafka", KB): 256 * MB,
    },
    rate=1000,
    latency_s=10,
    idle_s=5,
    idle_partitions=(0, 1000),
    recovery_bytes=GB,
)
QUICK = replace(
    FULL,
    record_sizes=(KB,),
    partitions=(1,),
    bytes_of={("frames", KB): 192 * MB, ("librdkafka", KB): 64 * MB},
    latency_s=2,
    idle_s=2,
    recovery_bytes=256 * MB,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    run: Callable[[], dict[str, float]]


def steps(extent: Extent) -> Iterator[Step]:
    for record, partitions, batch, way in product(
        extent.record_sizes, extent.partitions, extent.batch_sizes, CLIENTS
    ):
        load = Load(
            batch_bytes=batch,
            record_bytes=record,
            partitions=partitions,
            total_bytes=extent.bytes_of[way, record],
        )
        yield Step(name=f"{way}: {load}", run=partial(measure_throughput, way, load))
    for record, batch in product(extent.record_sizes, VARIED_BATCH_SIZES):
        load = Load(
            batch_bytes=batch,
            record_bytes=record,
            total_bytes=extent.bytes_of["frames", record],
            varies=True,
        )
        yield Step(name=f"frames: {load}", run=partial(measure_throughput, "frames", load))
    for batch in extent.batch_sizes:
        load = Load(batch_bytes=batch, total_bytes=extent.bytes_of["frames", KB])
        yield Step(name=f"floor: {load}", run=partial(measure_floor, load))
    for acks in ACKS:
        yield Step(name=f"latency with acks={acks}", run=partial(measure_latency, acks, extent))
    yield Step(name="start-up", run=measure_start)
    for partitions in extent.idle_partitions:
        yield Step(
            name=f"idle with {partitions} partitions",
            run=partial(measure_idle, partitions, extent.idle_s),
        )
    yield Step(name="recovery", run=partial(measure_recovery, extent.recovery_bytes))


def measure_throughput(way: str, load: Load) -> dict[str, float]:
    with BenchmarkBroker() as broker:
        return produce_and_fetch(way, load, broker)


def produce_and_fetch(way: str, load: Load, broker: MeasuredBroker) -> dict[str, float]:
    costs = CLIENTS[way].run_produce_and_fetch(broker, load)
    found: dict[str, float] = {}
    for direction, cost in zip(("produce", "fetch"), costs, strict=True):
        kind = load_kind(way, load)
        name = load_name(kind, direction, load.record_bytes, load.batch_bytes, load.partitions)
        found |= cost_values(name, cost)
    return found


def load_kind(way: str, load: Load) -> str:
    """Return the first part of a load's name: frames, varied-zstd, librdkafka, perf-test."""
    kind = VARIED if load.varies else way
    return kind if load.codec == NO_CODEC else f"{kind}-{load.codec}"


def cost_values(name: str, cost: Cost) -> dict[str, float]:
    return {
        f"{name}/mb_per_s": cost.mb_per_s,
        f"{name}/cpu_s_per_gb": cost.cpu_s_per_gb,
        f"{name}/busy_cores": cost.busy_cores,
    }


def measure_floor(load: Load) -> dict[str, float]:
    produced, fetched = floor.measure(load)
    return cost_values(floor_name("produce", load.batch_bytes), produced) | cost_values(
        floor_name("fetch", load.batch_bytes), fetched
    )


def floor_name(direction: str, batch: int) -> str:
    return f"floor/{direction}/{format_size(batch)}"


def load_name(way: str, direction: str, record: int, batch: int, partitions: int) -> str:
    return f"{way}/{direction}/{format_size(record)}/{format_size(batch)}/{partitions}p"


def measure_latency(acks: str, extent: Extent) -> dict[str, float]:
    with BenchmarkBroker() as broker:
        acknowledged, consumed = latency.measure(
            broker, acks=ACKS[acks], rate=extent.rate, seconds=extent.latency_s
        )
    return {
        f"latency/acks={acks}/{event}/{part}_ms": value
        for event, found in (("acknowledged", acknowledged), ("consumed", consumed))
        for part, value in (("p50", found.p50_ms), ("p99", found.p99_ms))
    }


def measure_start() -> dict[str, float]:
    with_imports, without = broker_lifecycle.measure_local_cluster_start()
    return {
        "start/process/s": broker_lifecycle.measure_process_start(),
        "start/local_cluster/s": with_imports,
        "start/local_cluster_imported/s": without,
    }


def measure_idle(partitions: int, seconds: float) -> dict[str, float]:
    resident_mb, percent = broker_lifecycle.measure_idle(partitions, seconds)
    return {
        f"idle/{partitions}p/resident_mb": resident_mb,
        f"idle/{partitions}p/percent_of_a_core": percent,
    }


def measure_recovery(size: int) -> dict[str, float]:
    crashed_s, clean_s = broker_lifecycle.measure_recovery(
        Load(batch_bytes=128 * KB, total_bytes=size)
    )
    return {
        f"recovery/{format_size(size)}/s": crashed_s,
        f"recovery/{format_size(size)}/s_per_gb": (crashed_s - clean_s) / (size / 1e9),
    }
