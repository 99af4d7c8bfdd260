"""What the requests of the controller, and those to it, have in common."""

from __future__ import annotations

from enum import IntEnum

UNKNOWN_BROKER_EPOCH = -1
"""From a sender too old to know it; no broker refuses it as stale."""

LEADER_DURING_DELETE = -2
"""The leader of a partition whose topic is being deleted."""
EPOCH_DURING_DELETE = -2
"""The leader epoch of such a partition: it stands above every other."""


class UpdateType(IntEnum):
    """Whether a request names what has changed, or everything there is, so that what it does not name is gone.

    A controller that lives in ZooKeeper sends UNKNOWN, which is read as INCREMENTAL; the others come from a KRaft
    controller that is taking over.
    """

    UNKNOWN = 0
    INCREMENTAL = 1
    FULL = 2


class LeaderRecoveryState(IntEnum):
    """RECOVERING from an unclean election on, until the new leader has said that it is done."""

    RECOVERED = 0
    RECOVERING = 1
