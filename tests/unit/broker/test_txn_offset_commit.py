"""Offsets that a transaction commits count when its marker is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from barnabas.client.connection import BrokerConnection
from barnabas.errors import ErrorCode
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.replication.nodes import TOPIC, Node, Nodes, eventually

GROUP = "billing"


class Coordinator:
    """Broker 1, the coordinator of every group, and a connection to it."""

    def __init__(self, node: Node, connection: BrokerConnection) -> None:
        self.node = node
        self.connection = connection
        self.epoch = 0
        self.topic_id = uuid4()

    async def lead(self, leader: int = 1) -> None:
        state = LeaderAndIsrPartitionState(
            partition_index=0,
            leader=leader,
            leader_epoch=self.epoch,
            isr=(leader,),
            replicas=(1,) if leader == 1 else (1, leader),
            partition_epoch=self.epoch,
        )
        self.epoch += 1
        topic = LeaderAndIsrTopicState(CONSUMER_OFFSETS, self.topic_id, (state,))
        await self.node.leader_and_isr(
            LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=(topic,))
        )
        store = self.node.context.group_store
        await eventually(lambda: store.is_led(0) == (leader == 1))

    async def commit(
        self,
        offset: int,
        *,
        producer: int = 7,
        epoch: int = 0,
        index: int = 0,
        note: str = "",
        group: str = GROUP,
        member_id: str = "",
        generation: int = -1,
    ) -> ErrorCode:
        partition = TxnOffsetCommitRequestPartition(index, offset, committed_metadata=note)
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group,
            producer_id=producer,
            producer_epoch=epoch,
            generation_id=generation,
            member_id=member_id,
            topics=(TxnOffsetCommitRequestTopic(TOPIC, (partition,)),),
        )
        response = await self.connection.exchange(request, TxnOffsetCommitResponse, timeout_s=10)
        ((_, ((_, code),)),) = response.topics
        return ErrorCode(code)

    async def commit_plainly(self, offset: int) -> None:
        partition = OffsetCommitRequestPartition(0, offset)
        request = OffsetCommitRequest(
            group_id=GROUP, topics=(OffsetCommitRequestTopic(TOPIC, (partition,)),)
        )
        response = await self.connection.exchange(request, OffsetCommitResponse, timeout_s=10)
        assert response.topics[0].partitions[0].error_code == 0

    async def end(self, *, commit: bool, producer: int = 7, epoch: int = 0) -> ErrorCode:
        topics = (WritableTxnMarkerTopic(CONSUMER_OFFSETS, (0,)),)
        marker = WritableTxnMarker(producer, epoch, commit, topics, 0)
        response = await self.connection.exchange(
            WriteTxnMarkersRequest(markers=(marker,)), WriteTxnMarkersResponse, timeout_s=10
        )
        return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)

    async def committed(self, *, stable: bool = False) -> int | ErrorCode:
        """Return the committed offset, or the error code."""
        topics = (OffsetFetchRequestTopic(TOPIC, (0,)),)
        request = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(GROUP, topics=topics),), require_stable=stable
        )
        response = await self.connection.exchange(request, OffsetFetchResponse, timeout_s=10)
        found = response.groups[0].topics[0].partitions[0]
        return ErrorCode(found.error_code) if found.error_code else found.committed_offset


@pytest.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    nodes = Nodes(Node(1, offsets_topic_num_partitions=1, offsets_commit_timeout_ms=50))
    await nodes.start()
    await nodes.send_metadata(partitions=1)
    node = nodes[1]
    connection = await BrokerConnection.open(
        node.network, "127.0.0.1", node.port, client_id="test", timeout_s=10
    )
    made = Coordinator(node, connection)
    await made.lead()
    yield made
    connection.close()
    await node.context.lazy_groups.stop()
    await nodes.stop()


@pytest.mark.parametrize("commit", [True, False])
async def test_offset_counts_after_commit_marker(coordinator: Coordinator, commit: bool) -> None:
    await coordinator.commit_plainly(5)
    assert await coordinator.commit(40) is ErrorCode.NONE
    assert await coordinator.committed() == 5
    assert await coordinator.committed(stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await coordinator.end(commit=commit) is ErrorCode.NONE
    assert await coordinator.committed(stable=True) == (40 if commit else 5)


async def test_last_offset_of_a_transaction_counts(coordinator: Coordinator) -> None:
    for offset in (40, 41, 42):
        assert await coordinator.commit(offset) is ErrorCode.NONE
    await coordinator.end(commit=True)
    assert await coordinator.committed(stable=True) == 42
    assert not coordinator.node.context.groups.groups[GROUP].offsets.pending


async def test_later_plain_commit_wins(coordinator: Coordinator) -> None:
    assert await coordinator.commit(40) is ErrorCode.NONE
    await coordinator.commit_plainly(50)
    await coordinator.end(commit=True)
    assert await coordinator.committed(stable=True) == 50


async def test_transactions_of_two_producers_are_separate(coordinator: Coordinator) -> None:
    assert await coordinator.commit(40, producer=7) is ErrorCode.NONE
    assert await coordinator.commit(50, producer=8) is ErrorCode.NONE
    await coordinator.end(commit=False, producer=8)
    assert await coordinator.committed(stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    await coordinator.end(commit=True, producer=7)
    assert await coordinator.committed(stable=True) == 40


@pytest.mark.parametrize("commit", [True, False])
async def test_next_coordinator_loads_open_transactions(
    coordinator: Coordinator, commit: bool
) -> None:
    await coordinator.commit_plainly(5)
    assert await coordinator.commit(40) is ErrorCode.NONE
    assert await coordinator.commit(60, producer=8) is ErrorCode.NONE
    await coordinator.end(commit=False, producer=8)
    await coordinator.lead(2)
    await coordinator.lead()
    assert await coordinator.committed() == 5
    assert await coordinator.committed(stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await coordinator.end(commit=commit) is ErrorCode.NONE
    expected = 40 if commit else 5
    assert await coordinator.committed(stable=True) == expected
    await coordinator.lead(2)
    await coordinator.lead()
    assert await coordinator.committed(stable=True) == expected


async def test_old_producer_epoch_is_rejected(coordinator: Coordinator) -> None:
    assert await coordinator.commit(40, epoch=3) is ErrorCode.NONE
    await coordinator.end(commit=True, epoch=3)
    assert await coordinator.commit(41, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await coordinator.end(commit=True, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_rejected_commits(coordinator: Coordinator) -> None:
    assert await coordinator.commit(40, index=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await coordinator.commit(40, note="x" * 5000) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert await coordinator.commit(40, group="") is ErrorCode.INVALID_GROUP_ID
    assert await coordinator.commit(40, producer=-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await coordinator.commit(40, epoch=-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    code = await coordinator.commit(40, member_id="nobody", generation=3)
    assert code is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.node.partition(topic=CONSUMER_OFFSETS).log.log_end_offset == 0
    await coordinator.lead(2)
    assert await coordinator.commit(40) is ErrorCode.NOT_COORDINATOR
