from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from barnabas.controller.decision import (
    FailureReason,
    PartitionTransition,
    StateTransition,
    TransitionFailure,
)
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.errors import ErrorCode
from barnabas.history.recorder import (
    NAMES_LENGTH_MAX,
    EventLine,
    Recorder,
    format_instant,
    format_ranges,
)
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import BrokerId, ControllerEpoch, Replica, TopicPartition
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from tests.unit.controller.cluster import ids, state

NOW_MS = 1_777_622_400_123
ORDERS = TopicPartition("orders", 0)
ORDERS_ID = UUID(int=7)
CAUSE = "TopicsChanged#4"


class FixedClock:
    def now_ms(self) -> int:
        return NOW_MS


class MemorySink:
    def __init__(self) -> None:
        self.events: list[EventLine] = []

    def append(self, events: Sequence[EventLine]) -> None:
        self.events += events


def new_recorder(epoch: int = 7) -> Recorder:
    return Recorder(BrokerId(1), ControllerEpoch(epoch), FixedClock(), MemorySink())


def decode(lines: list[EventLine]) -> list[dict[str, Any]]:
    events = [json.loads(each.line) for each in lines]
    assert [(event["epoch"], event["sequence"]) for event in events] == [
        (each.epoch, each.sequence) for each in lines
    ]
    return events


def online(partition: TopicPartition = ORDERS) -> PartitionTransition:
    return StateTransition(
        item=partition,
        before=PartitionState.NEW,
        after=PartitionState.ONLINE,
        cause=CAUSE,
        leadership=state(2, (2, 3, 1)),
    )


def leader_and_isr(*topics: tuple[str, list[int]]) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=7,
        topic_states=tuple(
            LeaderAndIsrTopicState(
                name,
                ORDERS_ID,
                tuple(LeaderAndIsrPartitionState(partition_index=index) for index in partitions),
            )
            for name, partitions in topics
        ),
    )


def test_transition_is_one_line_with_all_fields() -> None:
    (event,) = decode(
        new_recorder().record_transitions([online()], replicas_of=lambda _: ids(2, 3, 1))
    )
    assert event == {
        "at": "2026-05-01T08:00:00.123Z",
        "broker": 1,
        "role": "controller",
        "epoch": 7,
        "sequence": 1,
        "cause": CAUSE,
        "what": "partition",
        "id": "orders-0",
        "topic": "orders",
        "partition": 0,
        "before": "NewPartition",
        "after": "OnlinePartition",
        "leader": 2,
        "leader_epoch": 0,
        "isr": [2, 3, 1],
        "znode_version": 0,
        "replicas": [2, 3, 1],
        "result": "done",
    }


def test_unclean_election_is_marked() -> None:
    clean, unclean = decode(
        new_recorder().record_transitions([online(), online()._replace(is_unclean=True)])
    )
    assert "unclean" not in clean
    assert unclean["unclean"] is True


def test_replica_is_named_with_its_broker() -> None:
    move = StateTransition(
        item=Replica(ORDERS, BrokerId(3)),
        before=ReplicaState.NEW,
        after=ReplicaState.ONLINE,
        cause=CAUSE,
    )
    (event,) = decode(new_recorder().record_transitions([move], replicas_of=lambda _: ids(3)))
    assert (event["what"], event["id"], event["replica"]) == ("replica", "orders-0 on 3", 3)
    assert (event["topic"], event["partition"]) == ("orders", 0)
    assert "leader" not in event
    assert "replicas" not in event


def test_failed_transition_has_a_reason() -> None:
    failure = TransitionFailure(
        item=ORDERS,
        before=PartitionState.OFFLINE,
        after=PartitionState.ONLINE,
        reason=FailureReason.NO_ELIGIBLE_LEADER,
        why='ISR [2], and "2" is down',
        cause=CAUSE,
    )
    (event,) = decode(new_recorder().record_transitions([], [failure]))
    assert event["result"] == "failed"
    assert event["why"] == 'no eligible leader: ISR [2], and "2" is down'
    assert (event["before"], event["after"]) == ("OfflinePartition", "OnlinePartition")


def test_all_events_share_one_sequence_and_reach_the_sink() -> None:
    sink = MemorySink()
    recorder = Recorder(BrokerId(1), ControllerEpoch(7), FixedClock(), sink)
    recorder.record_election(cause="Startup#1", previous=BrokerId(2))
    recorder.record_transitions([online(), online()])
    sent = recorder.record_request(BrokerId(2), leader_and_isr(("orders", [0])), cause=CAUSE)
    recorder.record_isr_changes([(ORDERS, state(2, (2,)))], cause="AlterPartition#9")
    recorder.record_response(sent, LeaderAndIsrResponse())
    recorder.record_resignation(cause="SessionExpired#10")
    events = decode(sink.events)
    assert [event["sequence"] for event in events] == list(range(1, 8))
    assert [event["what"] for event in events] == [
        *("controller", "partition", "partition", "request", "partition", "request", "controller"),
    ]
    assert (events[0]["before"], events[0]["after"]) == (2, 1)
    assert (events[-1]["before"], events[-1]["after"]) == (1, None)
    assert events[4]["isr"] == [2]
    assert events[4]["before"] == events[4]["after"] == PartitionState.ONLINE


def test_topic_request_names_the_client() -> None:
    recorder = new_recorder()
    (event,) = decode(
        recorder.record_topic_request(
            ["orders"], request="CreateTopics", after="created", client='x"y', host="::1"
        )
    )
    assert (event["what"], event["topic"], event["after"]) == ("topic", "orders", "created")
    assert (event["by"], event["host"], event["cause"]) == ('x"y', "::1", "CreateTopics")
    (own,) = decode(
        recorder.record_topic_request(
            [STATE_CHANGES], request="CreateTopics", after="created", client=None, host=""
        )
    )
    assert (own["by"], own["own"]) == (None, True)


def test_topic_request_has_the_time_of_the_request() -> None:
    (event,) = decode(
        new_recorder().record_topic_request(
            ["orders"],
            request="CreateTopics",
            after="created",
            client="app",
            host="::1",
            asked_at_ms=1_777_622_400_120,
        )
    )
    assert event["asked_at"] == "2026-05-01T08:00:00.120Z"


def test_response_names_its_request_and_partitions_are_ranges() -> None:
    recorder = new_recorder()
    request = leader_and_isr(("orders", [0, 1, 2, 9]), ("clicks", [4]))
    sent = recorder.record_request(BrokerId(3), request, cause=CAUSE)
    (event,) = decode(sent.events)
    assert (event["id"], event["to"], event["result"]) == ("LeaderAndIsr to 3", 3, "sent")
    assert event["topics"] == {"orders": "0-2,9", "clicks": "4"}
    assert event["partitions"] == 5
    assert "parts" not in event
    (answer,) = decode(recorder.record_response(sent, LeaderAndIsrResponse()))
    assert (answer["answers"], answer["result"], answer["to"]) == (event["sequence"], "done", 3)
    assert "topics" not in answer
    (lost,) = decode(recorder.record_missing_response(sent, "broker 3 is gone"))
    assert (lost["result"], lost["why"]) == ("failed", "broker 3 is gone")


def test_response_names_the_partitions_that_failed() -> None:
    recorder = new_recorder()
    sent = recorder.record_request(BrokerId(3), leader_and_isr(("orders", [0, 1])), cause=CAUSE)
    errors = (
        LeaderAndIsrPartitionError(partition_index=0),
        LeaderAndIsrPartitionError(partition_index=1, error_code=ErrorCode.KAFKA_STORAGE_ERROR),
    )
    response = LeaderAndIsrResponse(topics=(LeaderAndIsrTopicError(ORDERS_ID, errors),))
    (answer,) = decode(recorder.record_response(sent, response))
    assert answer["errors"] == {"orders-1": "KAFKA_STORAGE_ERROR"}
    assert (answer["error_count"], answer["result"]) == (1, "failed")
    stale = LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    (answer,) = decode(recorder.record_response(sent, stale))
    assert answer["why"] == "STALE_CONTROLLER_EPOCH"


def test_stale_epoch_error_counts_as_known_already() -> None:
    recorder = new_recorder()
    sent = recorder.record_request(BrokerId(3), leader_and_isr(("orders", [0, 1])), cause=CAUSE)
    stale, broken = ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR
    errors = [
        LeaderAndIsrPartitionError(partition_index=index, error_code=stale) for index in (0, 1)
    ]
    response = LeaderAndIsrResponse(topics=(LeaderAndIsrTopicError(ORDERS_ID, tuple(errors)),))
    (answer,) = decode(recorder.record_response(sent, response))
    assert (answer["result"], answer["known_already"]) == ("done", 2)
    errors[1] = LeaderAndIsrPartitionError(partition_index=1, error_code=broken)
    response = LeaderAndIsrResponse(topics=(LeaderAndIsrTopicError(ORDERS_ID, tuple(errors)),))
    (answer,) = decode(recorder.record_response(sent, response))
    assert (answer["result"], answer["known_already"]) == ("failed", 1)
    assert answer["errors"] == {"orders-1": "KAFKA_STORAGE_ERROR"}


def test_stop_replica_counts_deletions() -> None:
    recorder = new_recorder()
    states = (
        StopReplicaPartitionState(0, delete_partition=True),
        StopReplicaPartitionState(1),
    )
    request = StopReplicaRequest(
        controller_id=1, controller_epoch=7, topic_states=(StopReplicaTopicState("orders", states),)
    )
    sent = recorder.record_request(BrokerId(2), request, cause=CAUSE)
    (event,) = decode(sent.events)
    assert (event["id"], event["partitions"], event["deletes"]) == ("StopReplica to 2", 2, 1)
    failed = (StopReplicaPartitionError("orders", 0, ErrorCode.KAFKA_STORAGE_ERROR),)
    (answer,) = decode(recorder.record_response(sent, StopReplicaResponse(partition_errors=failed)))
    assert answer["errors"] == {"orders-0": "KAFKA_STORAGE_ERROR"}


def test_large_request_is_split_into_several_lines() -> None:
    names = [f"topic-{number:05d}" for number in range(5_000)]
    recorder = new_recorder()
    sent = recorder.record_request(
        BrokerId(3), leader_and_isr(*((name, [0]) for name in names)), cause=CAUSE
    )
    events = decode(sent.events)
    assert len(events) > 1
    assert [event["part"] for event in events] == list(range(1, len(events) + 1))
    assert {(event["parts"], event["partitions"]) for event in events} == {(len(events), 5_000)}
    assert [name for event in events for name in event["topics"]] == names
    assert max(len(each.line) for each in sent.events) < NAMES_LENGTH_MAX + 1_000
    (answer,) = decode(recorder.record_response(sent, LeaderAndIsrResponse()))
    assert answer["answers"] == events[0]["sequence"]


def test_ten_thousand_partitions_of_one_topic_fit_a_short_line() -> None:
    sent = new_recorder().record_request(
        BrokerId(3), leader_and_isr(("orders", list(range(10_000)))), cause=CAUSE
    )
    assert len(sent.events) == 1
    assert len(sent.events[0].line) < 300


def test_update_metadata_is_recorded_once_per_broker() -> None:
    topics = (UpdateMetadataTopicState("orders", ORDERS_ID, (UpdateMetadataPartitionState(),)),)
    recorder = new_recorder()
    request = UpdateMetadataRequest(controller_id=1, controller_epoch=7, topic_states=topics)
    for broker in ids(1, 2):
        (event,) = decode(recorder.record_request(broker, request, cause=CAUSE).events)
        assert (event["to"], event["topics"]) == (broker, {"orders": "0"})
    sent = recorder.record_request(BrokerId(3), request, cause=CAUSE)
    assert decode(recorder.record_response(sent, UpdateMetadataResponse()))[0]["result"] == "done"
    nothing = UpdateMetadataRequest(controller_id=1, controller_epoch=7)
    (event,) = decode(recorder.record_request(BrokerId(1), nothing, cause=CAUSE).events)
    assert (event["partitions"], event["topics"]) == (0, {})
    assert "own" not in event


def test_events_about_history_topic_only_are_marked_own() -> None:
    recorder = new_recorder()
    own, other = TopicPartition(STATE_CHANGES, 0), ORDERS
    events = decode(recorder.record_transitions([online(own), online(other)]))
    assert [event.get("own", False) for event in events] == [True, False]
    sent = recorder.record_request(BrokerId(2), leader_and_isr((STATE_CHANGES, [0])), cause=CAUSE)
    assert decode(sent.events)[0]["own"]
    assert decode(recorder.record_response(sent, LeaderAndIsrResponse()))[0]["own"]
    mixed = leader_and_isr((STATE_CHANGES, [0]), ("orders", [0]))
    assert "own" not in decode(recorder.record_request(BrokerId(2), mixed, cause=CAUSE).events)[0]
    assert STATE_CHANGES in INTERNAL_TOPICS


def test_invalid_topic_name_is_escaped() -> None:
    odd = TopicPartition('a"b\\c\n', 0)
    (event,) = decode(new_recorder().record_transitions([online(odd)]))
    assert (event["topic"], event["id"]) == (odd.topic, f"{odd.topic}-0")


@pytest.mark.parametrize(
    ("partitions", "text"),
    [
        ([], ""),
        ([5], "5"),
        ([0, 1, 2], "0-2"),
        ([8, 7, 0, 2, 1, 5], "0-2,5,7-8"),
        ([1, 3, 5], "1,3,5"),
        ([0, 2], "0,2"),
    ],
)
def test_ranges_name_each_partition_once(partitions: list[int], text: str) -> None:
    assert format_ranges(partitions) == text


def test_instants_are_utc_with_milliseconds() -> None:
    assert format_instant(NOW_MS) == "2026-05-01T08:00:00.123Z"
    assert format_instant(1_000) == "1970-01-01T00:00:01.000Z"
