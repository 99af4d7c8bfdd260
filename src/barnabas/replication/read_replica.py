"""Whom a consumer is sent to when it says which rack it stands in.

The leader is asked first, and knows who is in sync and how far each follower has come. It names a follower only if that
stands in the consumer's rack and the leader does not, is in sync, and holds the offset asked for: one that lags would
keep its consumers behind for good, since they would be sent to it again and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.model import BrokerId


class Candidate(NamedTuple):
    """One replica as its leader knows it, where a client would find it."""

    broker: BrokerId
    rack: str | None
    log_end_offset: int
    last_caught_up_ms: float


def rack_aware(
    rack: str, leader_rack: str | None, followers: Iterable[Candidate]
) -> BrokerId | None:
    """The follower to read from, or None for the leader. Of several it is the one that has come furthest, then the one
    that was at the leader's end last."""
    if not rack or rack == leader_rack:
        return None
    near = [each for each in followers if each.rack == rack]
    if not near:
        return None
    return max(
        near, key=lambda each: (each.log_end_offset, each.last_caught_up_ms, each.broker)
    ).broker
