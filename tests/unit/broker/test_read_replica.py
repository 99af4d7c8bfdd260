from __future__ import annotations

from barnabas.broker.fetch_reader import ReadCandidate, select_read_replica
from barnabas.model import BrokerId


def follower(
    broker: int, rack: str | None, end: int = 10, caught_up_ms: float = 0.0
) -> ReadCandidate:
    return ReadCandidate(BrokerId(broker), rack, end, caught_up_ms)


def test_consumer_is_sent_to_follower_in_its_rack() -> None:
    assert select_read_replica("b", "a", [follower(2, "b"), follower(3, "c")]) == 2


def test_consumer_without_rack_reads_from_leader() -> None:
    assert select_read_replica("", "a", [follower(2, ""), follower(3, None)]) is None


def test_leader_serves_its_own_rack() -> None:
    assert select_read_replica("a", "a", [follower(2, "a", end=99)]) is None


def test_leader_serves_rack_without_follower() -> None:
    assert select_read_replica("b", "a", [follower(2, "c"), follower(3, None)]) is None
    assert select_read_replica("b", "a", []) is None
    assert select_read_replica("b", None, [follower(2, "c")]) is None


def test_follower_with_highest_offset_is_chosen() -> None:
    near = [follower(2, "b", end=5), follower(3, "b", end=7), follower(4, "b", end=6)]
    assert select_read_replica("b", "a", near) == 3


def test_ties_go_to_latest_caught_up_then_highest_id() -> None:
    assert (
        select_read_replica("b", "a", [follower(2, "b", 5, 20.0), follower(3, "b", 5, 10.0)]) == 2
    )
    assert (
        select_read_replica("b", "a", [follower(2, "b", 5, 10.0), follower(3, "b", 5, 10.0)]) == 3
    )
