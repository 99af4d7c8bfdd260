from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.errors import ConfigError
from barnabas.jobs.copy_topic import setting_changes
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.mirror import (
    OFFSETS_MAX,
    MirrorRange,
    checkpoints_of,
    is_current,
    matching_topics,
    mirrored_settings,
    new_checkpoints,
    plan_range,
    planned_target,
)
from barnabas.jobs.mirror_checkpoints import CHECKPOINT_TOPIC, Checkpoint
from barnabas.jobs.topic_state import TopicState
from barnabas.spark.planning import LogSpan
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation

ONE, TWO = UUID(int=1), UUID(int=2)


def checkpoint(
    source: int, target: int, topic_id: UUID = ONE, target_id: UUID | None = ONE
) -> Checkpoint:
    return Checkpoint(
        topic_id=topic_id, source_offset=source, target_offset=target, target_id=target_id
    )


def state(*spans: tuple[int, int], name: str = "t", topic_id: UUID = ONE) -> TopicState:
    return TopicState(
        name=name, id=topic_id, settings={}, spans=tuple(LogSpan(*each) for each in spans)
    )


def test_whole_name_matches() -> None:
    names = ["orders", "orders-dead", "users", CHECKPOINT_TOPIC]
    assert matching_topics(names, "orders") == ["orders"]
    assert matching_topics(names, "orders.*|u.*") == ["orders", "orders-dead", "users"]
    assert CHECKPOINT_TOPIC not in matching_topics(names, ".*")
    with pytest.raises(ConfigError, match="PATTERN: '\\*' is not a regular expression"):
        matching_topics(names, "*")


@pytest.mark.parametrize(
    ("span", "known", "target_end", "expected"),
    [
        ((0, 10), checkpoint(0, 0), 0, MirrorRange(0, 10, 0)),
        ((0, 10), checkpoint(10, 10), 10, None),
        ((5, 10), checkpoint(5, 0), 0, MirrorRange(5, 10, 0)),
        ((0, 10), checkpoint(4, 4), 7, MirrorRange(4, 10, 4)),
        ((8, 10), checkpoint(4, 4), 4, MirrorRange(8, 10, 4, lost=4)),
        ((10, 10), checkpoint(4, 4), 4, MirrorRange(10, 10, 4, lost=6)),
        ((0, 9_000_000), checkpoint(0, 0), 0, MirrorRange(0, OFFSETS_MAX, 0)),
    ],
)
def test_next_range_begins_at_checkpoint(
    span: tuple[int, int], known: Checkpoint, target_end: int, expected: MirrorRange | None
) -> None:
    assert plan_range("t-0", LogSpan(*span), known, target_end) == expected


def test_records_deleted_after_interrupted_run_are_refused() -> None:
    with pytest.raises(JobRefused, match="t-0: the source has deleted records"):
        plan_range("t-0", LogSpan(8, 10), checkpoint(4, 4), 6)


def test_truncated_source_is_refused() -> None:
    with pytest.raises(
        JobRefused, match="t-0 ends at offset 9 in the source, but records up to 10 were"
    ):
        plan_range("t-0", LogSpan(0, 9), checkpoint(10, 10), 10)


def test_new_partitions_start_at_first_record() -> None:
    found = new_checkpoints(state((3, 9), (0, 4)), state((0, 6), (0, 0)), {0: checkpoint(9, 6)})
    assert found == {1: checkpoint(0, 0)}
    assert new_checkpoints(state((3, 9)), state((0, 0)), {}) == {0: checkpoint(3, 0)}


def test_checkpoints_of_deleted_target_are_ignored() -> None:
    known = {0: checkpoint(9, 9), 1: checkpoint(9, 9, target_id=None)}
    assert checkpoints_of(state((0, 9), (0, 9)), known) == known
    assert checkpoints_of(state((0, 0), (0, 0), topic_id=TWO), known) == {1: known[1]}
    assert checkpoints_of(None, known) == {}


@pytest.mark.parametrize(
    ("target_end", "known", "settings", "expected"),
    [
        (9, {0: checkpoint(9, 9)}, {}, True),
        (9, {}, {}, False),
        (8, {0: checkpoint(8, 8)}, {}, False),
        (10, {0: checkpoint(10, 10)}, {}, False),
        (8, {0: checkpoint(9, 9)}, {}, False),
        (9, {0: checkpoint(9, 9, TWO)}, {}, False),
        (9, {0: checkpoint(9, 9)}, {"segment.bytes": "1"}, False),
    ],
)
def test_current_mirror_needs_no_run(
    target_end: int, known: dict[int, Checkpoint], settings: dict[str, str], expected: bool
) -> None:
    target = replace(state((0, target_end)), settings={**mirrored_settings({}), **settings})
    assert is_current(state((0, 9)), target, known) is expected


@pytest.mark.parametrize(
    ("target", "known", "reason"),
    [
        (state((0, 5)), {}, "topic t exists in the target cluster and is not a mirror of t"),
        (state((0, 5)), {0: checkpoint(9, 5, TWO)}, "deleted and created again in the source"),
        (state((0, 4)), {0: checkpoint(9, 5)}, "t-0 has fewer records than were mirrored"),
    ],
)
def test_target_that_is_no_mirror_is_refused(
    target: TopicState, known: dict[int, Checkpoint], reason: str
) -> None:
    with pytest.raises(JobRefused, match=reason):
        new_checkpoints(state((0, 9)), target, known)


def test_settings_follow_except_those_of_timestamps() -> None:
    source = {
        "retention.ms": "5",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "1",
    }
    wanted = mirrored_settings(source)
    assert wanted == {"retention.ms": "5", "message.timestamp.type": "CreateTime"}
    changes = setting_changes({"retention.ms": "6", "segment.bytes": "1"}, wanted)
    assert [(each.name, each.value, each.operation) for each in changes] == [
        ("message.timestamp.type", "CreateTime", ConfigOperation.SET),
        ("retention.ms", "5", ConfigOperation.SET),
        ("segment.bytes", None, ConfigOperation.DELETE),
    ]


def test_planned_target_has_the_partitions_of_the_source() -> None:
    source = state((3, 9), (0, 4))
    created = planned_target("m.t", source, None)
    assert (created.name, created.spans) == ("m.t", (LogSpan(0, 0), LogSpan(0, 0)))
    grown = planned_target("t", source, state((0, 6)))
    assert (grown.id, grown.spans) == (ONE, (LogSpan(0, 6), LogSpan(0, 0)))
    assert planned_target("t", state((0, 1)), state((0, 6), (0, 2))).partition_count == 2
