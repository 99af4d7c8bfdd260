"""Model test of a consumer with a fetch session: no wake-up is lost.

The consumer sends its next fetch at any time, also while the leader still holds an earlier fetch
whose connection the consumer has abandoned. Two invariants hold after every step: a sleeping
partition has a watcher that wakes it, and the latest fetch does not wait while there are records to
read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.broker.handlers import fetch
from barnabas.broker.handlers.fetch import FetchResult
from barnabas.errors import ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.unit.replication.nodes import Node, Nodes, create_connection

PARTITIONS = 3
HEADER = RequestHeader(1, 17, 0, None)
partitions = st.integers(0, PARTITIONS - 1)


class SkippingLoop(asyncio.SelectorEventLoop):
    """Event loop whose time can be advanced."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s


class FetchModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.loop = SkippingLoop()
        self.nodes = Nodes(Node(1, barnabas_scrub_bytes_per_second=0))
        self.epoch = 0
        self.run(self.nodes.start())
        self.run(self.nodes.lead(1, partitions=PARTITIONS))
        self.run(self.nodes.send_metadata(partitions=PARTITIONS))
        self.forget_session()
        self.positions = [0] * PARTITIONS
        self.waiting: asyncio.Future[FetchResult] | None = None
        self.abandoned: list[asyncio.Future[FetchResult]] = []
        self.batch_bytes = 1

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def turn(self) -> None:
        """Let the broker run everything that is ready."""
        for _ in range(4):
            self.run(asyncio.sleep(0))
        if self.waiting is not None and self.waiting.done():
            waiting, self.waiting = self.waiting, None
            self.take(waiting.result())

    @property
    def node(self) -> Node:
        return self.nodes[1]

    # ---- the consumer

    def forget_session(self) -> None:
        self.session_id = self.session_epoch = 0
        self.changed_partitions = set(range(PARTITIONS))

    def take(self, answer: FetchResult) -> None:
        if answer.error_code:
            self.forget_session()
            return
        self.session_id = answer.session_id
        self.session_epoch += 1
        for topic in answer.topics:
            for data in topic.partitions:
                if data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
                    self.changed_partitions.add(data.partition_index)
                elif data.size:
                    self.positions[data.partition_index] += data.size // self.batch_bytes
                    self.changed_partitions.add(data.partition_index)

    def end(self, index: int) -> int:
        return self.node.partition(index).log.high_watermark

    @rule(between=st.lists(st.none() | partitions, max_size=8))
    def fetch(self, between: list[int | None]) -> None:
        """Send the next fetch. The connection of a waiting fetch is abandoned, which the broker
        does not notice.

        Records are appended between the turns of a long fetch.
        """
        if self.waiting is not None:
            self.abandoned.append(self.waiting)
            self.waiting = None
            self.session_epoch += 1
        named = tuple(
            FetchPartition(
                partition=index,
                current_leader_epoch=self.epoch,
                fetch_offset=self.positions[index],
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=1 << 20,
            )
            for index in sorted(self.changed_partitions)
        )
        request = FetchRequest(
            max_wait_ms=30_000,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=(FetchTopic(topic_id=self.nodes.topic_id, partitions=named),) if named else (),
        )
        self.changed_partitions = set()

        async def ask() -> FetchResult | Awaitable[FetchResult]:
            work = fetch.handle(self.node.context, request, HEADER, create_connection())
            appends = iter(between)
            try:
                while True:
                    next(work)
                    if (index := next(appends, None)) is not None:
                        self.append_one(index)
                    await asyncio.sleep(0)
            except StopIteration as end:
                return cast(FetchResult | Awaitable[FetchResult], end.value)

        # A future returned by a coroutine would be awaited, hence the list.
        answer = self.run(run_in_list(ask))[0]
        if isinstance(answer, FetchResult):
            self.take(answer)
        else:
            self.waiting = answer
        self.turn()

    @precondition(lambda self: self.waiting is not None)
    @rule()
    def disconnect(self) -> None:
        assert self.waiting is not None
        self.waiting.cancel()
        self.waiting = None
        self.forget_session()
        self.turn()

    @precondition(lambda self: self.abandoned)
    @rule(data=st.data())
    def notice_given_up_connection(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.abandoned) - 1))
        self.abandoned.pop(at).cancel()
        self.turn()

    @rule(seconds=st.integers(5, 40))
    def wait(self, seconds: int) -> None:
        """Advance the clock. Earlier fetches time out before later ones."""
        self.loop.skipped_s += seconds
        self.turn()

    # ---- the broker

    @rule(index=partitions, count=st.integers(1, 3))
    def append(self, index: int, count: int) -> None:
        for _ in range(count):
            self.append_one(index)
        self.turn()

    def append_one(self, index: int) -> None:
        """Append one batch. All batches have the same size, so that the consumer can count them."""
        before = self.node.partition(index).log.size_bytes
        self.node.append(b"x", index=index)
        self.batch_bytes = self.node.partition(index).log.size_bytes - before

    @rule(index=partitions)
    def notify_without_new_records(self, index: int) -> None:
        """Compaction, retention and integrity checks do so."""
        self.node.partition(index).notify()
        self.turn()

    @rule()
    def elect_leader(self) -> None:
        self.epoch += 1
        self.run(self.nodes.lead(1, epoch=self.epoch, partitions=PARTITIONS))
        self.turn()

    # ---- invariants

    @invariant()
    def sleeping_partition_has_watcher(self) -> None:
        for session in self.node.context.sessions.sessions.values():
            for entry in session.partitions.values():
                if entry in session.awake:
                    continue
                partition = self.node.partition(entry.index)
                assert entry.wake in entry.watchers_of(partition)
                assert entry.on_wake == session.on_wake

    @invariant()
    def fetch_does_not_wait_for_available_records(self) -> None:
        if self.waiting is not None:
            assert self.positions == [self.end(index) for index in range(PARTITIONS)]

    @invariant()
    def no_watcher_leaks(self) -> None:
        """A partition has at most one watcher per session."""
        sessions = len(self.node.context.sessions.sessions)
        for index in range(PARTITIONS):
            assert len(self.node.partition(index).watchers) <= sessions

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            for future in [*self.abandoned, *([self.waiting] if self.waiting else [])]:
                future.cancel()
            self.run(self.nodes.stop())
            self.loop.close()


async def run_in_list(ask: Any) -> list[Any]:
    return [await ask()]


TestFetchModel = FetchModel.TestCase
TestFetchModel.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


class LongFetchModel(FetchModel):
    """Every fetch takes several turns of the loop and looks only at changed partitions again."""

    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(fetch, "PARTITIONS_PER_TURN", 1)
        self.patch.setattr(fetch, "FEW", 0)
        super().begin()

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "patch"):
            self.patch.undo()


TestLongFetchModel = LongFetchModel.TestCase
TestLongFetchModel.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
