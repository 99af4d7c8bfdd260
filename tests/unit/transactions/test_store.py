"""Appends to `__transaction_state`: error codes for clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.transactions.store import TransactionStore
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tests.unit.replication.nodes import FixedClock, Node, Nodes

RECORDS = [(b"key", b"value")]


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    nodes = Nodes(Node(1))
    await nodes.start()
    state = LeaderAndIsrPartitionState(
        partition_index=0, leader=1, leader_epoch=0, isr=(1,), replicas=(1,)
    )
    topic = LeaderAndIsrTopicState(TRANSACTION_STATE, uuid4(), (state,))
    await nodes[1].leader_and_isr(
        LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=(topic,))
    )
    yield nodes[1]
    await nodes.stop()


async def test_append_to_failed_log_directory_reports_not_coordinator(node: Node) -> None:
    store = TransactionStore(node.config, node.replicas, node.metadata, FixedClock())
    await store.append(0, RECORDS, timeout_s=5)
    partition = node.partition(topic=TRANSACTION_STATE)
    node.replicas.fail(partition, StorageError(partition.log.directory, "Input/output error"))
    with pytest.raises(ApiError, match="the log directory is offline") as caught:
        await store.append(0, RECORDS, timeout_s=5)
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    assert store.append_unacknowledged(0, RECORDS) is ErrorCode.NOT_COORDINATOR
