"""The topic of a copy: its settings during and after the copy, and which existing topics are accepted."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.client.config_admin import ConfigChange
from barnabas.jobs.copy_topic import (
    COPY_SETTINGS,
    CopiedPartition,
    NewCopy,
    all_partitions,
    check_end,
    check_target,
    has_copy_settings,
    require_prefix,
    setting_changes,
    settings_during_copy,
)
from barnabas.jobs.errors import CopyDiffers, JobRefused
from barnabas.jobs.topic_state import TopicState
from barnabas.jobs.verification import Comparison, describe_difference
from barnabas.spark.planning import LogSpan
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation

FINAL = {
    "retention.ms": "1000",
    "cleanup.policy": "delete",
    "segment.ms": "5",
    "message.timestamp.before.max.ms": "10",
}


def state(*spans: tuple[int, int], **settings: str) -> TopicState:
    found = tuple(LogSpan(*span) for span in spans)
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return TopicState(name="copy", id=UUID(int=1), settings=names, spans=found)


def test_topic_keeps_all_records_during_the_copy() -> None:
    assert settings_during_copy(FINAL) == {**COPY_SETTINGS, "segment.ms": "5"}


def test_final_settings_replace_those_of_the_copy() -> None:
    changes = setting_changes(settings_during_copy(FINAL), FINAL)
    deleted = {each.name for each in changes if each.operation is ConfigOperation.DELETE}
    assert deleted == COPY_SETTINGS.keys() - FINAL.keys()
    assert [each for each in changes if each.name not in deleted] == [
        ConfigChange("message.timestamp.before.max.ms", "10"),
        ConfigChange("retention.ms", "1000"),
    ]
    assert setting_changes(COPY_SETTINGS, COPY_SETTINGS) == []


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (state((0, 1)), "topic copy has 1 partitions, but the copy needs 2; delete topic copy"),
        (state((0, 0), (0, 0), message_timestamp_type="LogAppendTime"), "replaces timestamps"),
        (state((0, 1), (3, 4)), "copy-1 begins at offset 3: records were deleted from it"),
    ],
)
def test_unsuitable_topic_is_refused(found: TopicState, why: str) -> None:
    with pytest.raises(JobRefused, match=why):
        check_target(found, NewCopy(name="copy", partition_count=2, settings={}), {})


def test_existing_topic_needs_the_chosen_settings() -> None:
    new = NewCopy(name="copy", partition_count=1, settings=FINAL, chosen={"retention.ms": "1000"})
    check_target(state((0, 0), retention_ms="1000"), new, {})
    with pytest.raises(
        JobRefused, match=r"topic copy exists, and does not have retention\.ms=1000"
    ):
        check_target(state((0, 0)), new, {})
    # The job created this topic, and will set them at its end.
    created = state((0, 5))
    check_target(replace(created, settings=settings_during_copy(FINAL)), new, {})


def test_job_completes_its_topic_although_final_settings_have_changed() -> None:
    during = settings_during_copy({"segment.ms": "5"})
    assert has_copy_settings(replace(state(), settings=during))
    assert not has_copy_settings(state(retention_ms="-1"))
    changes = setting_changes(during, {"segment.ms": "6", "retention.ms": "7"})
    assert {each.name for each in changes} == {*COPY_SETTINGS, "segment.ms"}


def test_topic_that_is_no_prefix_is_refused() -> None:
    require_prefix(Comparison(3, 3, None), "the archive", "copy")
    with pytest.raises(JobRefused, match="not the beginning of the archive: partition 0"):
        require_prefix(Comparison(3, 4, "partition 0 …"), "the archive", "copy")


def test_number_of_records_is_checked_after_the_copy() -> None:
    check_end(state((0, 3), (0, 0)), [CopiedPartition(0, 1, 2)], "the archive", {})
    check_end(state((2, 8), (0, 0)), [CopiedPartition(0, 1, 2)], "the archive", {0: 5})
    for span in ((0, 4), (1, 3)):
        with pytest.raises(CopyDiffers, match="copy-0 has the offsets"):
            check_end(state(span), [CopiedPartition(0, 1, 2)], "the archive", {})


def test_partitions_without_rows_have_a_result() -> None:
    found = all_partitions(3, [CopiedPartition(1, 2, 3)])
    assert [tuple(each) for each in found] == [(0, 0, 0), (1, 2, 3), (2, 0, 0)]


def test_first_difference_is_described() -> None:
    one, other = (1, 2, 3, 4), (1, 2, 3, 5)
    assert describe_difference(0, {8: [one]}, {8: [other]}).endswith("timestamp differs")
    assert describe_difference(0, {8: [one]}, {}).endswith("the record is missing in the copy")
    assert describe_difference(0, {}, {8: [one]}).endswith("that the source does not have")
    found = describe_difference(2, {7: [one], 8: [one]}, {7: [one], 8: [one, one]})
    assert found == "partition 2, position 8: the source has 1 records, the copy 2"
