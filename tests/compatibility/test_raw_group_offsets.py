"""FindCoordinator, OffsetCommit, OffsetFetch and OffsetDelete by hand: every version and every error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.batch.records import Record, records
from barnabas.errors import ErrorCode
from barnabas.groups.store import GroupStore, partition_of
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.wire.apis import APIS
from barnabas.wire.consumer_protocol import ConsumerSubscription, encode_subscription
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.wire.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from support.waiting import eventually
from tests.compatibility.raw import Raw, recent_batch_of, wait_until_known
from tests.compatibility.raw_member import (
    one_group_per_partition,
    wait_for_coordinator,
    wait_until_loaded,
)

NUMBERS = count()
PARTITIONS = 2
SETTINGS = {
    "offsets.topic.num.partitions": PARTITIONS,
    "offsets.retention.check.interval.ms": 50,
    "group.initial.rebalance.delay.ms": 0,
    "controlled.shutdown.enable": False,
}
NOTE_MAX = 4096
COORDINATED = [version for version in APIS[8].versions if version > 0]
NewTopic = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as running:
        with Raw(running.bootstrap_servers) as raw:
            wait_until_loaded(raw, *one_group_per_partition(PARTITIONS))
        yield running


@pytest.fixture
def group() -> str:
    return f"group-{next(NUMBERS)}"


# ---- requests


def wait_until(condition: Callable[[], bool]) -> None:
    eventually(condition, "the group's offsets are as expected", seconds=30.0)


def commit(
    raw: Raw,
    group: str,
    topic: str,
    *partitions: OffsetCommitRequestPartition,
    version: int | None = None,
    **more: object,
) -> list[ErrorCode]:
    topics = (OffsetCommitRequestTopic(topic, partitions or (at(5),)),)
    request = OffsetCommitRequest(group_id=group, topics=topics, **more)  # type: ignore[arg-type]
    answer = raw.ask(request, OffsetCommitResponse, version)
    ((name, results),) = answer.topics
    assert name == topic
    assert [each.partition_index for each in results] == [
        each.partition_index for each in topics[0].partitions
    ]
    return [ErrorCode(each.error_code) for each in results]


def at(offset: int, partition: int = 0, *, note: str | None = "") -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition, offset, committed_metadata=note)


def fetch(
    raw: Raw, group: str, topic: str, *partitions: int, version: int = 9
) -> list[OffsetFetchResponsePartition]:
    topics = (OffsetFetchRequestTopic(topic, partitions or (0,)),)
    if version >= 8:
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group, topics=topics),))
        (found,) = raw.ask(request, OffsetFetchResponse, version).groups
        assert found.group_id == group
    else:
        request = OffsetFetchRequest(group_id=group, topics=topics)
        found = raw.ask(request, OffsetFetchResponse, version)  # type: ignore[assignment]
    assert found.error_code == ErrorCode.NONE
    ((name, results),) = found.topics
    assert name == topic
    return list(results)


def committed(raw: Raw, group: str, topic: str, partition: int = 0) -> int:
    (found,) = fetch(raw, group, topic, partition)
    return found.committed_offset


def delete(raw: Raw, group: str, topic: str, *partitions: int) -> OffsetDeleteResponse:
    wanted = tuple(OffsetDeleteRequestPartition(each) for each in partitions or (0,))
    request = OffsetDeleteRequest(group_id=group, topics=(OffsetDeleteRequestTopic(topic, wanted),))
    return raw.ask(request, OffsetDeleteResponse)


class SingleMember:
    """A group with one hand-driven member."""

    def __init__(self, raw: Raw, group: str, topic: str, protocol_type: str = "consumer") -> None:
        self.raw = raw
        self.group = group
        subscription = encode_subscription(ConsumerSubscription((topic,)))
        answer = raw.ask(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                protocol_type=protocol_type,
                protocols=(JoinGroupRequestProtocol("range", subscription),),
            ),
            JoinGroupResponse,
            version=3,
        )
        assert answer.error_code == ErrorCode.NONE
        self.member_id, self.generation = answer.member_id, answer.generation_id

    def sync(self) -> None:
        request = SyncGroupRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        answer = self.raw.ask(request, SyncGroupResponse, version=3)
        assert answer.error_code == ErrorCode.NONE

    def commit(self, topic: str, **more: object) -> list[ErrorCode]:
        more.setdefault("generation_id_or_member_epoch", self.generation)
        more.setdefault("member_id", self.member_id)
        return commit(self.raw, self.group, topic, version=None, **more)


def store_of(cluster: LocalCluster, broker: int = 1) -> GroupStore:
    life = cluster.cluster.brokers[broker].instance
    assert life is not None
    assert life.broker.groups is not None
    return life.broker.groups.ensure_created().coordinator.store


# ---- FindCoordinator


def test_first_find_coordinator_creates_consumer_offsets() -> None:
    with (
        LocalCluster(settings=SETTINGS | {"auto.create.topics.enable": False}) as running,
        Raw(running.bootstrap_servers) as raw,
    ):
        answer = raw.ask(FindCoordinatorRequest(key="app"), FindCoordinatorResponse, 3)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)
        assert wait_for_coordinator(raw, "app") == 1
        assert store_of(running).partition_count == PARTITIONS


def test_too_few_brokers_for_consumer_offsets_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with (
        LocalCluster(settings={"offsets.topic.replication.factor": 3}) as running,
        Raw(running.bootstrap_servers) as raw,
    ):
        request = FindCoordinatorRequest(coordinator_keys=("app",))
        for _ in range(2):
            (found,) = raw.ask(request, FindCoordinatorResponse).coordinators
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert found.error_message is not None
            assert "INVALID_REPLICATION_FACTOR" in found.error_message
            assert "offsets.topic.replication.factor=3" in found.error_message
    warnings = [each for each in caplog.messages if "no consumer group can be used" in each]
    assert len(warnings) == 1, "clients retry ten times a second"


@pytest.mark.parametrize("version", APIS[10].versions)
def test_every_version_finds_coordinator(cluster: LocalCluster, raw: Raw, version: int) -> None:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    where = (1, host, int(port), ErrorCode.NONE)
    if version < 4:
        answer = raw.ask(FindCoordinatorRequest(key="app"), FindCoordinatorResponse, version)
        assert (answer.node_id, answer.host, answer.port, answer.error_code) == where
        if version > 0:
            assert answer.error_message == "NONE"
    else:
        request = FindCoordinatorRequest(coordinator_keys=("one", "two", ""))
        found = raw.ask(request, FindCoordinatorResponse, version).coordinators
        assert [each.key for each in found] == ["one", "two", ""]
        for each in found:
            assert (each.node_id, each.host, each.port, each.error_code) == where


@pytest.mark.parametrize(
    ("key_type", "version", "code"),
    [
        (1, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, 5, ErrorCode.INVALID_REQUEST),
        (2, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (3, 6, ErrorCode.INVALID_REQUEST),
        (-1, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_no_coordinator_for_transactions_and_share_groups(
    raw: Raw, key_type: int, version: int, code: ErrorCode
) -> None:
    if version < 4:
        old = FindCoordinatorRequest(key="mine", key_type=key_type)
        assert raw.ask(old, FindCoordinatorResponse, version).error_code == code
    else:
        request = FindCoordinatorRequest(coordinator_keys=("mine",), key_type=key_type)
        (found,) = raw.ask(request, FindCoordinatorResponse, version).coordinators
        assert (found.key, found.error_code, found.node_id) == ("mine", code, -1)


# ---- commit and fetch


@pytest.mark.parametrize("version", COORDINATED)
def test_every_version_fetches_committed_offset(
    raw: Raw, topic: str, group: str, version: int
) -> None:
    partition = OffsetCommitRequestPartition(
        0, 42, committed_leader_epoch=7 if version >= 6 else -1, committed_metadata="note"
    )
    assert commit(raw, group, topic, partition, version=version) == [ErrorCode.NONE]
    (found,) = fetch(raw, group, topic, version=version)
    assert found.committed_offset == 42
    assert found.metadata == "note"
    assert found.committed_leader_epoch == (7 if version >= 6 else -1)
    assert found.error_code == ErrorCode.NONE


def test_version_0_offsets_are_kept_in_zookeeper(raw: Raw, topic: str, group: str) -> None:
    (before,) = fetch(raw, group, topic, version=0)
    assert before.committed_offset == -1
    assert before.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for offset in (5, 6):
        assert commit(raw, group, topic, at(offset), version=0) == [ErrorCode.NONE]
    (found,) = fetch(raw, group, topic, version=0)
    assert (found.committed_offset, found.error_code) == (6, ErrorCode.NONE)
    assert committed(raw, group, topic) == -1
    for impossible in ("", "..", "a/b", "a//b", "../brokers"):
        assert commit(raw, impossible, topic, version=0) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert commit(raw, group, topic, at(1, partition=9), version=0) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


def test_null_topics_fetches_all_group_offsets(
    raw: Raw, topic: str, group: str, new_topic: NewTopic
) -> None:
    other = new_topic(partitions=3)
    commit(raw, group, topic, at(1))
    commit(raw, group, other, at(2, 0), at(3, 2))
    everything = {(topic, 0): 1, (other, 0): 2, (other, 2): 3}
    for version in range(2, 10):
        if version < 8:
            request = OffsetFetchRequest(group_id=group, topics=None)
            topics = raw.ask(request, OffsetFetchResponse, version).topics
        else:
            request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group),))
            topics = raw.ask(request, OffsetFetchResponse, version).groups[0].topics
        found = {
            (name, each.partition_index): each.committed_offset
            for name, partitions in topics
            for each in partitions
        }
        assert found == everything


@pytest.mark.parametrize("require_stable", [False, True])
def test_offset_fetch_of_many_groups(
    raw: Raw, topic: str, group: str, require_stable: bool
) -> None:
    commit(raw, group, topic)
    named = (OffsetFetchRequestTopic(topic, (0, 1)),)
    request = OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(group, topics=named),
            OffsetFetchRequestGroup("nobody", topics=named),
            OffsetFetchRequestGroup("unknown group"),
        ),
        require_stable=require_stable,
    )
    known, unknown, everything = raw.ask(request, OffsetFetchResponse).groups
    assert [each.committed_offset for each in known.topics[0].partitions] == [5, -1]
    assert [each.committed_offset for each in unknown.topics[0].partitions] == [-1, -1]
    assert all(each.error_code == 0 for each in unknown.topics[0].partitions)
    assert (everything.topics, everything.error_code) == ((), ErrorCode.NONE)


def test_commit_to_unknown_partition_fails_alone(raw: Raw, topic: str, group: str) -> None:
    assert commit(raw, group, topic, at(1, 0), at(1, 1), at(1, -1)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert commit(raw, group, "no-such-topic") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert committed(raw, group, topic) == 1


def test_commit_metadata_length_counts_utf16_units(
    raw: Raw, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=5)
    notes = [
        None,
        "x" * NOTE_MAX,
        "x" * (NOTE_MAX + 1),
        "é" * NOTE_MAX,
        "\N{GRINNING FACE}" * (NOTE_MAX // 2 + 1),
    ]
    partitions = [at(1, index, note=note) for index, note in enumerate(notes)]
    assert commit(raw, group, topic, *partitions) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    found = fetch(raw, group, topic, 0, 1, 2, 3, 4)
    assert [each.metadata for each in found] == ["", notes[1], "", notes[3], ""]


def test_commit_larger_than_max_batch_is_rejected(raw: Raw, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=40)
    group = "g" * 30_000
    many = [at(1, partition) for partition in range(40)]
    assert commit(raw, group, topic, *many) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 40
    assert commit(raw, group, topic, *many[:5]) == [ErrorCode.NONE] * 5


def test_empty_group_id_can_commit_but_not_delete(raw: Raw, topic: str) -> None:
    assert commit(raw, "", topic) == [ErrorCode.NONE]
    assert committed(raw, "", topic) == 5
    assert delete(raw, "", topic).error_code == ErrorCode.INVALID_GROUP_ID


def test_commit_with_generation_to_unknown_group_is_rejected(
    raw: Raw, topic: str, group: str
) -> None:
    codes = commit(raw, group, topic, generation_id_or_member_epoch=1, member_id="me")
    assert codes == [ErrorCode.ILLEGAL_GENERATION]


def test_only_members_commit_to_active_group(raw: Raw, topic: str, group: str) -> None:
    member = SingleMember(raw, group, topic)
    assert member.commit(topic) == [ErrorCode.REBALANCE_IN_PROGRESS], "it has no assignment yet"
    member.sync()
    assert member.commit(topic) == [ErrorCode.NONE]
    wrong = member.generation + 1
    assert member.commit(topic, generation_id_or_member_epoch=wrong) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert member.commit(topic, member_id="somebody") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(raw, group, topic) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(raw, group, topic, group_instance_id="static") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert committed(raw, group, topic) == 5


@contextmanager
def loading(cluster: LocalCluster, group: str) -> Iterator[None]:
    """Simulate that this broker has just become leader of the group's partition."""
    store = store_of(cluster)
    index = partition_of(group, PARTITIONS)
    store.loading[index] = None
    try:
        yield
    finally:
        del store.loading[index]


def test_loading_coordinator_rejects_requests(
    cluster: LocalCluster, raw: Raw, topic: str, group: str
) -> None:
    commit(raw, group, topic)
    with loading(cluster, group):
        busy = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert commit(raw, group, topic) == [busy]
        assert delete(raw, group, topic).error_code == busy
        named = (OffsetFetchRequestTopic(topic, (0,)),)
        old = OffsetFetchRequest(group_id=group, topics=named)
        ((_, (partition,)),) = raw.ask(old, OffsetFetchResponse, 1).topics
        assert (partition.error_code, partition.committed_offset) == (busy, -1)
        for version in range(2, 8):
            answer = raw.ask(old, OffsetFetchResponse, version)
            assert (answer.error_code, answer.topics) == (busy, ())
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group, topics=named),))
        assert raw.ask(request, OffsetFetchResponse).groups[0].error_code == busy
    assert committed(raw, group, topic) == 5


# ---- deleting and expiring offsets


def test_deleting_last_offset_deletes_empty_group(
    raw: Raw, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=3)
    assert delete(raw, group, topic).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    commit(raw, group, topic, at(1, 0), at(2, 1))
    answer = delete(raw, group, topic, 0, 2, 9)
    assert answer.error_code == ErrorCode.NONE
    assert [(each.partition_index, each.error_code) for each in answer.topics[0].partitions] == [
        (0, ErrorCode.NONE),
        (2, ErrorCode.NONE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [each.committed_offset for each in fetch(raw, group, topic, 0, 1)] == [-1, 2]
    assert delete(raw, group, topic, 1).error_code == ErrorCode.NONE
    assert delete(raw, group, topic, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_subscribed_topic_are_not_deleted(
    raw: Raw, topic: str, group: str, new_topic: NewTopic
) -> None:
    other = new_topic()
    commit(raw, group, topic)
    commit(raw, group, other)
    SingleMember(raw, group, topic).sync()
    for name, code in (
        (topic, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (other, ErrorCode.NONE),
    ):
        answer = delete(raw, group, name)
        assert answer.error_code == ErrorCode.NONE
        assert [each.error_code for each in answer.topics[0].partitions] == [code]
    assert committed(raw, group, topic) == 5
    assert committed(raw, group, other) == -1


def test_offset_delete_rejects_active_non_consumer_group(raw: Raw, topic: str, group: str) -> None:
    commit(raw, group, topic)
    SingleMember(raw, group, topic, protocol_type="connect").sync()
    assert delete(raw, group, topic).error_code == ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("version", [2, 3, 4])
def test_commit_retention_time_of_v2_to_v4_is_used(
    raw: Raw, topic: str, group: str, version: int
) -> None:
    stays = f"{group}-stays"
    commit(raw, stays, topic, version=version, retention_time_ms=3_600_000)
    commit(raw, group, topic, version=version, retention_time_ms=1)
    wait_until(lambda: committed(raw, group, topic) == -1)
    wait_until(lambda: delete(raw, group, topic).error_code == ErrorCode.GROUP_ID_NOT_FOUND)
    assert committed(raw, stays, topic) == 5


def test_commit_timestamp_of_v1_is_used(raw: Raw, topic: str, group: str) -> None:
    old = OffsetCommitRequestPartition(0, 5, commit_timestamp=1_000)
    commit(raw, group, topic, old, version=1)
    wait_until(lambda: committed(raw, group, topic) == -1)


def test_deleting_topic_deletes_committed_offsets(
    raw: Raw, topic: str, group: str, new_topic: NewTopic
) -> None:
    other = new_topic()
    commit(raw, group, topic)
    commit(raw, group, other)
    request = DeleteTopicsRequest(topics=(DeleteTopicState(topic),), timeout_ms=30_000)
    assert raw.ask(request, DeleteTopicsResponse).responses[0].error_code == ErrorCode.NONE
    raw_all = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group),))

    def names() -> list[str]:
        (found,) = raw.ask(raw_all, OffsetFetchResponse).groups
        return [name for name, _ in found.topics]

    wait_until(lambda: names() == [other])


def test_deleted_offsets_are_written_as_tombstones(
    cluster: LocalCluster, raw: Raw, topic: str, group: str
) -> None:
    commit(raw, group, topic)
    delete(raw, group, topic)
    index = partition_of(group, PARTITIONS)
    log = cluster.data / "broker-1" / f"{CONSUMER_OFFSETS}-{index}" / f"{0:020}.log"
    found = [
        (each.key, each.value) for each in all_records(log) if group.encode() in (each.key or b"")
    ]
    assert [value is None for _, value in found] == [False, True]
    assert found[0][0] == found[1][0]


def all_records(path: Path) -> Iterator[Record]:
    data = memoryview(path.read_bytes())
    while data:
        size = int.from_bytes(data[8:12]) + 12
        yield from records(data[:size])
        data = data[size:]


# ---- restarts and failover


def test_offsets_survive_restart(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path, settings=SETTINGS) as running:
        with Raw(running.bootstrap_servers) as raw:
            raw.create_topic("orders", partitions=2)
            wait_until_loaded(raw, "app", "members")
            commit(raw, "app", "orders", at(41, 0), at(42, 1, note="here"))
            SingleMember(raw, "members", "orders").sync()
        running.brokers[1].kill()
        running.brokers[1].start()
        with Raw(running.bootstrap_servers) as raw:
            wait_until(lambda: is_loaded(raw, "app", "orders"))
            zero, one = fetch(raw, "app", "orders", 0, 1)
            assert (zero.committed_offset, one.committed_offset) == (41, 42)
            assert one.metadata == "here"
            wait_until(lambda: is_loaded(raw, "members", "orders"))
            assert commit(raw, "members", "orders") == [ErrorCode.UNKNOWN_MEMBER_ID], (
                "its member is restored"
            )


def test_offsets_survive_coordinator_failure() -> None:
    with LocalCluster(brokers=3, settings=SETTINGS) as running:
        assert running.controller_id is not None
        with Raw(running.brokers[running.controller_id].address) as raw:
            raw.create_topic("orders")
            before = wait_for_coordinator(raw, "app")
        with Raw(running.brokers[before].address) as raw:
            commit_when_possible(raw, "app", "orders", at(41))
            SingleMember(raw, "app", "orders").sync()
        other = next(each for each in running.brokers if each != before)
        with Raw(running.brokers[other].address) as raw:
            wait_until(lambda: commit(raw, "app", "orders") == [ErrorCode.NOT_COORDINATOR])
            request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup("app"),))
            (found,) = raw.ask(request, OffsetFetchResponse).groups
            assert found.error_code == ErrorCode.NOT_COORDINATOR
            assert delete(raw, "app", "orders").error_code == ErrorCode.NOT_COORDINATOR
            running.brokers[before].kill()
            wait_until(lambda: wait_for_coordinator(raw, "app") != before)
            after = wait_for_coordinator(raw, "app")
        with Raw(running.brokers[after].address) as raw:
            wait_until(lambda: is_loaded(raw, "app", "orders"))
            assert committed(raw, "app", "orders") == 41
            assert commit(raw, "app", "orders") == [ErrorCode.UNKNOWN_MEMBER_ID], "it has a member"
            assert commit_when_possible(raw, "app", "orders", at(7), group="other") == 7


def test_list_offsets_reads_the_log_and_offset_fetch_the_group() -> None:
    """The leader knows where the log begins and ends. The coordinator knows where a group continues."""
    with LocalCluster(brokers=3, settings=SETTINGS) as running:
        assert running.controller_id is not None
        with Raw(running.brokers[running.controller_id].address) as raw:
            raw.create_topic("orders")
            coordinator = wait_for_coordinator(raw, "app")
            request = MetadataRequest(topics=(MetadataRequestTopic(name="orders"),))
            leader = raw.ask(request, MetadataResponse).topics[0].partitions[0].leader_id
        wait_until_known([each.address for each in running.brokers.values()], "orders")
        for broker in running.brokers.values():
            with Raw(broker.address) as raw:
                produced = raw.produce("orders", recent_batch_of(b"a", b"b", b"c"))
                latest = raw.list_offset("orders", LATEST_TIMESTAMP)
                if broker.id == leader:
                    assert produced.error_code == latest.error_code == ErrorCode.NONE
                    assert raw.list_offset("orders", EARLIEST_TIMESTAMP).offset == 0
                    assert latest.offset == 3
                else:
                    assert latest.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                if broker.id == coordinator:
                    assert commit_when_possible(raw, "app", "orders", at(1)) == 1
                else:
                    wait_until(lambda: commit(raw, "app", "orders") == [ErrorCode.NOT_COORDINATOR])
        with Raw(running.brokers[leader].address) as raw:
            assert raw.list_offset("orders", LATEST_TIMESTAMP).offset == 3, "a commit adds nothing"
            raw.produce("orders", recent_batch_of(b"d"))
            assert raw.list_offset("orders", LATEST_TIMESTAMP).offset == 4
        with Raw(running.brokers[coordinator].address) as raw:
            assert committed(raw, "app", "orders") == 1, "a record moves no group"


def commit_when_possible(
    raw: Raw, first: str, topic: str, *partitions: OffsetCommitRequestPartition, group: str = ""
) -> int:
    """Commit as wait_until as the coordinator accepts it; it may still be loading, or another broker may coordinate."""
    name = next(
        each
        for each in (group or first, *(f"{group}-{number}" for number in range(20)))
        if partition_of(each, PARTITIONS) == partition_of(first, PARTITIONS)
    )
    wait_until(lambda: set(commit(raw, name, topic, *partitions)) == {ErrorCode.NONE})
    return committed(raw, name, topic)


def is_loaded(raw: Raw, group: str, topic: str) -> bool:
    topics = (OffsetFetchRequestTopic(topic, (0,)),)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group, topics=topics),))
    (found,) = raw.ask(request, OffsetFetchResponse).groups
    return found.error_code == ErrorCode.NONE
