"""Transaction coordinator: answers, appends, markers, timeouts and expiry. The log is a list that
accepts or rejects appends; markers go to a list.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from barnabas.config.load import load_broker_config
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.store import partition_of
from barnabas.model import TopicPartition
from barnabas.transactions.coordinator import TransactionCoordinator
from barnabas.transactions.coordinator_checks import (
    coordinated_transactions,
    expire_transactional_ids,
)
from barnabas.transactions.marker_channels import MarkerChannels
from barnabas.transactions.markers import MarkerEntry
from barnabas.transactions.records import read_transaction, read_transaction_key
from barnabas.transactions.store import TransactionStore
from barnabas.transactions.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    TransactionMetadata,
    TransactionState,
)
from barnabas.transactions.transaction_events import ProducerIdentity, TransactionAnswer
from tests.unit.replication.nodes import eventually

PARTITIONS = 4
EPOCH = 7
NOW_MS = 1_700_000_000_000
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NONE = ErrorCode.NONE


class Clock:
    def __init__(self) -> None:
        self.time_ms = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms


class ListLog:
    """Log in memory. `refusals` are raised by the next appends, `gate` delays them."""

    def __init__(self) -> None:
        self.metadata: Any = None
        self.led = dict.fromkeys(range(PARTITIONS), EPOCH)
        self.loading: dict[int, None] = {}
        self.records: list[tuple[int, bytes, bytes | None]] = []
        self.refusals: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def partition_for(self, transactional_id: str) -> int:
        return partition_of(transactional_id, PARTITIONS)

    def is_led(self, partition: int) -> bool:
        return partition in self.led

    async def append(
        self, partition: int, records: Sequence[tuple[bytes, bytes | None]], timeout_s: float
    ) -> None:
        await self.gate.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        self.records += [(partition, key, value) for key, value in records]

    def append_unacknowledged(
        self, partition: int, records: Sequence[tuple[bytes, bytes | None]]
    ) -> ErrorCode:
        if self.refusals:
            refusal = self.refusals.pop(0)
            assert isinstance(refusal, ApiError)
            return refusal.code
        self.records += [(partition, key, value) for key, value in records]
        return ErrorCode.NONE

    def append_with_next(self, partition: int, record: tuple[bytes, bytes | None]) -> None:
        self.records.append((partition, *record))

    def drop_deferred(self, partition: int) -> None:
        pass

    def states(self, transactional_id: str = "app") -> list[TransactionState | None]:
        return [
            None if value is None else read_transaction(value).state
            for _, key, value in self.records
            if read_transaction_key(key) == transactional_id
        ]


class MarkerList:
    def __init__(self) -> None:
        self.entries: list[MarkerEntry] = []

    def send(self, entry: MarkerEntry) -> None:
        self.entries.append(entry)

    async def stop(self) -> None:
        pass


class Harness:
    def __init__(self, **settings: str) -> None:
        self.log = ListLog()
        self.clock = Clock()
        self.markers = MarkerList()
        config, _ = load_broker_config(settings)
        self.coordinator = TransactionCoordinator(
            config=config,
            store=cast(TransactionStore, self.log),
            clock=self.clock,
            network=cast(Any, None),
        )
        self.coordinator.channels = cast(MarkerChannels, self.markers)
        self.last_id = 999

    async def take_producer_id(self) -> int:
        await asyncio.sleep(0)
        self.last_id += 1
        return self.last_id

    async def init(
        self,
        transactional_id: str = "app",
        expected: ProducerIdentity | None = None,
        timeout_ms: int = 60_000,
    ) -> TransactionAnswer:
        return await self.coordinator.init_producer_id(
            transactional_id,
            expected,
            timeout_ms=timeout_ms,
            take_producer_id=self.take_producer_id,
        )

    async def begin(self, *partitions: TopicPartition) -> ProducerIdentity:
        """Start a transaction of the transactional id `app`."""
        _, producer_id, epoch = await self.init()
        producer = ProducerIdentity(producer_id, epoch)
        assert await self.coordinator.add_partitions("app", producer, partitions) is NONE
        return producer

    async def finish_markers(self) -> None:
        """Report the markers as written, and wait until the transaction is complete."""
        entry = self.markers.entries.pop()
        self.coordinator.markers_written(entry.transaction, entry.partitions)
        await eventually(lambda: entry.transaction.pending is None)

    @property
    def app(self) -> Transaction:
        return self.coordinator.transactions["app"]


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    made = Harness()
    yield made
    await made.coordinator.stop()


async def test_transaction_from_start_to_end(harness: Harness) -> None:
    producer = await harness.begin(P0, P1)
    assert producer == ProducerIdentity(1000, 0)
    assert await harness.coordinator.end("app", producer, is_commit=True) is NONE
    (entry,) = harness.markers.entries
    assert entry == MarkerEntry(harness.app, producer, True, EPOCH, frozenset([P0, P1]))
    assert harness.app.state is PREPARE_COMMIT
    await harness.finish_markers()
    assert harness.log.states() == [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]
    assert {partition for partition, _, _ in harness.log.records} == {
        partition_of("app", PARTITIONS)
    }


async def test_ids_are_not_shared(harness: Harness) -> None:
    assert await harness.init("app") == TransactionAnswer(NONE, 1000, 0)
    assert await harness.init("other") == TransactionAnswer(NONE, 1001, 0)
    assert await harness.init("app") == TransactionAnswer(NONE, 1000, 1)


async def test_concurrent_first_inits_use_one_producer_id(harness: Harness) -> None:
    harness.log.gate.clear()
    first = asyncio.ensure_future(harness.init())
    second = asyncio.ensure_future(harness.init())
    assert await second == TransactionAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
    harness.log.gate.set()
    assert await first == TransactionAnswer(NONE, 1000, 0)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
async def test_invalid_timeout(harness: Harness, timeout_ms: int) -> None:
    answer = await harness.init(timeout_ms=timeout_ms)
    assert answer == TransactionAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert await harness.init(timeout_ms=900_000) == TransactionAnswer(NONE, 1000, 0)


async def all_codes(harness: Harness, transactional_id: str = "app") -> set[ErrorCode]:
    """Return the error codes of all requests but InitProducerId."""
    coordinator, producer = harness.coordinator, ProducerIdentity(1000, 0)
    return {
        await coordinator.add_partitions(transactional_id, producer, [P0]),
        await coordinator.end(transactional_id, producer, is_commit=True),
        coordinator.verify_partitions(transactional_id, producer, [P0])[P0],
    }


async def test_empty_id_is_invalid(harness: Harness) -> None:
    assert (await harness.init("")).code is ErrorCode.INVALID_REQUEST
    assert await all_codes(harness, "") == {ErrorCode.INVALID_REQUEST}


async def test_unknown_id(harness: Harness) -> None:
    assert await all_codes(harness) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


async def test_loading_partition(harness: Harness) -> None:
    harness.log.loading[partition_of("app", PARTITIONS)] = None
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await harness.init()).code is code
    assert await all_codes(harness) == {code}


async def test_other_coordinator(harness: Harness) -> None:
    await harness.init()
    del harness.log.led[partition_of("app", PARTITIONS)]
    assert (await harness.init()).code is ErrorCode.NOT_COORDINATOR
    assert await all_codes(harness) == {ErrorCode.NOT_COORDINATOR}


async def test_stopping_broker(harness: Harness) -> None:
    await harness.coordinator.stop()
    assert (await harness.init()).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await all_codes(harness) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def test_no_producer_id_available(harness: Harness) -> None:
    async def fail() -> int:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    answer = await harness.coordinator.init_producer_id(
        "app", None, timeout_ms=1000, take_producer_id=fail
    )
    assert answer == TransactionAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert not harness.coordinator.transactions


async def test_exhausted_epoch_takes_a_new_producer_id(harness: Harness) -> None:
    await harness.init()
    harness.app.metadata = TransactionMetadata(
        producer_id=1000, producer_epoch=32766, timeout_ms=1000, update_ms=NOW_MS
    )
    assert await harness.init() == TransactionAnswer(NONE, 1001, 0)


async def test_failed_append_is_answered_and_can_be_retried(harness: Harness) -> None:
    producer = await harness.begin(P0)
    harness.log.refusals = [ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE), RuntimeError("bug")]
    end = harness.coordinator.end
    assert await end("app", producer, is_commit=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await end("app", producer, is_commit=True) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not harness.markers.entries
    assert await end("app", producer, is_commit=True) is NONE


@pytest.mark.parametrize(
    "refusal", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
)
async def test_completion_is_retried_until_it_is_stored(
    harness: Harness, refusal: ErrorCode
) -> None:
    """NOT_COORDINATOR is also the code of a full disk."""
    producer = await harness.begin(P0)
    await harness.coordinator.end("app", producer, is_commit=False)
    harness.log.refusals = [ApiError(refusal)] * 3
    await harness.finish_markers()
    assert harness.app.state is COMPLETE_ABORT
    assert not harness.log.refusals


async def test_lost_leadership_during_an_append(harness: Harness) -> None:
    """The record may be in the log. The next coordinator decides, and this one sends no markers."""
    producer = await harness.begin(P0)
    harness.log.gate.clear()
    ending = asyncio.ensure_future(harness.coordinator.end("app", producer, is_commit=True))
    await asyncio.sleep(0)
    harness.coordinator.drop_partition(partition_of("app", PARTITIONS))
    harness.log.gate.set()
    assert await ending is ErrorCode.NOT_COORDINATOR
    assert not harness.markers.entries
    assert not harness.coordinator.transactions


async def test_lost_leadership_during_the_completion(harness: Harness) -> None:
    producer = await harness.begin(P0)
    await harness.coordinator.end("app", producer, is_commit=True)
    entry = harness.markers.entries.pop()
    harness.log.refusals.append(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    harness.coordinator.markers_written(entry.transaction, entry.partitions)
    harness.coordinator.drop_partition(partition_of("app", PARTITIONS))
    await eventually(lambda: not harness.coordinator.tasks.running)
    assert harness.log.states()[-1] is PREPARE_COMMIT


async def test_next_transaction_waits_until_the_last_one_is_complete(harness: Harness) -> None:
    producer = await harness.begin(P0)
    await harness.coordinator.end("app", producer, is_commit=True)
    added = asyncio.ensure_future(harness.coordinator.add_partitions("app", producer, [P1]))
    await eventually(lambda: bool(harness.coordinator.completions))
    assert not added.done()
    await harness.finish_markers()
    assert await added is NONE
    assert harness.log.states()[-3:] == [PREPARE_COMMIT, COMPLETE_COMMIT, ONGOING]
    assert not harness.coordinator.completions


@pytest.mark.parametrize("request_name", ["init", "add"])
async def test_waiting_for_completion_is_bounded(harness: Harness, request_name: str) -> None:
    producer = await harness.begin(P0)
    await harness.coordinator.end("app", producer, is_commit=True)
    if request_name == "init":
        code = (await harness.init()).code
    else:
        code = await harness.coordinator.add_partitions("app", producer, [P1])
    assert code is ErrorCode.CONCURRENT_TRANSACTIONS


async def test_waiting_request_learns_of_lost_leadership(harness: Harness) -> None:
    producer = await harness.begin(P0)
    await harness.coordinator.end("app", producer, is_commit=True)
    added = asyncio.ensure_future(harness.coordinator.add_partitions("app", producer, [P1]))
    await eventually(lambda: bool(harness.coordinator.completions))
    partition = partition_of("app", PARTITIONS)
    del harness.log.led[partition]
    harness.coordinator.drop_partition(partition)
    assert await added is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("state", list(TransactionState))
async def test_loaded_transaction_continues(harness: Harness, state: TransactionState) -> None:
    metadata = TransactionMetadata(
        producer_id=5,
        producer_epoch=3,
        timeout_ms=1000,
        state=state,
        partitions=frozenset() if state is EMPTY else frozenset([P0]),
        update_ms=NOW_MS,
    )
    transaction = Transaction(transactional_id="app", metadata=metadata)
    index = partition_of("app", PARTITIONS)
    harness.coordinator.add_loaded_transaction(transaction, index)
    harness.coordinator.resume_partition((index + 1) % PARTITIONS)
    assert not harness.markers.entries
    harness.coordinator.resume_partition(index)
    if state in (PREPARE_COMMIT, PREPARE_ABORT):
        await harness.finish_markers()
        is_commit = state is PREPARE_COMMIT
        assert harness.app.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
    else:
        assert not harness.markers.entries


# ---- timeouts and expiry


async def test_timed_out_transaction_is_aborted_and_its_producer_fenced(harness: Harness) -> None:
    producer = await harness.begin(P0)
    harness.clock.time_ms += 60_000
    assert not harness.coordinator.abort_if_timed_out(harness.app)
    harness.clock.time_ms += 1
    async for transaction in coordinated_transactions(harness.coordinator):
        assert harness.coordinator.abort_if_timed_out(transaction)
    await eventually(lambda: bool(harness.markers.entries))
    (entry,) = harness.markers.entries
    assert entry.producer == ProducerIdentity(1000, 1)
    assert not entry.is_commit
    code = await harness.coordinator.end("app", producer, is_commit=True)
    assert code is ErrorCode.PRODUCER_FENCED
    await harness.finish_markers()
    assert await harness.init() == TransactionAnswer(NONE, 1000, 2)


async def test_other_coordinator_aborts_timed_out_transactions(harness: Harness) -> None:
    await harness.begin(P0)
    harness.log.led.clear()
    found = [each async for each in coordinated_transactions(harness.coordinator)]
    assert found == []


async def test_unused_ids_expire_with_a_tombstone(harness: Harness) -> None:
    await harness.init("old")
    harness.clock.time_ms += 604_800_000
    await harness.init("new")
    await expire_transactional_ids(harness.coordinator)
    assert list(harness.coordinator.transactions) == ["new"]
    assert harness.log.states("old") == [EMPTY, None]
    assert await harness.init("old") == TransactionAnswer(NONE, 1002, 0)


async def test_failed_tombstone_keeps_the_ids(harness: Harness) -> None:
    await harness.init()
    harness.clock.time_ms += 604_800_000
    harness.log.refusals = [ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    await expire_transactional_ids(harness.coordinator)
    assert await harness.init() == TransactionAnswer(NONE, 1000, 1)
