"""Transactions of all coordinators, from a scripted broker: they are known only if no coordinator is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import TRANSACTION_STATE, TransactionAdmin
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_LEADER
from barnabas.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.scripted_broker import ScriptedBroker

PRODUCER_IDS = {1000}


class Coordinator(ScriptedBroker):
    """The only broker. It has no transactions. Partition 1 of __transaction_state has the leaders and epochs in `led`,
    one after the other; the last one remains.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                MetadataRequest: self.scripted_metadata,
                ListTransactionsRequest: lambda _: ListTransactionsResponse(
                    error_code=self.list_code
                ),
            }
        )
        self.topics = {TRANSACTION_STATE: 2}
        self.list_code = ErrorCode.NONE
        self.led = [(0, 0)]

    def scripted_metadata(self, request: MetadataRequest) -> MetadataResponse:
        response = self.metadata(request)
        if not response.topics or response.topics[0].error_code:
            return response
        (topic,) = response.topics
        leader, epoch = self.led.pop(0) if len(self.led) > 1 else self.led[0]
        first, second = topic.partitions
        second = second._replace(leader_id=leader, leader_epoch=epoch)
        return replace(response, topics=(topic._replace(partitions=(first, second)),))


@pytest.fixture
def broker() -> Iterator[Coordinator]:
    with Coordinator() as broker:
        yield broker


@pytest.fixture
def admin(broker: Coordinator) -> Iterator[TransactionAdmin]:
    with Cluster(broker.address, timeout_s=1) as cluster:
        cluster.refresh([])
        yield TransactionAdmin(cluster)


def test_all_coordinators_are_asked(broker: Coordinator, admin: TransactionAdmin) -> None:
    assert admin.known_transactions(PRODUCER_IDS) == {}
    assert len(broker.received(ListTransactionsRequest)) == 1


def test_cluster_without_transaction_topic_has_no_coordinator(
    broker: Coordinator, admin: TransactionAdmin
) -> None:
    broker.topics = {}
    assert admin.known_transactions(PRODUCER_IDS) == {}


def test_partition_without_leader_is_a_missing_coordinator(
    broker: Coordinator, admin: TransactionAdmin
) -> None:
    broker.led = [(NO_LEADER, 0)]
    with pytest.raises(ApiError, match="__transaction_state-1 has no leader") as caught:
        admin.known_transactions(PRODUCER_IDS)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert admin.available_transactions(PRODUCER_IDS) == {}


def test_coordinators_are_asked_again_after_leader_change(
    broker: Coordinator, admin: TransactionAdmin
) -> None:
    broker.led = [(0, 0), (0, 1)]
    assert admin.known_transactions(PRODUCER_IDS) == {}
    assert len(broker.received(ListTransactionsRequest)) == 2


def test_loading_coordinator_is_not_taken_for_an_empty_one(
    broker: Coordinator, admin: TransactionAdmin
) -> None:
    broker.list_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(ApiError) as caught:
        admin.known_transactions(PRODUCER_IDS)
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
