"""Values shared by the requests from and to the controller."""

from __future__ import annotations

from enum import IntEnum

UNKNOWN_BROKER_EPOCH = -1
"""Broker epoch of a request in a version without that field. Barnabas rejects it as stale; Kafka accepts it."""

LEADER_DURING_DELETE = -2
"""The leader of a partition whose topic is being deleted."""
EPOCH_DURING_DELETE = -2
"""The leader epoch of such a partition in StopReplica. It is never rejected as stale."""


class LeaderRecoveryState(IntEnum):
    """RECOVERING after an unclean election, until the new leader reports that it has recovered."""

    RECOVERED = 0
    RECOVERING = 1
