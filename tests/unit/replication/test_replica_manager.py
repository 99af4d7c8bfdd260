"""Reaction of a broker to LeaderAndIsr, UpdateMetadata and StopReplica requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf
from uuid import UUID, uuid4

import pytest

from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.model import ZERO_ID, BrokerEpoch, ControllerEpoch, TopicPartition
from barnabas.replication import replica_manager
from barnabas.storage.checkpoints import HIGH_WATERMARK
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrResponse
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest
from tests.unit.replication.nodes import TOPIC, Node, Nodes, leader_and_isr

ID = uuid4()


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes(Node(1))
    made.topic_id = ID
    await made.start()
    yield made
    await made.stop()


def state(
    index: int = 0, *, leader: int = 1, epoch: int = 0, replicas: tuple[int, ...] = (1,)
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=index,
        leader=leader,
        leader_epoch=epoch,
        isr=replicas,
        replicas=replicas,
        is_new=True,
    )


def codes(response: LeaderAndIsrResponse) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for t in response.topics for each in t.partition_errors]


async def send(
    node: Node, *states: LeaderAndIsrPartitionState, topic_id: UUID = ID
) -> list[ErrorCode]:
    return codes(await node.leader_and_isr(leader_and_isr(*states, topic_id=topic_id)))


# ---- LeaderAndIsr


async def test_new_partition_is_led_after_reading_topic_config(nodes: Nodes) -> None:
    assert await send(nodes[1], state()) == [ErrorCode.NONE]
    partition = nodes[1].partition()
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1,))
    assert partition.log.topic_id == ID
    assert nodes[1].topics.learnt == [TOPIC]
    await send(nodes[1], state(epoch=1))
    assert nodes[1].topics.learnt == [TOPIC], "it is known already"


@pytest.mark.parametrize("epoch", [0, 3, 4], ids=["older", "older by one", "same"])
async def test_leader_epoch_that_is_not_newer_is_rejected(nodes: Nodes, epoch: int) -> None:
    await send(nodes[1], state(epoch=4))
    assert await send(nodes[1], state(epoch=epoch)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert nodes[1].partition().leader_epoch == 4


async def test_partition_without_local_replica_is_rejected(nodes: Nodes) -> None:
    assert await send(nodes[1], state(leader=2, replicas=(2, 3))) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert not nodes[1].replicas.partitions
    assert not nodes[1].logs.logs


async def test_other_topic_id_is_rejected(nodes: Nodes) -> None:
    await send(nodes[1], state())
    other = uuid4()
    assert await send(nodes[1], state(epoch=1), topic_id=other) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert nodes[1].partition().topic_id == ID


async def test_topic_id_is_added_without_new_epoch(nodes: Nodes) -> None:
    await send(nodes[1], state(), topic_id=ZERO_ID)
    assert await send(nodes[1], state()) == [ErrorCode.NONE]
    assert nodes[1].partition().topic_id == nodes[1].partition().log.topic_id == ID


async def test_log_of_former_topic_is_renamed_to_stray(nodes: Nodes) -> None:
    node = nodes[1]
    await send(node, state())
    node.append(b"old")
    node.replicas.partitions.clear()
    assert await send(node, state(), topic_id=uuid4()) == [ErrorCode.NONE]
    assert node.partition().log.log_end_offset == 0
    assert any(name.endswith("-stray") for name in node.disk.list(node.directory))


async def test_unknown_leader_is_not_followed_yet(nodes: Nodes) -> None:
    request = state(leader=2, replicas=(1, 2))
    assert await send(nodes[1], request) == [ErrorCode.NONE]
    assert nodes[1].logs.get(TopicPartition(TOPIC, 0)) is not None
    with pytest.raises(ApiError) as refused:
        nodes[1].partition().require_leader(-1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await send(nodes[1], request) == [ErrorCode.NONE], "the request may be repeated"


async def test_partition_without_leader_is_not_led(nodes: Nodes) -> None:
    await send(nodes[1], state())
    await send(nodes[1], state(leader=-1, epoch=1))
    assert nodes[1].partition().leader == -1


async def test_failed_partition_does_not_affect_others(nodes: Nodes) -> None:
    node = nodes[1]
    make = node.disk.make_directory

    def make_directory(path: str) -> None:
        if "orders-1" in path:
            raise OSError("unexpected")
        make(path)

    node.disk.make_directory = make_directory  # type: ignore[method-assign]
    assert await send(node, state(0), state(1), state(2)) == [
        ErrorCode.NONE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NONE,
    ]
    assert sorted(node.replicas.partitions) == [(TOPIC, 0), (TOPIC, 2)]


async def test_many_partitions_yield_to_the_event_loop(nodes: Nodes) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert set(await send(nodes[1], *map(state, range(300)))) == {ErrorCode.NONE}
    counting.cancel()
    assert turns >= 4
    assert nodes[1].replicas.has_all_assigned_partitions()


# ---- missing partitions


async def test_epoch_files_of_many_leaders_are_saved_later(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_manager, "EPOCHS_SAVED_AFTER_SECONDS", 3600.0)
    replicas = nodes[1].replicas
    await send(nodes[1], state())
    assert not replicas.unsaved, "few epochs are saved at once"
    many = replica_manager.EPOCHS_SAVED_AT_ONCE + 50
    await send(nodes[1], *(state(index, epoch=1) for index in range(many)))
    assert len(replicas.unsaved) == many
    replicas.recently_led = (-inf, 0)  # seconds later, while the controller continues
    await send(nodes[1], state(many, epoch=1))
    assert len(replicas.unsaved) == many + 1


async def test_missing_partition_error_codes(nodes: Nodes) -> None:
    await nodes.send_metadata(partitions=1)
    node = nodes[1]
    assert not node.replicas.has_all_assigned_partitions()
    assert node.replicas.missing_partition_error(TOPIC, 0).code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (
        node.replicas.missing_partition_error(TOPIC, 1).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    node.replicas.offline[TOPIC, 0] = None
    with pytest.raises(ApiError) as refused:
        node.replicas.find(TOPIC, 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.replicas.has_all_assigned_partitions()


async def test_partition_in_offline_directory_is_a_storage_error(nodes: Nodes) -> None:
    node = nodes[1]
    await send(node, state())
    node.logs.mark_offline(node.directory, StorageError(node.directory, "broken"))
    assert await send(node, state(epoch=1)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert await send(node, state(1)._replace(is_new=False)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    response = await node.stop_replica(stop(delete=True))
    assert [each.error_code for each in response.partition_errors] == [
        ErrorCode.KAFKA_STORAGE_ERROR
    ]


# ---- stale requests


async def test_deposed_controller_is_rejected(nodes: Nodes) -> None:
    node = nodes[1]
    node.control.controller_epoch = ControllerEpoch(7)
    assert await send(node, state()) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert not node.replicas.partitions
    response = await node.stop_replica(stop(delete=True))
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    refused = await node.update_metadata(
        UpdateMetadataRequest(controller_id=9, controller_epoch=6, live_brokers=())
    )
    assert refused.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert node.metadata.controller_id == 1


async def test_stale_broker_epoch_is_rejected(nodes: Nodes) -> None:
    node = nodes[1]
    node.control.broker_epoch = BrokerEpoch(50)
    for epoch, expected in (
        (49, ErrorCode.STALE_BROKER_EPOCH),
        (50, ErrorCode.NONE),
        (51, ErrorCode.NONE),
        (-1, ErrorCode.STALE_BROKER_EPOCH),
    ):
        response = await node.update_metadata(
            UpdateMetadataRequest(controller_id=1, controller_epoch=9, broker_epoch=epoch)
        )
        assert response.error_code == expected, epoch


# ---- StopReplica


def stop(*, delete: bool, epoch: int = -2, index: int = 0) -> StopReplicaRequest:
    request = StopReplicaPartitionState(index, epoch, delete)
    return StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=(StopReplicaTopicState(TOPIC, (request,)),),
    )


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(3, ErrorCode.FENCED_LEADER_EPOCH), (4, 0), (5, 0), (-1, 0), (-2, 0)],
)
async def test_stop_replica_with_older_epoch_is_fenced(nodes: Nodes, epoch: int, code: int) -> None:
    await send(nodes[1], state(epoch=4))
    response = await nodes[1].stop_replica(stop(delete=True, epoch=epoch))
    assert [each.error_code for each in response.partition_errors] == [code]
    assert bool(nodes[1].replicas.partitions) is bool(code)


async def test_stop_replica_removes_log_of_unknown_partition(nodes: Nodes) -> None:
    node = nodes[1]
    await send(node, state())
    node.replicas.partitions.clear()
    response = await node.stop_replica(stop(delete=True))
    assert [each.error_code for each in response.partition_errors] == [0]
    assert not node.logs.logs
    response = await node.stop_replica(stop(delete=True, index=7))
    assert [each.error_code for each in response.partition_errors] == [0]


async def test_checkpoints_omit_deleted_partitions(nodes: Nodes) -> None:
    node = nodes[1]
    await send(node, state())
    node.append(b"one")
    node.logs.checkpoint(HIGH_WATERMARK)
    assert b"orders 0 1" in node.disk.read_bytes(f"{node.directory}/replication-offset-checkpoint")
    await node.stop_replica(stop(delete=True))
    assert b"orders" not in node.disk.read_bytes(f"{node.directory}/replication-offset-checkpoint")


async def test_stop_replica_v0_is_understood(nodes: Nodes) -> None:
    await send(nodes[1], state())
    await nodes[1].stop_replica(
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=1,
            delete_partitions=True,
            ungrouped_partitions=(StopReplicaPartitionV0(TOPIC, 0),),
        )
    )
    assert not nodes[1].replicas.partitions
