"""The proposal of kafka-reassign-partitions --generate."""

from __future__ import annotations

import pytest

from barnabas.cli.kafka.failures import RequestRejected, exception_name
from barnabas.cli.kafka.reassign import propose_assignment
from barnabas.client.view import PartitionView, TopicView
from barnabas.model import Broker, BrokerId
from tests.unit.reassignment.layouts import tp

ORDERS = TopicView(
    name="orders",
    partitions=(
        PartitionView(partition=0, leader=BrokerId(1), leader_epoch=0, replicas=(1, 2), isr=(1, 2)),
    ),
)


def broker(number: int, rack: str | None = None) -> Broker:
    return Broker(id=BrokerId(number), endpoints=(), rack=rack)


def test_topic_keeps_its_number_of_replicas() -> None:
    assert {
        each: set(row) for each, row in propose_assignment([ORDERS], [broker(3), broker(4)]).items()
    } == {tp("orders-0"): {3, 4}}


def test_more_replicas_than_brokers_are_rejected() -> None:
    with pytest.raises(RequestRejected) as caught:
        propose_assignment([ORDERS], [broker(3)])
    assert caught.value.message == "Replication factor: 2 larger than available brokers: 1."
    assert exception_name(caught.value).endswith(".InvalidReplicationFactorException")


def test_brokers_with_and_without_racks_are_rejected() -> None:
    with pytest.raises(RequestRejected) as caught:
        propose_assignment([ORDERS], [broker(3, "a"), broker(4)])
    assert caught.value.message.startswith(
        "Not all brokers have rack information. Add --disable-rack-aware in command line"
    )
    assert exception_name(caught.value).endswith(".AdminOperationException")
