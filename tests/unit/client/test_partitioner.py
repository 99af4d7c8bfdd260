from __future__ import annotations

from random import Random
from typing import Any

import kafka.partitioner.default as kafka_python
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.partitioner import StickyPartitioner, murmur2, partition_of_key


def test_murmur2_matches_java_client() -> None:
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, expected in known.items():
        assert murmur2(key) == expected & 0xFFFF_FFFF


@given(st.binary(max_size=40))
def test_murmur2_matches_kafka_python(key: bytes) -> None:
    theirs: Any = kafka_python.murmur2(key)
    assert murmur2(key) == theirs & 0xFFFF_FFFF


@given(st.binary(max_size=20), st.integers(1, 100))
def test_key_maps_to_one_partition(key: bytes, count: int) -> None:
    chosen = partition_of_key(key, count)
    assert 0 <= chosen < count
    assert chosen == partition_of_key(key, count)


def test_sticky_partition_changes_only_on_move_on() -> None:
    sticky = StickyPartitioner(Random(1))
    first = sticky.choose("t", lambda: [0, 1, 2])
    assert {sticky.choose("t", lambda: [0, 1, 2]) for _ in range(20)} == {first}
    sticky.switch("t", [0, 1, 2])
    assert sticky.choose("t", lambda: [0, 1, 2]) != first


def test_single_partition_stays_after_move_on() -> None:
    sticky = StickyPartitioner(Random(1))
    sticky.switch("t", [0])
    assert sticky.choose("t", lambda: [0]) == 0
