"""The attacked broker's data: large enough that a small request can cause a large response."""

from __future__ import annotations

from pathlib import Path

from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from support.waiting import eventually
from tests.adversary.broker import MeasuredBroker
from tests.adversary.hints import DOOMED_TOPIC, GROUP, TOPIC, Entities
from tests.faults.raw_client import RawClient

PARTITIONS = 1000
PROBE_TOPIC = "probe"
MEMBER_METADATA = b"m" * 700_000
# Unknown names must not become topics: automatic creation is a feature with its own limit.
SETTINGS = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "4"}


def attacked_broker(data: Path) -> MeasuredBroker:
    return MeasuredBroker(data, SETTINGS)


def set_up(broker: MeasuredBroker) -> Entities:
    with RawClient(broker.address) as client:
        for name, partitions in ((TOPIC, PARTITIONS), (DOOMED_TOPIC, 1), (PROBE_TOPIC, 1)):
            assert client.create_topic(name, partitions) == 0
        assert client.produce(TOPIC, 0, b"value").error_code == 0
        request = MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),))
        topic_id = client.exchange(request, 10, MetadataResponse).topics[0].topic_id
        member_id, generation = join(client, GROUP, MEMBER_METADATA)
        commit(client, GROUP, member_id, generation)
    return Entities(topic_id, member_id, generation, broker.epoch, broker.port)


def join(client: RawClient, group: str, metadata: bytes) -> tuple[str, int]:
    """Become the only member of a stable group; returns the member id and the generation."""
    wait_for_coordinator(client, group)
    joining = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=600_000,
        rebalance_timeout_ms=1000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol("range", metadata),),
    )
    joined = client.exchange(joining, 2, JoinGroupResponse)
    assert joined.error_code == 0, joined
    syncing = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(SyncGroupRequestAssignment(joined.member_id, b"assignment"),),
    )
    synced = client.exchange(syncing, 2, SyncGroupResponse)
    assert synced.error_code == 0, synced
    return joined.member_id, joined.generation_id


def wait_for_coordinator(client: RawClient, group: str) -> None:
    request = FindCoordinatorRequest(key=group)

    def is_found() -> bool:
        return client.exchange(request, 2, FindCoordinatorResponse).error_code == 0

    eventually(is_found, f"a coordinator for {group}")


def commit(client: RawClient, group: str, member_id: str, generation: int) -> None:
    """Offsets of every partition of the large topic."""
    partitions = tuple(OffsetCommitRequestPartition(index, 1) for index in range(PARTITIONS))
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=(OffsetCommitRequestTopic(TOPIC, partitions),),
    )
    answer = client.exchange(request, 5, OffsetCommitResponse)
    assert not any(each.error_code for each in answer.topics[0].partitions)
