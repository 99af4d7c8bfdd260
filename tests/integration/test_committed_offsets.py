"""What was committed stays committed, while one coordinator after the other is killed."""

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
LOOK_S = 0.01
NOT_NOW = (
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
    """A reader that goes forward one record at a time, whatever becomes of its coordinator."""

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
        """As a living broker knows it."""
        request = FindCoordinatorRequest(coordinator_keys=(self.group,))
        for broker in self.cluster.brokers.values():
            if broker.is_running:
                with Raw(broker.address) as raw:
                    (found,) = raw.ask(request, FindCoordinatorResponse).coordinators
                    if not found.error_code and self.cluster.brokers[found.node_id].is_running:
                        return found.node_id
        return None

    def committed(self) -> int | None:
        """None: there is nobody now who could say."""
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


class Onlooker:
    """Asks every broker for what groups have committed, over and over: who answers knows all that is acknowledged."""

    def __init__(self, cluster: LocalCluster, committers: list[Committer]) -> None:
        self.cluster = cluster
        self.committers = committers
        self.is_over = threading.Event()
        self.answers = 0
        self.wrong: list[str] = []
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.is_over.wait(LOOK_S):
            for broker in self.cluster.brokers.values():
                if broker.is_running:
                    with suppress(OSError), Raw(broker.address) as raw:
                        for each in self.committers:
                            self.look(raw, each)

    def look(self, raw: Raw, committer: Committer) -> None:
        acknowledged = committer.acknowledged
        topics = (OffsetFetchRequestTopic(TOPIC, (0,)),)
        group = OffsetFetchRequestGroup(committer.group, topics=topics)
        request = OffsetFetchRequest(groups=(group,), require_stable=True)
        (found,) = raw.ask(request, OffsetFetchResponse).groups
        if found.error_code:
            code = ErrorCode(found.error_code)
            if code not in NOT_NOW:
                self.wrong.append(f"{committer.group}: {code.name}")
            return
        self.answers += 1
        told = found.topics[0].partitions[0].committed_offset
        if told < acknowledged:
            self.wrong.append(f"{committer.group}: {told} where {acknowledged} was acknowledged")


def test_no_acknowledged_commit_is_lost_with_its_coordinator(three: LocalCluster) -> None:
    committers = [Committer(three, f"readers-{number}") for number in range(4)]
    onlooker = Onlooker(three, committers)
    for each in committers:
        each.thread.start()
    onlooker.thread.start()
    try:
        go_on(committers)
        for _ in range(KILLS):
            killed = coordinator_of(committers[0])
            three.brokers[killed].kill()
            go_on(committers)
            three.brokers[killed].start()
            go_on(committers)
    finally:
        for each in committers:
            each.is_over.set()
        onlooker.is_over.set()
        for each in committers:
            each.thread.join()
        onlooker.thread.join()
    assert onlooker.answers
    assert not onlooker.wrong, onlooker.wrong
    for each in committers:
        eventually(lambda each=each: each.committed() is not None, "a coordinator", 60.0)  # type: ignore[misc]
        found = each.committed()
        # The last one may be there without having been acknowledged.
        assert found in (each.acknowledged, each.acknowledged + 1)


def coordinator_of(committer: Committer) -> int:
    found: list[int | None] = []

    def is_known() -> bool:
        found.append(committer.coordinator())
        return found[-1] is not None

    eventually(is_known, "a coordinator", 60.0)
    assert found[-1] is not None
    return found[-1]


def go_on(committers: list[Committer]) -> None:
    for each in committers:
        wanted = each.acknowledged + COMMITS_BETWEEN_KILLS
        eventually(
            lambda each=each, wanted=wanted: each.acknowledged >= wanted,  # type: ignore[misc]
            f"{each.group} is acknowledged",
            60.0,
        )
