"""Settings that limit the bytes of a reassignment."""

from __future__ import annotations

from barnabas.reassignment.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    remaining_list,
    throttled_brokers,
    to_move,
    topic_throttles,
)
from tests.unit.reassignment.layouts import tp


def test_sources_and_destinations_are_throttled() -> None:
    moves = {
        tp("a-0"): to_move([1, 2], [2, 3]),
        tp("a-10"): to_move([1], [1, 4]),
        tp("b-0"): to_move([1], [1]),
    }
    assert topic_throttles(moves) == {
        "a": {LEADER_REPLICAS: "0:1,0:2,10:1", FOLLOWER_REPLICAS: "0:3,10:4"},
        "b": {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: ""},
    }
    assert throttled_brokers(moves.values()) == [1, 2, 3, 4]


def test_list_shrinks_to_moving_partitions() -> None:
    assert remaining_list("0:1,1:2,10:3", moving=[1]) == "1:2"
    assert remaining_list("0:1", moving=[]) == ""
    assert remaining_list("*", moving=[]) == "*"
