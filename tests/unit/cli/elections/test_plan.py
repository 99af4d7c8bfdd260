from __future__ import annotations

import pytest

from barnabas.cli.elections.plan import (
    PredictedElection,
    predict_elections,
    predict_preferred,
    predict_unclean,
)
from barnabas.client.view import BrokerView, ClusterView, PartitionView, TopicView
from barnabas.model import NO_LEADER, BrokerId, TopicPartition
from barnabas.wire.messages.elect_leaders import ElectionType

ORDERS_0 = TopicPartition("orders", 0)


def seen(
    leader: int, replicas: tuple[int, ...], isr: tuple[int, ...], number: int = 0
) -> PartitionView:
    return PartitionView(
        partition=number, leader=BrokerId(leader), leader_epoch=0, replicas=replicas, isr=isr
    )


@pytest.mark.parametrize(
    ("partition", "alive", "after", "why"),
    [
        (seen(2, (1, 2), (1, 2)), (1, 2), 1, None),
        (seen(2, (1, 2), (2,)), (1, 2), None, "broker 1 is not in sync"),
        (seen(2, (1, 2), (2,)), (2,), None, "broker 1 is not alive"),
    ],
)
def test_preferred_leader_must_be_alive_and_in_sync(
    partition: PartitionView, alive: tuple[int, ...], after: int | None, why: str | None
) -> None:
    found = predict_preferred(ORDERS_0, partition, alive)
    assert found == PredictedElection(partition=ORDERS_0, before=2, after=after, why=why)


def test_partition_led_by_its_first_replica_needs_no_election() -> None:
    assert predict_preferred(ORDERS_0, seen(1, (1, 2), (1,)), (1,)) is None


def test_partition_with_leader_needs_no_unclean_election() -> None:
    assert predict_unclean(ORDERS_0, seen(2, (1, 2), (2,)), (2,)) is None


def test_unclean_election_prefers_in_sync_replica() -> None:
    found = predict_unclean(ORDERS_0, seen(NO_LEADER, (1, 2, 3), (3,)), (2, 3))
    assert found is not None
    assert (found.after, found.is_unclean) == (3, False)


def test_unclean_election_falls_back_to_first_live_replica() -> None:
    found = predict_unclean(ORDERS_0, seen(NO_LEADER, (1, 2, 3), (1,)), (2, 3))
    assert found is not None
    assert (found.after, found.is_unclean) == (2, True)


def test_unclean_election_without_live_replica_fails() -> None:
    found = predict_unclean(ORDERS_0, seen(NO_LEADER, (1, 2), (1,)), (3,))
    assert found is not None
    assert (found.after, found.why) == (
        None,
        "no replica is alive; replicas are on brokers 1 and 2",
    )


def test_predictions_keep_order_and_skip_satisfied_partitions() -> None:
    brokers = {
        BrokerId(number): BrokerView(id=BrokerId(number), host="a", port=1) for number in (1, 2)
    }
    topic = TopicView(
        name="orders",
        partitions=(
            seen(2, (1, 2), (1, 2), 0),
            seen(1, (1, 2), (1, 2), 1),
            seen(1, (2, 1), (1, 2), 2),
        ),
    )
    view = ClusterView(brokers=brokers, topics={"orders": topic})
    wanted = [TopicPartition("orders", number) for number in (2, 1, 0)]
    found = predict_elections(view, wanted, ElectionType.PREFERRED)
    assert [(each.partition.partition, each.after) for each in found] == [(2, 2), (0, 1)]
