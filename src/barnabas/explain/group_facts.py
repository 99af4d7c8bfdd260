"""Facts about one consumer group. Immutable."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from barnabas.client.group_admin import GroupView
from barnabas.explain.facts import ClusterFacts
from barnabas.model import TopicPartition


class GroupProgress(Struct, frozen=True, kw_only=True):
    """Committed offset and bounds of one partition. None if unknown.

    `later_committed` was read some time after `committed`.
    """

    committed: int | None = None
    later_committed: int | None = None
    start: int | None = None
    end: int | None = None
    due: int | None = None
    """All records before this offset are older than `GroupFacts.stalled_after_ms`."""
    is_read: bool = False
    """After the committed offset there are only transaction markers and records of aborted transactions."""
    commit_ms: int | None = None
    """Time of the last commit, if it is among the last records of __consumer_offsets."""

    @property
    def lag(self) -> int | None:
        if self.end is None:
            return None
        if self.committed is None:
            return max(0, self.end - (self.start or 0))
        return max(0, self.end - self.committed)

    @property
    def is_late(self) -> bool:
        """Whether old records are not committed. Consumers that keep up commit a few seconds after reading."""
        if self.is_read:
            return False
        due = self.end if self.due is None else self.due
        committed = self.committed if self.committed is not None else self.start
        return due is not None and (committed or 0) < due


class GroupFacts(Struct, frozen=True, kw_only=True):
    """A group, with the facts of its cluster. `view` is None if the coordinator does not answer."""

    group_id: str
    cluster: ClusterFacts
    view: GroupView | None = None
    coordinator_error: str | None = None
    is_loading: bool = False
    offsets_partition: TopicPartition | None = None
    """The partition of __consumer_offsets that has the group; its leader is the coordinator."""
    last_members: frozenset[str] = frozenset()
    """Members of the last completed rebalance."""
    rebalance_timeout_ms: int | None = None
    """The longest of the last members. A member that has not rejoined by then is removed."""
    state_ms: int | None = None
    """When the group became Stable or Empty for the last time."""
    progress: Mapping[TopicPartition, GroupProgress] = field(default_factory=dict)
    stalled_after_ms: int = 10_000
    """A member that commits nothing for this time is not committing. Younger records are no problem."""
