"""Committed offsets survive repeated failures of the coordinator."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw

TOPIC = "orders"
SETTINGS = {"offsets.topic.num.partitions": 3, "controlled.shutdown.enable": False}
COMMITS_BETWEEN_KILLS = 10
POLL_INTERVAL_S = 0.01
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
KILLS = 2


@pytest.fixture
def three() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=SETTINGS) as running:
        assert running.controller_id is not None
        with Raw(running.brokers[running.controller_id].address) as raw:
            raw.create_topic(TOPIC)
        yield running


class Committer:
    """Commits one offset after the other, across coordinator failures."""

    def __init__(self, cluster: LocalCluster, group: str) -> None:
        self.cluster = cluster
        self.group = group
        self.acknowledged = -1
        self.is_over = threading.Event()
        self.raw: Raw | None = None
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                self.commit(self.acknowledged + 1)
            except OSError:
                self.leave()
        self.leave()

    def commit(self, offset: int) -> None:
        if self.raw is None:
            broker = self.coordinator()
            self.raw = None if broker is None else Raw(self.cluster.brokers[broker].address)
        if self.raw is None:
            time.sleep(0.02)
            return
        partition = OffsetCommitRequestPartition(0, offset)
        topics = (OffsetCommitRequestTopic(TOPIC, (partition,)),)
        request = OffsetCommitRequest(group_id=self.group, topics=topics)
        answer = self.raw.ask(request, OffsetCommitResponse)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code is ErrorCode.NONE:
            self.acknowledged = offset
        elif code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self.leave()

    def coordinator(self) -> int | None:
        """The coordinator as a running broker knows it."""
        request = FindCoordinatorRequest(coordinator_keys=(self.group,))
        for broker in self.cluster.brokers.values():
            if broker.is_running:
                with Raw(broker.address) as raw:
                    (found,) = raw.ask(request, FindCoordinatorResponse).coordinators
                    if not found.error_code and self.cluster.brokers[found.node_id].is_running:
                        return found.node_id
        return None

    def committed(self) -> int | None:
        """The committed offset; None if no coordinator is available."""
        try:
            broker = self.coordinator()
            if broker is None:
                return None
            with Raw(self.cluster.brokers[broker].address) as raw:
                request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(self.group),))
                (found,) = raw.ask(request, OffsetFetchResponse).groups
        except OSError:
            return None
        return None if found.error_code else found.topics[0].partitions[0].committed_offset

    def leave(self) -> None:
        if self.raw is not None:
            self.raw.close()
            self.raw = None


class OffsetChecker:
    """Fetches the committed offsets from every broker in a loop. Each answer must include all acknowledged commits."""

    def __init__(self, cluster: LocalCluster, committers: list[Committer]) -> None:
        self.cluster = cluster
        self.committers = committers
        self.is_over = threading.Event()
        self.answers = 0
        self.faults: list[str] = []
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.is_over.wait(POLL_INTERVAL_S):
            for broker in self.cluster.brokers.values():
                if broker.is_running:
                    with suppress(OSError), Raw(broker.address) as raw:
                        for each in self.committers:
                            self.check(raw, each)

    def check(self, raw: Raw, committer: Committer) -> None:
        acknowledged = committer.acknowledged
        topics = (OffsetFetchRequestTopic(TOPIC, (0,)),)
        group = OffsetFetchRequestGroup(committer.group, topics=topics)
        request = OffsetFetchRequest(groups=(group,), require_stable=True)
        (found,) = raw.ask(request, OffsetFetchResponse).groups
        if found.error_code:
            code = ErrorCode(found.error_code)
            if code not in RETRIABLE:
                self.faults.append(f"{committer.group}: {code.name}")
            return
        self.answers += 1
        committed = found.topics[0].partitions[0].committed_offset
        if committed < acknowledged:
            self.faults.append(
                f"{committer.group}: {committed}, but {acknowledged} was acknowledged"
            )


def test_coordinator_failures_lose_no_acknowledged_commits(three: LocalCluster) -> None:
    committers = [Committer(three, f"readers-{number}") for number in range(4)]
    checker = OffsetChecker(three, committers)
    for each in committers:
        each.thread.start()
    checker.thread.start()
    try:
        wait_for_commits(committers)
        for _ in range(KILLS):
            killed = coordinator_of(committers[0])
            three.brokers[killed].kill()
            wait_for_commits(committers)
            three.brokers[killed].start()
            wait_for_commits(committers)
    finally:
        for each in committers:
            each.is_over.set()
        checker.is_over.set()
        for each in committers:
            each.thread.join()
        checker.thread.join()
    assert checker.answers
    assert not checker.faults, checker.faults
    for each in committers:
        eventually(lambda each=each: each.committed() is not None, "a coordinator", 60.0)  # type: ignore[misc]
        found = each.committed()
        # The last commit may be stored without having been acknowledged.
        assert found in (each.acknowledged, each.acknowledged + 1)


def coordinator_of(committer: Committer) -> int:
    found: list[int | None] = []

    def is_known() -> bool:
        found.append(committer.coordinator())
        return found[-1] is not None

    eventually(is_known, "a coordinator", 60.0)
    assert found[-1] is not None
    return found[-1]


def wait_for_commits(committers: list[Committer]) -> None:
    for each in committers:
        wanted = each.acknowledged + COMMITS_BETWEEN_KILLS
        eventually(
            lambda each=each, wanted=wanted: each.acknowledged >= wanted,  # type: ignore[misc]
            f"{each.group} is acknowledged",
            60.0,
        )
