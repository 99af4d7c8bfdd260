"""Which partition a record goes to, as Kafka's own producer decides it.

A record with a key always goes to the same partition, and to the same one whichever client wrote it: murmur2 of the
key. Records without a key stick to one partition until a batch is full, so that batches are large, and then move on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

MASK = 0xFFFF_FFFF
MULTIPLIER = 0x5BD1_E995
SEED = 0x9747_B28C


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed, as an unsigned number."""
    size = len(data)
    state = SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        state = state * MULTIPLIER & MASK ^ word
    if whole < size:
        state = (state ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    state = (state ^ state >> 13) * MULTIPLIER & MASK
    return state ^ state >> 15


class Sticky:
    """The partition of the moment, per topic, for records without a key."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.current: dict[str, int] = {}

    def choose(self, topic: str, available: Callable[[], list[int]]) -> int:
        """The current partition, or the first one of many."""
        current = self.current.get(topic)
        if current is None:
            current = self.current[topic] = self.random.choice(available())
        return current

    def move_on(self, topic: str, available: list[int]) -> None:
        """A batch is full: any other of the available partitions will do."""
        others = [partition for partition in available if partition != self.current.get(topic)]
        self.current[topic] = self.random.choice(others or available)
