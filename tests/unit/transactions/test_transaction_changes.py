"""Changes of transactional ids in the history."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.transactions.transaction_changes import TransactionClient
from barnabas.transactions.transaction_events import ProducerIdentity
from tests.unit.history.coordinator_events import CoordinatorEventList
from tests.unit.replication.nodes import eventually
from tests.unit.transactions.test_coordinator import EPOCH, P0, P1, Harness

NONE = ErrorCode.NONE


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    made = Harness()
    yield made
    await made.coordinator.stop()


@pytest.fixture
def found(harness: Harness) -> CoordinatorEventList:
    made = CoordinatorEventList()
    harness.coordinator.recorder = made.recorder
    return made


async def test_commits_and_aborts_of_the_producer_are_not_recorded(
    harness: Harness, found: CoordinatorEventList
) -> None:
    for is_commit in (True, False):
        producer = await harness.begin(P0)
        assert await harness.coordinator.end("app", producer, is_commit=is_commit) is NONE
        await harness.finish_markers()
    assert found.events == []


async def test_timeout_and_the_fenced_producer_are_recorded(
    harness: Harness, found: CoordinatorEventList
) -> None:
    producer = await harness.begin(P0, P1)
    harness.clock.time_ms += 60_001
    assert harness.coordinator.abort_if_timed_out(harness.app)
    await eventually(lambda: bool(harness.markers.entries))
    (event,) = found.events
    assert event["id"] == event["transactional_id"] == "app"
    assert (event["after"], event["coordinator_epoch"]) == ("aborted", EPOCH)
    assert (event["producer_id"], event["producer_epoch"]) == (1000, 0)
    assert (event["open_ms"], event["partitions"]) == (60_001, 2)
    assert event["why"] == "it was open for longer than its timeout, 60000 ms"
    for _ in range(3):  # a client may retry, but the event is recorded once
        code = await harness.coordinator.end("app", producer, is_commit=True)
        assert code is ErrorCode.PRODUCER_FENCED
    why = "EndTxn was rejected: the current epoch is 1"
    assert found.facts("after", "producer_epoch", "why")[1:] == [("fenced", 0, why)]


async def test_failed_abort_is_recorded_when_it_succeeds(
    harness: Harness, found: CoordinatorEventList
) -> None:
    await harness.begin(P0)
    harness.clock.time_ms += 60_001
    harness.log.refusals = [ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert harness.coordinator.abort_if_timed_out(harness.app)
    await eventually(lambda: harness.app.pending is None)
    assert found.events == []
    assert harness.coordinator.abort_if_timed_out(harness.app)
    await eventually(lambda: bool(found.events))
    assert found.facts("after") == [("aborted",)]


async def test_abort_by_init_names_the_client(
    harness: Harness, found: CoordinatorEventList
) -> None:
    await harness.begin(P0)
    answer = await harness.coordinator.init_producer_id(
        "app",
        None,
        timeout_ms=60_000,
        take_producer_id=harness.take_producer_id,
        client=TransactionClient("loader", "10.0.0.7"),
    )
    assert answer.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert found.facts("after", "why", "by", "host") == [
        ("aborted", "InitProducerId", "loader", "10.0.0.7")
    ]
    answer = await harness.init(expected=ProducerIdentity(999, 0))
    assert answer.code is ErrorCode.CONCURRENT_TRANSACTIONS
    await harness.finish_markers()
    answer = await harness.init(expected=ProducerIdentity(999, 0))
    assert answer.code is ErrorCode.PRODUCER_FENCED
    assert found.facts("after", "producer_id", "why")[1:] == [
        ("fenced", 999, "InitProducerId was rejected: the current producer id is 1000")
    ]


async def test_new_coordinator_records_open_transactions(
    harness: Harness, found: CoordinatorEventList
) -> None:
    producer = await harness.begin(P0)
    partition = harness.coordinator.partitions["app"]
    harness.coordinator.resume_partition(partition)
    assert await harness.coordinator.end("app", producer, is_commit=True) is NONE
    harness.coordinator.resume_partition(partition)
    await harness.finish_markers()
    harness.coordinator.resume_partition(partition)
    assert found.facts("after", "partitions", "why") == [
        ("taken over", 1, "its producer may continue"),
        ("taken over", 1, "the commit was decided, and is being completed"),
    ]


async def test_expired_id_is_recorded(harness: Harness, found: CoordinatorEventList) -> None:
    await harness.init()
    harness.clock.time_ms += harness.coordinator.config.transactional_id_expiration_ms
    assert await harness.coordinator.expire([harness.app]) == 1
    assert found.facts("after", "producer_id") == [("expired", 1000)]


async def test_nothing_is_recorded_without_a_recorder(harness: Harness) -> None:
    await harness.begin(P0)
    harness.clock.time_ms += 60_001
    assert harness.coordinator.abort_if_timed_out(harness.app)
    await eventually(lambda: bool(harness.markers.entries))
