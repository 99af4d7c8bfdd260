"""Selection of a follower that a consumer reads from, by rack (KIP-392).

A consumer fetches from the leader first. The leader knows the ISR and the log end offset of each follower. It selects a
follower in the consumer's rack, unless it is in this rack itself. The follower must be in sync and have the fetched
offset. Otherwise the consumer could not progress, because the leader would select the same follower again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.model import BrokerId


class ReadCandidate(NamedTuple):
    """An in-sync follower that has the fetched offset and an address for the client."""

    broker: BrokerId
    rack: str | None
    log_end_offset: int
    last_caught_up_ms: float


def select_read_replica(
    rack: str, leader_rack: str | None, followers: Iterable[ReadCandidate]
) -> BrokerId | None:
    """Return the follower to read from, or None for the leader.

    Prefers the largest log end offset, then the latest time of being caught up, then the largest broker id.
    """
    if not rack or rack == leader_rack:
        return None
    near = [each for each in followers if each.rack == rack]
    if not near:
        return None
    return max(
        near, key=lambda each: (each.log_end_offset, each.last_caught_up_ms, each.broker)
    ).broker
