"""Kafka's default partitioner.

The partition of a record with a key is murmur2(key) modulo the number of partitions, as in Kafka's Java client. Records
without a key go to one partition until its batch is full or sent, and then to another. This makes batches large.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

MASK = 0xFFFF_FFFF
MULTIPLIER = 0x5BD1_E995
SEED = 0x9747_B28C


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a record with this key."""
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with Kafka's seed, as an unsigned integer."""
    size = len(data)
    state = SEED ^ size
    aligned = size & ~3
    for at in range(0, aligned, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        state = state * MULTIPLIER & MASK ^ word
    if aligned < size:
        state = (state ^ int.from_bytes(data[aligned:], "little")) * MULTIPLIER & MASK
    state = (state ^ state >> 13) * MULTIPLIER & MASK
    return state ^ state >> 15


class StickyPartitioner:
    """Chooses the partition for records without a key, per topic."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.current: dict[str, int] = {}

    def choose(self, topic: str, available: Callable[[], list[int]]) -> int:
        """Return the current partition of the topic; at first, a random one."""
        current = self.current.get(topic)
        if current is None:
            current = self.current[topic] = self.random.choice(available())
        return current

    def switch(self, topic: str, available: list[int]) -> None:
        """Switch the topic to another available partition at random."""
        others = [partition for partition in available if partition != self.current.get(topic)]
        self.current[topic] = self.random.choice(others or available)
