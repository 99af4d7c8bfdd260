"""The benchmark of a node runs and reports every measurement. No figure is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import node
from benchmarks.loads import KB, MB, Cost, Load
from tests.zookeeper import require_java

TINY = node.Extent(
    brokers=(2,),
    rounds=1,
    frames=(Load(batch_bytes=16 * KB, partitions=3, total_bytes=2 * MB),),
    librdkafka=(Load(batch_bytes=16 * KB, partitions=3, total_bytes=2 * MB),),
)


def test_every_measurement_is_reported(tmp_path: Path) -> None:
    require_java()
    found = node.measure(TINY)
    assert len(found) == 4 * len(node.UNITS)
    assert all(values[0] > 0 for name, values in found.items() if name.endswith("mb_per_s"))
    assert len(list(node.table(found))) == 5
    node.write_json(tmp_path / "node.json", found, quick=True)
    written = json.loads((tmp_path / "node.json").read_text())["measurements"]
    assert written.keys() == found.keys()


def test_speed_up_compares_with_the_smallest_node() -> None:
    found = {
        f"produce/{brokers} brokers/{unit}": [value * brokers, value * brokers]
        for brokers in (2, 1)
        for unit, value in zip(node.UNITS, (100.0, 2.0, 0.5, 1.2), strict=True)
    }
    header, one, two = node.table(found)
    assert header.split()[0] == "brokers"
    assert one.split() == ["produce", "1", "100", "2.00", "0.50", "1.20", "1.00"]
    assert two.split()[-1] == "2.00"


def test_busy_cores_include_the_clients() -> None:
    cost = node.NodeCost(
        cost=Cost(data_bytes=2_000_000_000, wall_s=4.0, cpu_s=3.0), client_cpu_s=1.0
    )
    assert cost.values() == pytest.approx(
        {
            "mb_per_s": 500.0,
            "broker_cpu_s_per_gb": 1.5,
            "client_cpu_s_per_gb": 0.5,
            "busy_cores": 1.0,
        }
    )
