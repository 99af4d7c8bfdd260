from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.cli.history.availability import require_history
from barnabas.cli.history.narrator import Narrator, group_replica_events, state_name
from barnabas.cli.history.timeline import Event, TopicEvents
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import ConsumedRecord
from barnabas.controller.decision import PartitionTransition, ReplicaTransition, StateTransition
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.errors import ApiError, ErrorCode
from barnabas.history.recorder import EventLine
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import BrokerId, Replica, TopicPartition
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrResponse
from tests.unit.client.scripted_broker import ScriptedBroker
from tests.unit.controller.cluster import ids, state
from tests.unit.history.test_recorder import leader_and_isr, new_recorder

ORDERS = TopicPartition("orders", 0)


def partition(
    before: PartitionState,
    after: PartitionState,
    *,
    leader: int | None = None,
    isr: tuple[int, ...] = (),
    epoch: int = 0,
    cause: str = "TopicsChanged#4",
    topic: str = "orders",
) -> PartitionTransition:
    known = None if leader is None else state(leader, isr, epoch=epoch)
    return StateTransition(
        item=TopicPartition(topic, 0), before=before, after=after, cause=cause, leadership=known
    )


def replica(broker: int, index: int = 0) -> ReplicaTransition:
    return StateTransition(
        item=Replica(TopicPartition("orders", index), BrokerId(broker)),
        before=ReplicaState.NEW,
        after=ReplicaState.ONLINE,
        cause="TopicsChanged#4",
    )


def as_records(changes: list[EventLine]) -> list[ConsumedRecord]:
    return [
        ConsumedRecord(STATE_CHANGES, 0, offset, 0, None, change.line.encode())
        for offset, change in enumerate(changes)
    ]


def timeline(*changes: EventLine, topic: str = "orders") -> list[Event]:
    found = TopicEvents(topic)
    found.add(as_records(list(changes)))
    return found.in_order()


def narrate(*changes: EventLine) -> list[str]:
    return list(Narrator("orders").lines(timeline(*changes)))


NEW = partition(PartitionState.NON_EXISTENT, PartitionState.NEW)
ONLINE = partition(PartitionState.NEW, PartitionState.ONLINE, leader=2, isr=(2, 3, 1))


def test_topic_request_names_requester_and_default_settings() -> None:
    by = new_recorder()

    def narrate_request(after: str = "created", **facts: object) -> str:
        changes = by.record_topic_request(
            ["orders"], request="r", after=after, client="app", host="::1", facts={"orders": facts}
        )
        (line,) = narrate(*changes)[1:]
        return " ".join(line.split()[1:])

    assert narrate_request(partitions=1, replication_factor=2) == (
        "created, requested by app at ::1: 1 partition, 2 replicas each"
    )
    assert narrate_request(partitions=6, replication_factor=1, defaults=["num.partitions"]) == (
        "created, requested by app at ::1: 6 partitions (num.partitions), 1 replica each"
    )
    assert narrate_request(
        partitions=50,
        replication_factor=3,
        defaults=["offsets.topic.num.partitions", "offsets.topic.replication.factor"],
        automatic=True,
        via=2,
    ) == (
        "created automatically for app at ::1 via broker 2: 50 partitions "
        "(offsets.topic.num.partitions), 3 replicas each (offsets.topic.replication.factor)"
    )
    assert (
        narrate_request(after="marked for deletion")
        == "marked for deletion, requested by app at ::1"
    )


def test_topic_creation_is_narrated() -> None:
    by = new_recorder()
    changes = by.record_transitions([NEW], replicas_of=lambda _: ids(2, 3, 1))
    changes += by.record_transitions([ONLINE])
    changes += by.record_transitions([replica(2), replica(3), replica(1), replica(3, index=1)])
    sent = by.record_request(
        BrokerId(3), leader_and_isr(("orders", [0, 1])), cause="TopicsChanged#4"
    )
    changes += sent.events
    changes += by.record_response(sent, LeaderAndIsrResponse())
    changes += by.record_topic_request(
        ["orders"], request="CreateTopics", after="created", client="app", host="::1"
    )
    assert narrate(*changes) == [
        "2026-05-01 controller 1, epoch 7: TopicsChanged#4",
        "  08:00:00.123  partition 0: new, on brokers 2,3,1",
        "  08:00:00.123  partition 0: online, leader 2 in epoch 0, ISR 2,3,1",
        "  08:00:00.123  replicas of partition 0 on 2,3,1; 1 on 3: online",
        "  08:00:00.123  LeaderAndIsr #7 to broker 3: partitions 0-1",
        "  08:00:00.123  broker 3 answered LeaderAndIsr #7: done",
        "2026-05-01 controller 1, epoch 7: CreateTopics",
        "  08:00:00.123  created, requested by app at ::1",
    ]


def test_unclean_election_is_shown() -> None:
    online, offline = PartitionState.ONLINE, PartitionState.OFFLINE
    by = new_recorder()
    moved = partition(offline, online, leader=3, isr=(3,), epoch=1, cause="BrokersChanged#9")
    lines = narrate(
        *by.record_transitions([ONLINE]), *by.record_transitions([moved._replace(is_unclean=True)])
    )
    text = " ".join(lines[-1].split())
    assert "leader 3 (before: 2) in epoch 1, unclean: it was not in sync, ISR 3" in text


def test_leader_and_isr_changes_show_previous_state() -> None:
    by = new_recorder()
    online, offline = PartitionState.ONLINE, PartitionState.OFFLINE
    changes = by.record_transitions([ONLINE])
    changes += by.record_transitions([partition(online, offline, cause="BrokersChanged#9")])
    moved = partition(offline, online, leader=3, isr=(3, 1), epoch=1, cause="BrokersChanged#9")
    changes += by.record_transitions([moved])
    changes += by.record_isr_changes(
        [(ORDERS, state(3, (3, 1, 2), epoch=1))], cause="AlterPartition#12"
    )
    lines = narrate(*changes)
    assert lines[2:] == [
        "2026-05-01 controller 1, epoch 7: BrokersChanged#9",
        "  08:00:00.123  partition 0: offline, lost its leader 2",
        "  08:00:00.123  partition 0: online, leader 3 (before: 2) in epoch 1, ISR 3,1 (without 2)",
        "2026-05-01 controller 1, epoch 7: AlterPartition#12",
        "  08:00:00.123  partition 0: leader 3 in epoch 1, ISR 3,1,2 (now with 2)",
    ]


def test_offline_replica_shows_remaining_isr() -> None:
    by = new_recorder()
    gone = StateTransition(
        item=Replica(ORDERS, BrokerId(2)),
        before=ReplicaState.ONLINE,
        after=ReplicaState.OFFLINE,
        cause="ControllerGone#3",
        leadership=state(-1, (3, 1), epoch=1),
    )
    online = partition(
        PartitionState.OFFLINE, PartitionState.ONLINE, leader=3, isr=(3, 1), epoch=2, cause="x"
    )
    lines = narrate(
        *by.record_transitions([ONLINE]),
        *by.record_transitions([gone]),
        *by.record_transitions([online]),
    )
    assert lines[3].endswith("replica of partition 0 on 2 (ISR 3,1, no leader): offline")
    assert lines[5].endswith("partition 0: online, leader 3 (before: 2) in epoch 2, ISR 3,1")


def test_deleted_partition_is_offline_without_lost_leader() -> None:
    by = new_recorder()
    online, offline = PartitionState.ONLINE, PartitionState.OFFLINE
    lines = narrate(
        *by.record_transitions([ONLINE]),
        *by.record_transitions([partition(online, offline, cause="TopicsMarked#9")]),
    )
    assert lines[-1].endswith("partition 0: offline")


def test_failed_responses_show_reason() -> None:
    by = new_recorder()
    sent = by.record_request(BrokerId(3), leader_and_isr(("orders", [0])), cause="TopicsChanged#4")
    stale = LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    lines = narrate(
        *by.record_transitions([ONLINE]), *sent.events, *by.record_response(sent, stale)
    )
    assert lines[-1].endswith("answered LeaderAndIsr #1: failed, STALE_CONTROLLER_EPOCH")
    lost = narrate(*sent.events, *by.record_missing_response(sent, "broker 3 is gone"))
    assert lost[-1].endswith("failed, broker 3 is gone")


def test_requests_are_hidden_unless_they_failed() -> None:
    by = new_recorder()
    sent = by.record_request(BrokerId(3), leader_and_isr(("orders", [0])), cause="TopicsChanged#4")
    done = timeline(*sent.events, *by.record_response(sent, LeaderAndIsrResponse()))
    assert sum("LeaderAndIsr" in line for line in Narrator("orders").lines(done)) == 2
    assert list(Narrator("orders", with_requests=False).lines(done)) == []
    lost = timeline(*sent.events, *by.record_missing_response(sent, "broker 3 is gone"))
    own: Event = {**done[-1], "errors": {"orders-0": "NOT_CONTROLLER"}}
    other: Event = {**done[-1], "errors": {"clicks-0": "NOT_CONTROLLER"}}
    *_, failed, refused = Narrator("orders", with_requests=False).lines([*lost, own, other])
    assert failed.endswith("failed, broker 3 is gone")
    assert refused.endswith("done (orders-0 NOT_CONTROLLER)")


def test_events_are_deduplicated_and_ordered_by_epoch() -> None:
    first, second = new_recorder(7), new_recorder(8)
    old = first.record_transitions([NEW, ONLINE])
    new = second.record_election(cause="ControllerGone#3", previous=BrokerId(1))
    new += second.record_transitions([ONLINE])
    # The broker of the old controller came back and published its remaining events, some of them
    # twice.
    events = timeline(old[0], *new, *old, *new)
    names = [(event["epoch"], event["sequence"]) for event in events]
    assert names == [(7, 1), (7, 2), (8, 1), (8, 2)]


def test_timeline_contains_only_events_of_the_topic() -> None:
    by = new_recorder()
    changes = by.record_election(cause="Startup#1")
    changes += by.record_transitions(
        [partition(PartitionState.NEW, PartitionState.ONLINE, topic="orders2")]
    )
    changes += by.record_transitions([NEW])
    other = by.record_request(BrokerId(2), leader_and_isr(("orders2", [0])), cause="x")
    both = by.record_request(
        BrokerId(2), leader_and_isr(("orders2", [0]), ("orders", [0])), cause="x"
    )
    changes += [*other.events, *both.events]
    changes += by.record_response(other, LeaderAndIsrResponse())
    changes += by.record_response(both, LeaderAndIsrResponse())
    events = timeline(*changes)
    assert [event["sequence"] for event in events] == [1, 3, 5, 7]
    assert timeline(*changes, topic="nothing") == []


def test_response_matches_request_split_into_parts() -> None:
    by = new_recorder()
    names = [(f"topic-{number:05d}", [0]) for number in range(5_000)]
    sent = by.record_request(BrokerId(3), leader_and_isr(*names, ("orders", [0])), cause="x")
    assert len(sent.events) > 1
    events = timeline(*sent.events, *by.record_response(sent, LeaderAndIsrResponse()))
    assert [event.get("answers") for event in events] == [None, sent.events[0].sequence]
    lines = list(Narrator("orders").lines(events))
    assert "#1 to broker 3: partition 0, 5001 including other topics" in lines[1]
    assert "answered LeaderAndIsr #1: done" in lines[2]


@pytest.mark.parametrize("value", [None, b"", b"orders", b'"orders"', b'{"topic":"orders"}'])
def test_invalid_records_are_skipped(value: bytes | None) -> None:
    found = TopicEvents("orders")
    assert found.add([ConsumedRecord(STATE_CHANGES, 0, 0, 0, None, value)]) == []


def test_controllers_before_first_event_of_topic_are_omitted() -> None:
    earlier, later = new_recorder(3), new_recorder(7)
    changes = earlier.record_election(cause="Startup#1") + later.record_election(
        cause="ControllerGone#2"
    )
    events = timeline(
        *changes,
        *later.record_transitions([NEW]),
        *later.record_resignation(cause="SessionExpired#9"),
    )
    assert [(event["epoch"], event["what"]) for event in events] == [
        (7, "controller"),
        (7, "partition"),
        (7, "controller"),
    ]
    lines = list(Narrator("orders").lines(events))
    assert lines[1].endswith("controller 1 elected")
    assert lines[-1].endswith("controller 1 resigned")


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({}, "this cluster has no history"),
        ({"barnabas.history.topic.enable": "false"}, "disabled"),
        ({"barnabas.history.topic.enable": "true"}, "not published yet"),
    ],
)
def test_missing_history_names_the_reason(configs: dict[str, str], reason: str) -> None:
    def describe(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        (resource,) = request.resources
        entries = tuple(
            DescribeConfigsResourceResult(name=name, value=value, read_only=True)
            for name, value in configs.items()
        )
        result = DescribeConfigsResult(
            error_code=0,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=entries,
        )
        return DescribeConfigsResponse(results=(result,))

    with (
        ScriptedBroker({DescribeConfigsRequest: describe}) as broker,
        Cluster(broker.address) as cluster,
    ):
        with pytest.raises(ApiError, match=reason):
            require_history(cluster, "orders")
        with pytest.raises(ApiError, match="there is no topic 'ordres'"):
            require_history(cluster, "ordres")
        broker.topics[STATE_CHANGES] = 1
        require_history(cluster, "orders")


def test_many_replicas_are_wrapped_at_100_columns() -> None:
    by = new_recorder()
    (_, lines) = narrate(
        *by.record_transitions(
            [replica(broker, index) for index in range(20) for broker in (1, 2, 3)]
        )
    )
    assert len(lines.splitlines()) > 2
    assert all(len(line) <= 100 for line in lines.splitlines())
    assert "; 19 on 1,2,3: online" in " ".join(lines.split())


def test_states_have_plain_names() -> None:
    states = [*PartitionState, *ReplicaState]
    assert {state_name(state) for state in states} == {
        *(
            "removed",
            "new",
            "online",
            "offline",
            "being deleted",
            "deleted",
            "cannot be deleted now",
        ),
    }


def test_every_event_is_in_exactly_one_run() -> None:
    by = new_recorder()
    events: list[dict[str, Any]] = [
        json.loads(change.line)
        for change in by.record_transitions([NEW, replica(1), replica(2), ONLINE, replica(3)])
    ]
    assert [len(run) for run in group_replica_events(events)] == [1, 2, 1, 1]
    assert list(group_replica_events([])) == []
