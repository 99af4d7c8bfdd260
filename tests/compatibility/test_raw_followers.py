"""Requests to brokers that do not lead: they return the current leader, and followers serve fetches."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.produce import ProduceResponse
from support.waiting import eventually
from tests.compatibility.raw import (
    Raw,
    batch_of,
    fetch_request,
    produce_request,
    values_in,
    wait_until_known,
)

LEADER, FOLLOWER, STRANGER = 1, 2, 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as running:
        assert running.controller_id is not None
        wanted = CreatableTopic("t", -1, -1, (CreatableReplicaAssignment(0, (LEADER, FOLLOWER)),))
        with at(running, running.controller_id) as raw:
            created = raw.ask(CreateTopicsRequest(topics=(wanted,)), CreateTopicsResponse)
        assert created.topics[0].error_code == ErrorCode.NONE
        wait_until_known((each.address for each in running.brokers.values()), "t")
        yield running


def at(cluster: LocalCluster, broker: int) -> Raw:
    return Raw(cluster.brokers[broker].address)


@pytest.mark.parametrize("broker", [FOLLOWER, STRANGER])
def test_produce_to_non_leader_returns_current_leader(cluster: LocalCluster, broker: int) -> None:
    with at(cluster, broker) as raw:
        answer = raw.ask(produce_request("t", batch_of(b"a")), ProduceResponse)
        older = raw.ask(produce_request("t", batch_of(b"a")), ProduceResponse, version=9)
    refused = answer.responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader == (LEADER, 0)
    (endpoint,) = answer.node_endpoints
    assert f"{endpoint.host}:{endpoint.port}" == cluster.brokers[LEADER].address
    assert older.responses[0].partition_responses[0].error_code == refused.error_code


def test_fetch_from_non_replica_returns_current_leader(cluster: LocalCluster) -> None:
    with at(cluster, STRANGER) as raw:
        request = fetch_request("t", {0: 0}, topic_id=raw.topic_id("t"))
        answer = raw.ask(request, FetchResponse)
    refused = answer.responses[0].partitions[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader == (LEADER, 0)
    assert [endpoint.node_id for endpoint in answer.node_endpoints] == [LEADER]


def test_consumer_reads_from_follower_up_to_high_watermark(cluster: LocalCluster) -> None:
    with at(cluster, LEADER) as leader, at(cluster, FOLLOWER) as follower:
        refused = follower.fetch("t", 0, version=10)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        end = leader.produce("t", batch_of(b"one")).base_offset + 1
        eventually(
            lambda: follower.fetch("t", 0, version=11).high_watermark == end,
            "the follower learns of the high watermark",
        )
        assert values_in(follower.fetch("t", end - 1)) == [b"one"]
        beyond = follower.fetch("t", end + 1)
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_waiting_fetch_at_follower_gets_new_records(cluster: LocalCluster) -> None:
    with at(cluster, LEADER) as leader, at(cluster, FOLLOWER) as follower:
        end = leader.produce("t", batch_of(b"before")).base_offset + 1
        eventually(
            lambda: follower.fetch("t", end).error_code == ErrorCode.NONE, "the follower caught up"
        )
        began = time.monotonic()
        waiting = fetch_request("t", {0: end}, max_wait_ms=15_000)
        ticket = follower.begin(waiting, 12)
        leader.produce("t", batch_of(b"after"))
        answer = follower.answer(FetchResponse, *ticket)
        assert time.monotonic() - began < 10
        assert values_in(answer.responses[0].partitions[0]) == [b"after"]
