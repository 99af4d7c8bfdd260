"""Where a partition's leader is now, told in the very answer that refuses: a client need not ask for metadata first.

Our own replica knows best, since LeaderAndIsr comes before UpdateMetadata; where there is none, we go by the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.context import BrokerContext
from barnabas.model import BrokerId
from barnabas.wire.messages.current_leader import LEADER_UNKNOWN, LeaderIdAndEpoch, NodeEndpoint


def leader_of(context: BrokerContext, topic: str, index: int) -> LeaderIdAndEpoch:
    partition = context.replicas.partitions.get((topic, index))
    if partition is not None:
        return LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
    known = context.metadata.topics.get(topic)
    state = known.partitions.get(index) if known is not None else None
    return LeaderIdAndEpoch(state.leader, state.leader_epoch) if state else LEADER_UNKNOWN


def endpoints_of(
    context: BrokerContext, leaders: Iterable[LeaderIdAndEpoch], listener: str
) -> tuple[NodeEndpoint, ...]:
    """Each of those that are alive once, as a client that came in through `listener` reaches it."""
    found = []
    for leader in sorted({leader.leader_id for leader in leaders}):
        endpoint = context.metadata.endpoint_of(leader, listener)
        if endpoint is not None:
            rack = context.metadata.brokers[BrokerId(leader)].rack
            found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, rack))
    return tuple(found)
