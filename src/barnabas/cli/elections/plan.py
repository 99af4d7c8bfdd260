"""Prediction of leader elections from a Metadata response. Without I/O.

The controller decides with its own, newer state. So a prediction can be wrong while brokers start or fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from barnabas.client.view import ClusterView, PartitionView
from barnabas.explain.wording import name_brokers
from barnabas.model import TopicPartition
from barnabas.wire.messages.elect_leaders import ElectionType


class PredictedElection(Struct, frozen=True, kw_only=True):
    """An election that a partition needs. `after` is None if no replica can be elected; `why` is the reason."""

    partition: TopicPartition
    before: int | None
    after: int | None
    why: str | None = None
    is_unclean: bool = False
    """The new leader is not in sync: records that it does not have are lost."""


def predict_elections(
    view: ClusterView, partitions: Iterable[TopicPartition], election: ElectionType
) -> list[PredictedElection]:
    """Return an election for each partition that needs one, in the order of `partitions`, which the view must have."""
    predict = predict_preferred if election is ElectionType.PREFERRED else predict_unclean
    seen = index_partitions(view)
    found = (predict(each, seen[each], view.brokers) for each in partitions)
    return [each for each in found if each is not None]


def index_partitions(view: ClusterView) -> dict[TopicPartition, PartitionView]:
    """Return all partitions of the view. `view.partition` searches a topic for each of them."""
    return {
        TopicPartition(name, each.partition): each
        for name, topic in view.topics.items()
        for each in topic.partitions
    }


def predict_preferred(
    partition: TopicPartition, seen: PartitionView, alive: Collection[int]
) -> PredictedElection | None:
    """Return None if the first replica is the leader."""
    preferred = seen.replicas[0] if seen.replicas else None
    if preferred is None or seen.leader == preferred:
        return None
    why = None
    if preferred not in alive:
        why = f"{name_brokers([preferred])} is not alive"
    elif preferred not in seen.isr:
        why = f"{name_brokers([preferred])} is not in sync"
    return PredictedElection(
        partition=partition,
        before=None if seen.is_offline else seen.leader,
        after=preferred if why is None else None,
        why=why,
    )


def predict_unclean(
    partition: TopicPartition, seen: PartitionView, alive: Collection[int]
) -> PredictedElection | None:
    """Return None if the partition has a leader. An in-sync replica is elected if one is alive."""
    if not seen.is_offline:
        return None
    candidates = [broker for broker in seen.replicas if broker in alive]
    in_sync = [broker for broker in candidates if broker in seen.isr]
    if not candidates:
        why = f"no replica is alive; replicas are on {name_brokers(seen.replicas)}"
        return PredictedElection(partition=partition, before=None, after=None, why=why)
    return PredictedElection(
        partition=partition,
        before=None,
        after=(in_sync or candidates)[0],
        is_unclean=not in_sync,
    )
