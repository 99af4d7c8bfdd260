"""Placement of records in a topic with another number of partitions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from barnabas.client.partitioner import partition_of_key
from barnabas.jobs.placement import LogTimes, place_batches, target_partitions


def test_keys_go_to_the_partition_of_kafkas_partitioner() -> None:
    keys = [b"", b"a", b"orders", None, "ключ".encode()]
    sources, offsets = np.array([0, 1, 2, 3, 4]), np.array([10, 11, 12, 13, 14])
    found = target_partitions(pa.array(keys, pa.binary()), sources, offsets, 5).tolist()
    assert [found[at] for at in (0, 1, 2, 4)] == [
        partition_of_key(key, 5) for key in keys if key is not None
    ]


def test_records_without_key_are_spread_evenly_and_always_in_the_same_way() -> None:
    keys = pa.nulls(100, pa.binary())
    sources, offsets = np.repeat([0, 1], 50), np.tile(np.arange(50), 2)
    found = target_partitions(keys, sources, offsets, 5)
    assert np.bincount(found).tolist() == [20, 20, 20, 20, 20]
    assert (found == target_partitions(keys, sources, offsets, 5)).all()


def test_log_time_never_falls_within_a_partition() -> None:
    times = LogTimes()
    assert times.add(np.array([0, 0, 0]), np.array([5, 3, 7])).tolist() == [5, 5, 7]
    assert times.add(np.array([0, 1, 0]), np.array([2, 1, 9])).tolist() == [7, 1, 9]


def test_batches_of_a_task_share_their_log_times() -> None:
    batch = [pa.array([None], pa.binary()), pa.array([3], pa.int32()), pa.array([4])]
    found = list(place_batches(iter([(*batch, pa.array([9])), (*batch, pa.array([1]))]), 5))
    assert [each.to_pylist() for each in found] == [[{"target": 2, "log_time": 9}]] * 2
