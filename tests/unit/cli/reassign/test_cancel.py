"""Selection and output of `reassign cancel`."""

from __future__ import annotations

import pytest

from barnabas.cli.reassign.cancel import cancel_document, cancel_text, select_reassignments
from barnabas.client.reassignment_admin import OngoingReassignment
from barnabas.errors import ApiError, ConfigError, ErrorCode
from tests.unit.reassignment.layouts import tp

MOVING = OngoingReassignment(replicas=(3, 2, 1), adding=(3,), removing=(1,))
ONGOING = dict.fromkeys([tp("a-0"), tp("a-1"), tp("b-0")], MOVING)


def test_topics_and_partitions_are_selected() -> None:
    assert list(select_reassignments(ONGOING, ["a"])) == [tp("a-0"), tp("a-1")]
    assert list(select_reassignments(ONGOING, ["b", "a:1"])) == [tp("a-1"), tp("b-0")]
    assert select_reassignments(ONGOING, []) == ONGOING


def test_partition_can_be_named_as_in_the_tables() -> None:
    ongoing = {tp("a-1"): MOVING, tp("a-1-0"): MOVING, tp("a-2"): MOVING}
    assert list(select_reassignments(ongoing, ["a-2"])) == [tp("a-2")]
    assert list(select_reassignments(ongoing, ["a-1"])) == [tp("a-1-0")], "a topic comes first"


def test_partition_that_does_not_move_is_an_error() -> None:
    with pytest.raises(ApiError) as caught:
        select_reassignments(ONGOING, ["a:7"])
    assert caught.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    with pytest.raises(ConfigError, match="is not TOPIC or TOPIC:PARTITION"):
        select_reassignments(ONGOING, ["a:x"])


def test_text_names_the_replicas_that_stay() -> None:
    error = ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "too late")
    document = cancel_document(
        ONGOING, {tp("a-0"): None, tp("a-1"): error, tp("b-0"): None}, ["topic a"], dry_run=False
    )
    assert cancel_text(document).split("\n") == [
        "cancelled a-0; replicas 2,1",
        "cannot cancel a-1: NO_REASSIGNMENT_IN_PROGRESS: too late",
        "cancelled b-0; replicas 2,1",
        "removed the throttle of topic a",
    ]
    assert cancel_text(cancel_document({}, {}, [], dry_run=False)) == (
        "no partition is moving: nothing to cancel"
    )
