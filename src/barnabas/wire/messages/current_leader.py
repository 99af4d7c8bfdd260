"""The current leader of a partition, in Produce and Fetch responses from a former leader."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.codec import Int32


class LeaderIdAndEpoch(NamedTuple):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(NamedTuple):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


LEADER_UNKNOWN = LeaderIdAndEpoch()
