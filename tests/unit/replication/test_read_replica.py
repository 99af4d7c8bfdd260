from __future__ import annotations

from barnabas.model import BrokerId
from barnabas.replication.read_replica import ReadCandidate, select_read_replica


def follower(
    broker: int, rack: str | None, end: int = 10, caught_up_ms: float = 0.0
) -> ReadCandidate:
    return ReadCandidate(BrokerId(broker), rack, end, caught_up_ms)


def test_a_consumer_is_sent_to_the_follower_in_its_rack() -> None:
    assert select_read_replica("b", "a", [follower(2, "b"), follower(3, "c")]) == 2


def test_who_names_no_rack_stays_with_the_leader() -> None:
    assert select_read_replica("", "a", [follower(2, ""), follower(3, None)]) is None


def test_the_leader_serves_its_own_rack() -> None:
    assert select_read_replica("a", "a", [follower(2, "a", end=99)]) is None


def test_without_a_follower_in_that_rack_the_leader_serves() -> None:
    assert select_read_replica("b", "a", [follower(2, "c"), follower(3, None)]) is None
    assert select_read_replica("b", "a", []) is None
    assert select_read_replica("b", None, [follower(2, "c")]) is None


def test_of_several_the_one_that_has_come_furthest_is_taken() -> None:
    near = [follower(2, "b", end=5), follower(3, "b", end=7), follower(4, "b", end=6)]
    assert select_read_replica("b", "a", near) == 3


def test_then_the_one_that_was_at_the_end_last_and_then_the_larger_id() -> None:
    assert (
        select_read_replica("b", "a", [follower(2, "b", 5, 20.0), follower(3, "b", 5, 10.0)]) == 2
    )
    assert (
        select_read_replica("b", "a", [follower(2, "b", 5, 10.0), follower(3, "b", 5, 10.0)]) == 3
    )
