"""The current leader of a partition, for Produce and Fetch responses with an error about leadership.

The client then needs no Metadata request. The local replica is the best source, since LeaderAndIsr arrives before
UpdateMetadata. Without a local replica the metadata cache is used.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.context import BrokerContext
from barnabas.model import BrokerId
from barnabas.wire.messages.current_leader import LEADER_UNKNOWN, LeaderIdAndEpoch, NodeEndpoint


def find_leader(context: BrokerContext, topic: str, index: int) -> LeaderIdAndEpoch:
    """Return the leader that this broker knows, or LEADER_UNKNOWN."""
    partition = context.replicas.partitions.get((topic, index))
    if partition is not None:
        return LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
    known = context.metadata.topics.get(topic)
    state = known.partitions.get(index) if known is not None else None
    return LeaderIdAndEpoch(state.leader, state.leader_epoch) if state else LEADER_UNKNOWN


def find_endpoints(
    context: BrokerContext, leaders: Iterable[LeaderIdAndEpoch], listener: str
) -> tuple[NodeEndpoint, ...]:
    """Return the endpoints of the running leaders on `listener`, without duplicates, sorted by broker id."""
    found = []
    for leader in sorted({leader.leader_id for leader in leaders}):
        endpoint = context.metadata.endpoint_of(leader, listener)
        if endpoint is not None:
            rack = context.metadata.brokers[BrokerId(leader)].rack
            found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, rack))
    return tuple(found)
