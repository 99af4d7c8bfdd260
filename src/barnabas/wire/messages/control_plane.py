"""Values that the requests of the controller, and those to it, share."""

from __future__ import annotations

from enum import IntEnum

UNKNOWN_BROKER_EPOCH = -1
"""From a sender whose version has no broker epoch. No broker rejects it as stale."""

LEADER_DURING_DELETE = -2
"""The leader of a partition whose topic is being deleted."""
EPOCH_DURING_DELETE = -2
"""The leader epoch of such a partition. It is greater than any other epoch."""


class UpdateType(IntEnum):
    """Whether a request has only changes, or everything, so that anything it does not name is removed.

    A controller in ZooKeeper mode sends UNKNOWN, which means INCREMENTAL. The others come from a KRaft controller
    during a migration.
    """

    UNKNOWN = 0
    INCREMENTAL = 1
    FULL = 2


class LeaderRecoveryState(IntEnum):
    """RECOVERING after an unclean election, until the new leader reports that it has recovered."""

    RECOVERED = 0
    RECOVERING = 1
