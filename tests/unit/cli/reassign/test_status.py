"""Output of `reassign status`."""

from __future__ import annotations

from typing import Any

from barnabas.cli.reassign.status import seconds_left, status_text
from barnabas.cli.reassign.throttling import ThrottleState, throttle_document
from barnabas.reassignment.throttles import FOLLOWER_RATE, LEADER_REPLICAS

THROTTLES = ThrottleState(
    topics={"a": {LEADER_REPLICAS: "0:1"}},
    brokers={3: {FOLLOWER_RATE: "1000"}, 4: {FOLLOWER_RATE: "1000"}},
)


def row(adding: list[int], lag_bytes: int) -> dict[str, Any]:
    return {
        "topic": "a", "partition": 0, "from": [1], "to": adding, "adding": adding, "removing": [1],
        "copied_bytes": 0, "total_bytes": lag_bytes, "lag_bytes": lag_bytes, "waiting_for": "broker 3 to catch up",
    }  # fmt: skip


def document(
    *moving: dict[str, Any], throttles: ThrottleState, removed: list[str]
) -> dict[str, Any]:
    return {
        "moving": list(moving),
        "throttles": throttle_document(throttles),
        "seconds_left_at_throttle": seconds_left(list(moving), throttles),
        "throttles_removed": removed,
    }


def test_slowest_receiver_determines_the_time_left() -> None:
    assert seconds_left([row([3], 5_000), row([3, 4], 4_000)], THROTTLES) == 7.0
    assert seconds_left([row([5], 5_000)], THROTTLES) is None
    assert seconds_left([], THROTTLES) is None


def test_moving_partitions_and_throttle_are_shown() -> None:
    text = status_text(document(row([3], 65_000), throttles=THROTTLES, removed=[]))
    assert text.startswith("1 partition is moving\n\nPARTITION")
    assert "broker 3 to catch up" in text
    assert text.endswith("throttle: 1.0 KB/s on brokers 3,4 for 1 topic; 1 min 5 s or more left")


def test_removed_throttle_is_reported() -> None:
    none = ThrottleState(topics={}, brokers={})
    assert status_text(document(throttles=none, removed=["topic a", "brokers 3,4"])) == (
        "no partition is moving\nremoved the throttle of topic a and brokers 3,4"
    )
