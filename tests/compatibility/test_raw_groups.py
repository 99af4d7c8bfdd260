"""Group members that behave as no client library does: every version and every error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.wire.apis import APIS
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.describe_groups import (
    GROUP_OPERATIONS,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.wire.messages.metadata import NO_OPERATIONS
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from support.waiting import eventually
from tests.compatibility.raw import Raw
from tests.compatibility.raw_member import (
    RANGE,
    READS,
    RawMember,
    one_group_per_partition,
    wait_for_coordinator,
    wait_until_loaded,
)

NUMBERS = count()
MEMBERS_MAX = 4
PARTITIONS = 2
SETTINGS = {
    "offsets.topic.num.partitions": PARTITIONS,
    "group.max.size": MEMBERS_MAX,
    "group.min.session.timeout.ms": 100,
    "group.max.session.timeout.ms": 20_000,
}
NewMember = Callable[..., RawMember]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as running:
        with Raw(running.bootstrap_servers) as raw:
            wait_until_loaded(raw, *one_group_per_partition(PARTITIONS))
        yield running


@pytest.fixture
def group() -> str:
    return f"group-{next(NUMBERS)}"


@pytest.fixture
def member(servers: str, group: str) -> Iterator[NewMember]:
    """Create members of one group: `member(instance="x", version=5)`."""
    with ExitStack() as stack:

        def make(*, instance: str | None = None, version: int = 9) -> RawMember:
            made = RawMember(servers, group, instance=instance, version=version)
            return stack.enter_context(made)

        yield make


def stabilize(*members: RawMember) -> None:
    """Bring all members into one stable generation, each with its assignment; the first is the group leader."""
    for at, newcomer in enumerate(members):
        waiting = [(newcomer, newcomer.begin_join_with_id())]
        for earlier in members[:at]:
            wait_for_rebalance(earlier)
            waiting.append((earlier, earlier.begin_join()))
        for each, begun in waiting:
            assert each.end_join(begun).error_code == ErrorCode.NONE
    assign(*members)


def assign(leader: RawMember, *others: RawMember) -> None:
    given = {each.member_id: f"to {each.member_id}".encode() for each in (leader, *others)}
    waiting = [(each, each.begin_sync()) for each in others]
    assert leader.sync(given).assignment == given[leader.member_id]
    for each, begun in waiting:
        assert bytes(each.end_sync(begun).assignment) == given[each.member_id]


def wait_for_rebalance(member: RawMember) -> None:
    eventually(
        lambda: member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance", seconds=30.0
    )


def describe(raw: Raw, group: str) -> DescribedGroup:
    (found,) = raw.ask(DescribeGroupsRequest(groups=(group,)), DescribeGroupsResponse).groups
    return found


def delete(raw: Raw, *groups: str) -> dict[str, ErrorCode]:
    answer = raw.ask(DeleteGroupsRequest(groups_names=groups), DeleteGroupsResponse)
    return {each.group_id: ErrorCode(each.error_code) for each in answer.results}


# ---- membership


@pytest.mark.parametrize("version", APIS[11].versions)
def test_every_version_joins_syncs_heartbeats_and_leaves(member: NewMember, version: int) -> None:
    alone = member(version=version)
    answer = alone.join()
    assert answer.error_code == ErrorCode.NONE
    assert (answer.generation_id, answer.protocol_name) == (1, "range")
    assert answer.leader == answer.member_id == alone.member_id
    assert alone.member_id.startswith("raw-")
    if version >= 7:
        assert answer.protocol_type == "consumer"
    assert [(each.member_id, bytes(each.metadata)) for each in answer.members] == [
        (alone.member_id, READS)
    ]
    synced = alone.sync({alone.member_id: b"everything"})
    assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"everything")
    if alone.version_of(14) >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    assert alone.heartbeat() is ErrorCode.NONE
    assert alone.leave() is ErrorCode.NONE
    assert alone.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", APIS[11].versions)
def test_new_members_need_member_id_since_v4(member: NewMember, version: int) -> None:
    alone = member(version=version)
    answer = alone.end_join(alone.begin_join())
    if version < 4:
        assert answer.error_code == ErrorCode.NONE
        return
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (answer.generation_id, answer.leader, answer.members) == (-1, "", ())
    assert answer.protocol_name == (None if version >= 7 else "")
    assert answer.member_id
    assert alone.join().member_id == answer.member_id


@pytest.mark.parametrize("session_ms", [99, 20_001, -1])
def test_session_timeout_out_of_bounds_is_rejected(member: NewMember, session_ms: int) -> None:
    alone = member()
    answer = alone.end_join(alone.begin_join(session_ms=session_ms))
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert (answer.member_id, answer.protocol_name) == ("", None)


def test_empty_group_id_is_rejected(servers: str) -> None:
    with RawMember(servers, "") as nameless:
        assert nameless.end_join(nameless.begin_join()).error_code == ErrorCode.INVALID_GROUP_ID
        assert nameless.sync().error_code == ErrorCode.INVALID_GROUP_ID
        assert nameless.heartbeat() is ErrorCode.INVALID_GROUP_ID
        assert nameless.leave() is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("exists", [True, False])
def test_unknown_member_id_is_rejected(member: NewMember, exists: bool) -> None:
    if exists:
        stabilize(member())
    stranger = member()
    stranger.member_id = "made-up"
    answer = stranger.end_join(stranger.begin_join())
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "made-up")
    assert stranger.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "options",
    [
        {"protocol_type": "connect"},
        {"protocols": (JoinGroupRequestProtocol("sticky", b""),)},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
)
def test_inconsistent_group_protocol_is_rejected(
    member: NewMember, options: dict[str, object]
) -> None:
    stabilize(member())
    other = member()
    answer = other.end_join(other.begin_join(**options))  # type: ignore[arg-type]
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("options", [{"protocols": ()}, {"protocol_type": ""}])
def test_first_member_must_have_protocol(member: NewMember, options: dict[str, object]) -> None:
    alone = member()
    answer = alone.end_join(alone.begin_join(**options))  # type: ignore[arg-type]
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("protocol_type", "protocol"),
    [(None, None), ("consumer", None), (None, "range"), ("connect", "range"), ("consumer", "x")],
)
def test_sync_must_name_protocol_since_v5(
    member: NewMember, protocol_type: str | None, protocol: str | None
) -> None:
    alone = member()
    stabilize(alone)
    request = SyncGroupRequest(
        group_id=alone.group,
        generation_id=1,
        member_id=alone.member_id,
        protocol_type=protocol_type,
        protocol_name=protocol,
    )
    answer = alone.raw.ask(request, SyncGroupResponse)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("generation", [0, 2, -1])
def test_wrong_generation_is_rejected(member: NewMember, generation: int) -> None:
    alone = member()
    stabilize(alone)
    assert alone.heartbeat(generation=generation) is ErrorCode.ILLEGAL_GENERATION
    synced = alone.end_sync(alone.begin_sync(generation=generation))
    assert synced.error_code == ErrorCode.ILLEGAL_GENERATION


def test_heartbeat_reports_rebalance(member: NewMember) -> None:
    first, second = member(), member()
    stabilize(first)
    begun = second.begin_join_with_id()
    wait_for_rebalance(first)
    assert first.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    leader = first.join()
    follower = second.end_join(begun)
    assert leader.generation_id == follower.generation_id == 2
    assert {each.member_id for each in leader.members} == {first.member_id, second.member_id}
    assert follower.members == ()
    assert second.heartbeat() is ErrorCode.NONE, "heartbeats are accepted before the assignment"
    assign(first, second)


def test_full_group_rejects_new_member(member: NewMember) -> None:
    stabilize(*(member() for _ in range(MEMBERS_MAX)))
    late = member()
    answer = late.end_join(late.begin_join())
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_silent_member_is_removed(member: NewMember) -> None:
    # An old version, because newer ones also expire a member id that does not join within the session timeout.
    silent, other = member(version=3), member()
    stabilize(other)
    waiting = silent.begin_join(session_ms=100)
    wait_for_rebalance(other)
    other.join()
    assert silent.end_join(waiting).error_code == ErrorCode.NONE
    other.sync({other.member_id: b"all"})  # or it learns already that the silent member is gone
    wait_for_rebalance(other)
    answer = other.join()
    assert [each.member_id for each in answer.members] == [other.member_id]
    assert silent.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_missing_rebalance_timeout_is_removed(member: NewMember) -> None:
    first, slow = member(version=8), member(version=8)
    first.join(rebalance_ms=200)
    first.sync({first.member_id: b"all"})
    answer = slow.join(rebalance_ms=200)
    assert answer.leader == slow.member_id
    assert first.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_not_syncing_in_time_is_removed(member: NewMember) -> None:
    alone = member()
    alone.join(rebalance_ms=100)
    eventually(
        lambda: alone.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID, "it is removed", seconds=30.0
    )


def test_member_may_rejoin_after_lost_connection(member: NewMember) -> None:
    first, second = member(), member()
    stabilize(first, second)
    first.begin_join()
    wait_for_rebalance(second)
    again = member()
    again.member_id = first.member_id
    first.raw.close()
    begun = again.begin_join()
    second.join()
    assert again.end_join(begun).generation_id == 3


# ---- static members


def test_static_member_rejoins_without_rebalance(member: NewMember) -> None:
    other, static = member(), member(instance="one")
    stabilize(other, static)
    back = member(instance="one")
    answer = back.join()
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 2)
    assert (answer.leader, answer.skip_assignment) == (other.member_id, False)
    assert back.member_id != static.member_id
    assert bytes(back.sync().assignment) == f"to {static.member_id}".encode()
    assert other.heartbeat() is ErrorCode.NONE
    assert static.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert static.sync().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert static.end_join(static.begin_join()).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert static.leave() is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", [5, 8, 9])
def test_returning_static_leader_skips_assignment(member: NewMember, version: int) -> None:
    static, other = member(instance="one", version=version), member(version=version)
    stabilize(static, other)
    back = member(instance="one", version=version)
    answer = back.join()
    if version >= 9:
        assert (answer.leader, answer.skip_assignment) == (back.member_id, True)
        assert len(answer.members) == 2
    else:
        assert (answer.leader, answer.members) == (static.member_id, ())
    assert bytes(back.sync().assignment) == f"to {static.member_id}".encode()


def test_waiting_static_member_is_fenced_by_successor(member: NewMember) -> None:
    other, static = member(), member(instance="one")
    stabilize(other, static)
    waiting = other.begin_join()
    wait_for_rebalance(static)
    former = static.begin_join()
    assert static.end_join(former).error_code == ErrorCode.NONE
    other.end_join(waiting)
    syncing = static.begin_sync()
    back = member(instance="one")
    begun = back.begin_join()
    assert static.end_sync(syncing).error_code == ErrorCode.FENCED_INSTANCE_ID
    wait_for_rebalance(other)
    other.join()
    assert back.end_join(begun).error_code == ErrorCode.NONE


# ---- leaving


def test_leave_of_many_members_returns_individual_errors(
    raw: Raw, member: NewMember, group: str
) -> None:
    first, second, static = member(), member(), member(instance="one")
    stabilize(first, second, static)
    members = (
        MemberIdentity(first.member_id, None, "tired"),
        MemberIdentity("made-up"),
        MemberIdentity("", "one"),
        MemberIdentity("", "two"),
        MemberIdentity(first.member_id),
    )
    answer = raw.ask(LeaveGroupRequest(group_id=group, members=members), LeaveGroupResponse)
    assert answer.error_code == ErrorCode.NONE
    assert [tuple(each) for each in answer.members] == [
        (first.member_id, None, ErrorCode.NONE),
        ("made-up", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "one", ErrorCode.NONE),
        ("", "two", ErrorCode.UNKNOWN_MEMBER_ID),
        (first.member_id, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert second.join().leader == second.member_id


def test_pending_member_id_may_leave(member: NewMember) -> None:
    pending = member()
    pending.end_join(pending.begin_join())
    assert pending.leave() is ErrorCode.NONE
    assert pending.end_join(pending.begin_join()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# ---- describing and listing groups


@pytest.mark.parametrize("version", APIS[15].versions)
def test_group_is_described_in_every_version(
    raw: Raw, member: NewMember, group: str, version: int
) -> None:
    static = member(instance="one")
    stabilize(static)
    request = DescribeGroupsRequest(
        groups=(group, "nowhere"), include_authorized_operations=version >= 3
    )
    here, nowhere = raw.ask(request, DescribeGroupsResponse, version).groups
    assert here[:5] == (ErrorCode.NONE, group, "Stable", "consumer", "range")
    (found,) = here.members
    assert (found.member_id, found.client_id) == (static.member_id, "raw")
    assert found.client_host == "/127.0.0.1"
    assert bytes(found.member_metadata) == READS
    assert bytes(found.member_assignment) == f"to {static.member_id}".encode()
    assert found.group_instance_id == ("one" if version >= 4 else None)
    assert nowhere[:5] == (ErrorCode.NONE, "nowhere", "Dead", "", "")
    operations = GROUP_OPERATIONS if version >= 3 else NO_OPERATIONS
    assert here.authorized_operations == nowhere.authorized_operations == operations


def test_group_is_described_in_every_state(raw: Raw, member: NewMember, group: str) -> None:
    first, second = member(), member()
    first.join()
    completing = describe(raw, group)
    assert (completing.group_state, completing.protocol_data) == ("CompletingRebalance", "")
    assert bytes(completing.members[0].member_metadata) == b""
    assign(first)
    second.begin_join_with_id()
    wait_for_rebalance(first)
    assert describe(raw, group).group_state == "PreparingRebalance"
    assert first.leave() is ErrorCode.NONE
    assert second.raw.receive()
    assert second.leave() is ErrorCode.NONE
    empty = describe(raw, group)
    assert empty[2:6] == ("Empty", "consumer", "", ())
    assert empty.authorized_operations == NO_OPERATIONS


@pytest.mark.parametrize("version", APIS[16].versions)
def test_groups_are_listed_in_every_version(
    raw: Raw, member: NewMember, group: str, version: int
) -> None:
    stabilize(member())
    answer = raw.ask(ListGroupsRequest(), ListGroupsResponse, version)
    assert answer.error_code == ErrorCode.NONE
    (found,) = [each for each in answer.groups if each.group_id == group]
    assert found.protocol_type == "consumer"
    assert found.group_state == ("Stable" if version >= 4 else "")
    assert found.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("states", "types", "is_found"),
    [
        ((), (), True),
        (("Stable",), (), True),
        (("sTABLE", "Empty"), (), True),
        (("Empty", "nonsense"), (), False),
        ((), ("Classic",), True),
        ((), ("consumer", "nonsense"), False),
        (("Stable",), ("classic", "consumer"), True),
        (("Stable",), ("share",), False),
    ],
)
def test_groups_are_listed_by_state_and_type(
    raw: Raw,
    member: NewMember,
    group: str,
    states: tuple[str, ...],
    types: tuple[str, ...],
    is_found: bool,
) -> None:
    stabilize(member())
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    found = raw.ask(request, ListGroupsResponse).groups
    listed = ListedGroup(group, "consumer", "Stable", "classic")
    assert (listed in found) is is_found


# ---- deleting


@pytest.mark.parametrize("version", APIS[42].versions)
def test_only_empty_group_is_deleted(raw: Raw, member: NewMember, group: str, version: int) -> None:
    alone = member()
    stabilize(alone)
    assert delete(raw, group, "nowhere", group) == {
        group: ErrorCode.NON_EMPTY_GROUP,
        "nowhere": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    alone.leave()
    request = DeleteGroupsRequest(groups_names=(group,))
    (result,) = raw.ask(request, DeleteGroupsResponse, version).results
    assert tuple(result) == (group, ErrorCode.NONE)
    assert describe(raw, group).group_state == "Dead"
    assert delete(raw, group) == {group: ErrorCode.GROUP_ID_NOT_FOUND}


# ---- coordinator restarts


def test_restart_keeps_members_but_not_deleted_groups(
    tmp_path: Path,
) -> None:
    with LocalCluster(data=tmp_path, settings=SETTINGS) as running:
        servers = running.bootstrap_servers
        with Raw(servers) as raw:
            wait_until_loaded(raw, "kept", "deleted")
            with RawMember(servers, "deleted") as gone:
                stabilize(gone)
                gone.leave()
            assert delete(raw, "deleted") == {"deleted": ErrorCode.NONE}
        with RawMember(servers, "kept") as first, RawMember(servers, "kept") as second:
            stabilize(first, second)
        running.brokers[1].kill()
        running.brokers[1].start()
        with Raw(servers) as raw:
            wait_until_loaded(raw, "kept", "deleted")
            found = describe(raw, "kept")
            assert (found.group_state, len(found.members)) == ("Stable", 2)
            assert describe(raw, "deleted").group_state == "Dead"
        with RawMember(servers, "kept") as again:
            again.member_id, again.generation = second.member_id, second.generation
            assert again.heartbeat() is ErrorCode.NONE
            assert bytes(again.sync().assignment) == f"to {second.member_id}".encode()


def test_non_coordinator_returns_not_coordinator() -> None:
    settings = SETTINGS | {"offsets.topic.replication.factor": 1}
    with LocalCluster(brokers=2, settings=settings) as running:
        with Raw(running.brokers[1].address) as raw:
            coordinator = wait_for_coordinator(raw, "elsewhere")
        (other,) = running.brokers.keys() - {coordinator}
        with Raw(running.brokers[other].address) as raw:
            for code in answers_about(raw, "elsewhere"):
                assert code == ErrorCode.NOT_COORDINATOR
            assert raw.ask(ListGroupsRequest(), ListGroupsResponse).groups == ()


def answers_about(raw: Raw, group: str) -> list[int]:
    """The error codes of every API that concerns one group."""
    join = JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, protocol_type="consumer", protocols=RANGE
    )
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id="x",
        protocol_type="consumer",
        protocol_name="range",
    )
    heartbeat = HeartbeatRequest(group_id=group, generation_id=1, member_id="x")
    leave = LeaveGroupRequest(group_id=group, members=(MemberIdentity("x"),))
    return [
        raw.ask(join, JoinGroupResponse).error_code,
        raw.ask(sync, SyncGroupResponse).error_code,
        raw.ask(heartbeat, HeartbeatResponse).error_code,
        raw.ask(leave, LeaveGroupResponse).error_code,
        describe(raw, group).error_code,
        delete(raw, group)[group],
    ]
