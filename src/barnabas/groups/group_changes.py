"""Changes of groups that the history records.

    rebalanced       every member of a new generation has its assignment
    member removed   its session or its rebalance timed out; a member that leaves is the reason of a rebalance
    empty            the last member left or was removed
    migrated         the group continues in the other protocol
    loaded           a new coordinator loaded the group and its members
    deleted          by a client, or because neither members nor offsets were left

Offset commits and heartbeats are not recorded.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

NO_REASON = "not provided"


class GroupChange(NamedTuple):
    """A change to record. The group determines the other facts: its generation and number of members."""

    after: str
    why: str | None = None
    member: str | None = None
    client: str | None = None
    member_host: str | None = None
    """The member that was removed, its client id and its host."""


class RemovedMember(Protocol):
    """A member of a group of either protocol."""

    @property
    def member_id(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...


def removal(member: RemovedMember, why: str) -> GroupChange:
    host = member.client_host.removeprefix("/")
    return GroupChange("member removed", why, member.member_id, member.client_id, host)


def plain_reason(reason: str) -> str:
    """Return a reason without the part that a client may add and did not.

    >>> plain_reason("member a left: not provided"), plain_reason("member a left: closed")
    ('member a left', 'member a left: closed')
    """
    return reason.removesuffix(f": {NO_REASON}")
