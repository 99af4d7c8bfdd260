"""A broker that registers again forgets the topics that were deleted while it was not registered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from barnabas.metadata.registry_client import RegistryClient
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.unit.replication.nodes import Node, Nodes, eventually


class FakeRegistry:
    """Registry that only knows the topic names."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    async def multi(self, ops: Sequence[Any]) -> None:
        return

    async def children(self, path: str) -> list[str]:
        return self.topics


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
async def node(registry: FakeRegistry) -> AsyncIterator[Node]:
    nodes = Nodes(Node(1))
    await nodes.start()
    nodes[1].context = replace(nodes[1].context, registry=cast(RegistryClient, registry))
    yield nodes[1]
    await nodes.stop()


async def update(node: Node, broker_epoch: int, **topics: UUID) -> None:
    states = tuple(
        UpdateMetadataTopicState(
            name, topic_id, (UpdateMetadataPartitionState(partition_index=0, replicas=(2,)),)
        )
        for name, topic_id in topics.items()
    )
    request = UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, broker_epoch=broker_epoch, topic_states=states
    )
    assert (await node.update_metadata(request)).error_code == 0


async def test_topics_deleted_while_unregistered_are_forgotten(
    node: Node, registry: FakeRegistry
) -> None:
    kept, gone = uuid4(), uuid4()
    await update(node, 1, kept=kept, gone=gone)
    assert node.metadata.topics.keys() == {"kept", "gone"}
    registry.topics = ["kept"]
    await update(node, 1)
    await update(node, 2, kept=kept)
    await eventually(lambda: node.metadata.topics.keys() == {"kept"})
    assert gone not in node.metadata.names


async def test_recreated_topic_is_kept(node: Node, registry: FakeRegistry) -> None:
    await update(node, 1, again=uuid4(), gone=uuid4())
    # The registry was read before the topic was recreated.
    await update(node, 2, again=uuid4())
    await eventually(lambda: node.metadata.topics.keys() == {"again"})
