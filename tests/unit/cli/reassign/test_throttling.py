"""Throttles that can be removed, and their text."""

from __future__ import annotations

import pytest

from barnabas.cli.reassign.throttling import (
    ThrottleState,
    finished_throttles,
    raise_first_error,
    removed_text,
    throttle_document,
    throttle_text,
)
from barnabas.client.config_admin import ConfigChange, ConfigResource
from barnabas.client.reassignment_admin import OngoingReassignment
from barnabas.errors import ApiError, ErrorCode
from barnabas.reassignment.throttles import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation
from tests.unit.reassignment.layouts import tp

MOVING = OngoingReassignment(replicas=(3, 1), adding=(3,), removing=(1,))
RATES = {LEADER_RATE: "1000000", FOLLOWER_RATE: "1000000"}
STATE = ThrottleState(
    topics={"a": {LEADER_REPLICAS: "0:1,1:1", FOLLOWER_REPLICAS: "0:3,1:3"}},
    brokers={1: RATES, 3: RATES},
)


def topic(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name)


def deleted(*names: str) -> list[ConfigChange]:
    return [ConfigChange(name, None, ConfigOperation.DELETE) for name in names]


def test_everything_is_removed_after_the_last_move() -> None:
    changes, removed = finished_throttles(STATE, {})
    assert changes == {
        topic("a"): deleted(LEADER_REPLICAS, FOLLOWER_REPLICAS),
        ConfigResource(ResourceType.BROKER, "1"): deleted(LEADER_RATE, FOLLOWER_RATE),
        ConfigResource(ResourceType.BROKER, "3"): deleted(LEADER_RATE, FOLLOWER_RATE),
    }
    assert removed_text(removed) == "removed the throttle of topic a and brokers 1,3"


def test_partitions_that_move_stay_throttled() -> None:
    changes, removed = finished_throttles(STATE, {tp("a-1"): MOVING})
    assert removed == [], "the topic is still throttled"
    assert changes == {
        topic("a"): [ConfigChange(LEADER_REPLICAS, "1:1"), ConfigChange(FOLLOWER_REPLICAS, "1:3")]
    }


def test_nothing_changes_while_all_partitions_move() -> None:
    assert finished_throttles(STATE, {tp("a-0"): MOVING, tp("a-1"): MOVING}) == ({}, [])


def test_rates_stay_while_another_topic_moves() -> None:
    changes, removed = finished_throttles(STATE, {tp("b-0"): MOVING})
    assert list(changes) == [topic("a")]
    assert removed == ["topic a"]


def test_throttle_of_all_replicas_is_kept() -> None:
    state = ThrottleState(topics={"a": {LEADER_REPLICAS: "*"}}, brokers={1: RATES})
    assert finished_throttles(state, {}) == ({}, [])
    assert throttle_text(throttle_document(state)) == (
        "throttle: 1.0 MB/s on broker 1 for 1 topic (all replicas: not set by a reassignment)"
    )


def test_rates_of_an_own_list_are_restored() -> None:
    own = {1: {LEADER_RATE: "500"}}
    state = ThrottleState(
        topics={"b": {LEADER_REPLICAS: "*"}, **STATE.topics}, brokers=STATE.brokers
    )
    changes, removed = finished_throttles(state, {}, own)
    assert changes == {
        topic("a"): deleted(LEADER_REPLICAS, FOLLOWER_REPLICAS),
        ConfigResource(ResourceType.BROKER, "1"): [
            ConfigChange(LEADER_RATE, "500"),
            *deleted(FOLLOWER_RATE),
        ],
        ConfigResource(ResourceType.BROKER, "3"): deleted(LEADER_RATE, FOLLOWER_RATE),
    }
    assert removed == ["topic a"]
    assert finished_throttles(state, {})[1] == ["topic a"], "unknown rates stay"


def test_text_without_throttle_is_empty() -> None:
    assert throttle_text(throttle_document(ThrottleState(topics={}, brokers={}))) == ""
    assert removed_text([]) == ""


def test_rejected_throttle_is_an_error_unless_its_topic_was_deleted() -> None:
    deleted_topic = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic a")
    raise_first_error({topic("a"): deleted_topic, topic("b"): None})
    broker = ConfigResource(ResourceType.BROKER, "1")
    rejected = ApiError(ErrorCode.INVALID_CONFIG, "must be at least 0")
    with pytest.raises(ApiError) as caught:
        raise_first_error({topic("a"): deleted_topic, broker: rejected})
    assert str(caught.value) == "INVALID_CONFIG: throttle of broker 1: must be at least 0"
