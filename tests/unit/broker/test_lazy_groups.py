"""Group modules are loaded on demand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from barnabas.broker.bounded_work import run_to_end
from barnabas.broker.handlers import list_groups
from barnabas.errors import ErrorCode
from barnabas.groups.records import OffsetCommitValue
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.model import TopicPartition
from barnabas.wire.apis import ApiKey
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.unit.groups.test_store import lead
from tests.unit.replication.nodes import NO_CONNECTION, TOPIC, Node, Nodes, eventually

LIST_COORDINATOR_MODULES = """
import sys
from barnabas import LocalCluster
packages = ("barnabas.groups.", "barnabas.transactions.")
with LocalCluster():
    print([name for name in sys.modules if name.startswith(packages)])
"""


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    nodes = Nodes(Node(1, offsets_topic_num_partitions=1))
    await nodes.start()
    yield nodes[1]
    await nodes[1].context.lazy_groups.stop()
    await nodes.stop()


def test_start_imports_no_coordinator_module() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIST_COORDINATOR_MODULES],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


async def test_partition_led_before_open_is_loaded_after_open(node: Node) -> None:
    groups = node.context.lazy_groups
    await lead(node)
    assert groups.components is None
    groups.open()
    await eventually(lambda: groups.components is not None)
    await eventually(lambda: groups.ensure_created().coordinator.store.is_led(0))


async def test_partition_led_after_open_is_loaded_at_once(node: Node) -> None:
    groups = node.context.lazy_groups
    groups.open()
    assert not groups.changed
    await lead(node)
    await eventually(lambda: groups.components is not None)
    await eventually(lambda: groups.ensure_created().coordinator.store.is_led(0))


async def test_first_access_starts_loading(node: Node) -> None:
    await lead(node)
    assert 0 in node.context.group_store.loading
    await eventually(lambda: node.context.group_store.is_led(0))


async def test_resigned_partition_is_not_loaded(node: Node) -> None:
    groups = node.context.lazy_groups
    await lead(node)
    partition = node.partition(topic=CONSUMER_OFFSETS)
    partition.stop_leading()
    node.replicas.notify_leadership(partition)
    groups.open()
    assert not groups.tasks.running
    assert 0 not in groups.ensure_created().coordinator.store.loading


async def test_list_groups_reports_loading_that_ends_between_turns(node: Node) -> None:
    await lead(node)
    groups = node.context.groups
    await eventually(lambda: groups.store.is_led(0))
    groups.find_or_create("app")
    groups.store.loading[1] = None
    header = RequestHeader(ApiKey.LIST_GROUPS, 5, 0, None)
    work = list_groups.handle(node.context, ListGroupsRequest(), header, NO_CONNECTION)
    next(work)
    groups.store.loading.clear()
    response = run_to_end(work)
    assert [group.group_id for group in response.groups] == ["app"]
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups may be missing"


async def test_offsets_of_deleted_topic_are_removed(node: Node) -> None:
    groups = node.context.lazy_groups
    await lead(node)
    await eventually(lambda: groups.ensure_created().coordinator.store.is_led(0))
    group = groups.ensure_created().coordinator.find_or_create("app")
    offsets = group.offsets
    gone, kept = TopicPartition(TOPIC, 0), TopicPartition("other", 0)
    for partition in (gone, kept):
        offsets.put(partition, OffsetCommitValue(5), 0)
    state = UpdateMetadataPartitionState(partition_index=0, leader=-2)
    topic = UpdateMetadataTopicState(TOPIC, uuid4(), (state,))
    await node.update_metadata(
        UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=(topic,))
    )
    await eventually(lambda: list(offsets.committed) == [kept])
    assert node.partition(topic=CONSUMER_OFFSETS).log.log_end_offset == 1, (
        "a tombstone was appended"
    )
