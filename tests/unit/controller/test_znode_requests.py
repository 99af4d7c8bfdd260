"""Requests and notifications that tools and older brokers leave for the controller as znodes."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from barnabas.controller.controller import Controller
from barnabas.controller.events import ReassignmentsReceived
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata import registration, znodes
from barnabas.metadata.registry_client import RegistryClient
from barnabas.model import BrokerId, LeaderAndIsr, TopicPartition
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest
from tests.unit.controller.cluster import replica_assignment, state, topic_id
from tests.unit.controller.test_controller import (
    US,
    MemoryJournal,
    broker_at,
    eventually,
    running_controller,
)

P0 = TopicPartition("t", 0)
GONE = TopicPartition("gone", 0)
ELECTION = znodes.PREFERRED_REPLICA_ELECTION
REASSIGNMENT = znodes.REASSIGN_PARTITIONS
INVALID = [b"", b"{", b"[]", b"{}", b'{"partitions":[{"topic":"t"}]}']


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Controller, RegistryClient]]:
    """Brokers 1 and 2. Topic t is assigned to 2,1 and led by 1; the controller is not started."""
    async with running_controller() as (controller, registry, embedded):
        other = RegistryClient(embedded, 18_000)
        await other.open()
        await registration.register(other, broker_at(2, port=2), 1000)
        await write_topic(registry, "t", state(1, [1, 2]), 2, 1)
        yield controller, registry
        await other.close()


async def write_topic(
    registry: RegistryClient, name: str, known: LeaderAndIsr, *replicas: int
) -> None:
    topic = znodes.TopicAssignment(
        topic_id=topic_id(name), partitions={0: replica_assignment(*replicas)}
    )
    partition = TopicPartition(name, 0)
    await registry.create(znodes.topic_path(name), znodes.encode_topic(topic))
    await registry.create(znodes.partitions_path(name))
    await registry.create(znodes.partition_path(partition))
    await registry.create(znodes.state_path(partition), znodes.encode_state(known))


async def start(controller: Controller) -> None:
    controller.start()
    await eventually(lambda: controller.has_taken_over)


async def handle_events(controller: Controller, registry: RegistryClient) -> None:
    """Wait until all events so far are handled: a broker that registers later is known."""
    data, _ = await registry.get(znodes.broker_path(US))
    await registry.create(znodes.broker_path(90 + len(controller.context.brokers)), data)
    known = len(controller.context.brokers)
    await eventually(lambda: len(controller.context.brokers) > known and controller.queue.is_idle)


async def is_gone(registry: RegistryClient, path: str) -> bool:
    return await registry.exists(path) is None


async def request_election(registry: RegistryClient, *partitions: TopicPartition) -> None:
    await registry.create(ELECTION, znodes.encode_partitions(partitions))


def leader(controller: Controller, partition: TopicPartition = P0) -> int:
    return controller.context.leadership[partition].leader


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= level]


# ---- preferred leader elections


async def test_preferred_election_moves_the_leader_and_removes_the_request() -> None:
    async with two_brokers() as (controller, registry):
        await start(controller)
        assert leader(controller) == 1
        for replicas in ((2, 1), (1, 2)):
            await request_election(registry, P0)
            await eventually(lambda first=replicas[0]: leader(controller) == first)  # type: ignore[misc]
            await handle_events(controller, registry)
            assert await is_gone(registry, ELECTION)
            # The second request, with the other replica preferred, shows that the watch is armed again.
            controller.context.set_assignment(P0, replica_assignment(*reversed(replicas)))


async def test_preferred_election_found_at_failover_is_executed() -> None:
    async with two_brokers() as (controller, registry):
        await request_election(registry, P0)
        await start(controller)
        assert leader(controller) == 2
        assert await is_gone(registry, ELECTION)


@pytest.mark.parametrize("at_failover", [True, False])
@pytest.mark.parametrize("data", INVALID)
async def test_invalid_election_request_is_logged_once_and_removed(
    data: bytes, at_failover: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_brokers() as (controller, registry):
        if not at_failover:
            await start(controller)
        await registry.create(ELECTION, data)
        if at_failover:
            await start(controller)
        await handle_events(controller, registry)
        assert await is_gone(registry, ELECTION)
        assert leader(controller) == 1
        (line,) = logged(caplog, logging.WARNING)
        assert ELECTION in line
        await request_election(registry, P0)
        await eventually(lambda: leader(controller) == 2)


async def test_preferred_election_skips_unknown_and_deleted_topics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two_brokers() as (controller, registry):
        await write_topic(registry, "doomed", state(1, [1, 2]), 2, 1)
        await registry.create(znodes.delete_topic_path("doomed"))
        await start(controller)
        doomed = TopicPartition("doomed", 0)
        before, _ = await registry.get(znodes.state_path(doomed))
        await request_election(registry, GONE, doomed, P0)
        await eventually(lambda: leader(controller) == 2)
        await handle_events(controller, registry)
        assert await is_gone(registry, ELECTION)
        after, _ = await registry.get(znodes.state_path(doomed))
        assert after == before
        (line,) = logged(caplog, logging.WARNING)
        assert "gone-0:UNKNOWN_TOPIC_OR_PARTITION,doomed-0:INVALID_TOPIC_EXCEPTION" in line


async def test_preferred_election_reports_a_replica_that_is_not_in_sync(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two_brokers() as (controller, registry):
        await write_topic(registry, "lagging", state(1, [1]), 2, 1)
        await start(controller)
        lagging = TopicPartition("lagging", 0)
        await request_election(registry, lagging)
        await handle_events(controller, registry)
        assert await is_gone(registry, ELECTION)
        assert leader(controller, lagging) == 1
        assert "lagging-0:PREFERRED_LEADER_NOT_AVAILABLE" in "\n".join(
            logged(caplog, logging.WARNING)
        )


# ---- ISR notifications


async def notify(registry: RegistryClient, data: bytes) -> str:
    path, _ = await registry.create(znodes.ISR_CHANGE_PREFIX, data, sequential=True)
    return path


def sent_isrs(controller: Controller) -> list[Sequence[int]]:
    """Return the ISR of t-0 in each UpdateMetadata request to one of the brokers."""
    sender = controller.channels.senders[US]
    return [
        each.isr
        for sent in sender.requests
        if isinstance(sent.request, UpdateMetadataRequest)
        for topic in sent.request.topic_states
        for each in topic.partition_states
        if (topic.topic_name, each.partition_index) == P0
    ]


async def test_isr_notification_refreshes_the_partition_and_is_deleted() -> None:
    async with two_brokers() as (controller, registry):
        await start(controller)
        for version, isr in enumerate(((1,), (1, 2))):
            data = znodes.encode_state(state(1, isr))
            await registry.set(znodes.state_path(P0), data, version)
            await notify(registry, znodes.encode_partitions([GONE, P0]))
            await handle_events(controller, registry)
            assert controller.context.leadership[P0] == state(1, isr, version=version + 1)
            assert await registry.children(znodes.ISR_CHANGES) == []
            assert sent_isrs(controller)[-1] == isr
        assert GONE not in controller.context.leadership
        assert isinstance(controller.history, MemoryJournal)
        changes = [
            json.loads(line)["isr"]
            for line in controller.history.lines
            if "IsrsChanged#" in line and '"isr"' in line
        ]
        assert changes == [[1], [1, 2]]


async def test_stale_isr_notifications_are_deleted_at_failover() -> None:
    async with two_brokers() as (controller, registry):
        await notify(registry, znodes.encode_partitions([P0]))
        await notify(registry, b"{")
        await start(controller)
        assert await registry.children(znodes.ISR_CHANGES) == []
        await registry.set(znodes.state_path(P0), znodes.encode_state(state(1, [1])), 0)
        await notify(registry, znodes.encode_partitions([P0]))
        await eventually(lambda: controller.context.leadership[P0].isr == (1,))


@pytest.mark.parametrize("data", INVALID)
async def test_invalid_isr_notification_is_logged_once_and_deleted(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_brokers() as (controller, registry):
        await start(controller)
        path = await notify(registry, data)
        await handle_events(controller, registry)
        assert await is_gone(registry, path)
        (line,) = logged(caplog, logging.WARNING)
        assert path in line


# ---- failed log directories


async def test_log_dir_event_also_checks_replicas_that_a_reassignment_adds() -> None:
    partition = TopicPartition("u", 0)
    async with two_brokers() as (controller, registry):
        await write_topic(registry, "u", state(1, [1]), 1)
        await start(controller)
        await registry.create(REASSIGNMENT, znodes.encode_reassignment({partition: [1, 2]}))
        await handle_events(controller, registry)

        def sent_to_new_replica() -> int:
            return sum(
                topic.topic_name == partition.topic
                for sent in controller.channels.senders[BrokerId(2)].requests
                if isinstance(sent.request, LeaderAndIsrRequest)
                for topic in sent.request.topic_states
            )

        assert sent_to_new_replica() == 1
        event = znodes.encode_log_dir_event(BrokerId(2))
        await registry.create(znodes.LOG_DIR_EVENT_PREFIX, event, sequential=True)
        await handle_events(controller, registry)
        assert sent_to_new_replica() == 2


# ---- reassignments


@pytest.mark.parametrize("at_failover", [True, False])
async def test_reassignment_request_is_executed_and_removed(
    at_failover: bool, caplog: pytest.LogCaptureFixture
) -> None:
    data = znodes.encode_reassignment({P0: [1], GONE: [1]})
    async with two_brokers() as (controller, registry):
        if not at_failover:
            await start(controller)
        await registry.create(REASSIGNMENT, data)
        if at_failover:
            await start(controller)
        await handle_events(controller, registry)
        assert await is_gone(registry, REASSIGNMENT)
        assert controller.context.replicas(P0) == (1,)
        topic = znodes.decode_topic("t", (await registry.get(znodes.topic_path("t")))[0])
        assert topic.partitions[0] == replica_assignment(1)
        (line,) = logged(caplog, logging.WARNING)
        assert f"path={REASSIGNMENT} partitions=gone-0:UNKNOWN_TOPIC_OR_PARTITION" in line


async def test_partition_stays_in_the_request_until_it_has_moved() -> None:
    async with two_brokers() as (controller, registry):
        await start(controller)
        await registry.create(REASSIGNMENT, znodes.encode_reassignment({P0: [1, 7], GONE: [1]}))
        await handle_events(controller, registry)
        data, _ = await registry.get(REASSIGNMENT)
        assert znodes.decode_reassignment(data) == {P0: (1, 7)}, "broker 7 is not registered"
        epoch = controller.context.leader_epoch(P0)
        await registry.set(REASSIGNMENT, data)
        await handle_events(controller, registry)
        assert controller.context.leader_epoch(P0) == epoch, "the reassignment is in progress"
        await registry.set(REASSIGNMENT, znodes.encode_reassignment({P0: [1]}))
        await handle_events(controller, registry)
        assert await is_gone(registry, REASSIGNMENT)
        assert controller.context.assignment(P0) == replica_assignment(1)


async def test_request_replaces_unfinished_reassignment_at_failover() -> None:
    async with two_brokers() as (controller, registry):
        moving = replica_assignment(7, 2, 1, adding=(7,), removing=(2, 1))
        topic = znodes.TopicAssignment(topic_id=topic_id("t"), partitions={0: moving})
        await registry.set(znodes.topic_path("t"), znodes.encode_topic(topic))
        await registry.create(REASSIGNMENT, znodes.encode_reassignment({P0: [1]}))
        await start(controller)
        await handle_events(controller, registry)
        assert controller.context.assignment(P0) == replica_assignment(1)
        assert await is_gone(registry, REASSIGNMENT)


async def test_reassignment_that_cannot_be_written_does_not_start() -> None:
    """The next controller would not know of it, and would delete the wrong replicas."""
    async with two_brokers() as (controller, registry):
        await start(controller)
        await registry.set(znodes.topic_path("t"), b"{")
        answers: list[Mapping[TopicPartition, ApiError | None] | ApiError] = []
        controller.queue.put(ReassignmentsReceived({P0: (BrokerId(1),)}, answers.append))
        await eventually(lambda: bool(answers))
        await registry.create(REASSIGNMENT, znodes.encode_reassignment({P0: [1]}))
        await handle_events(controller, registry)
        (outcomes,) = answers
        assert isinstance(outcomes, Mapping)
        error = outcomes[P0]
        assert error is not None
        assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert znodes.topic_path("t") in error.message
        assert controller.context.assignment(P0) == replica_assignment(2, 1)
        assert not controller.context.partitions_being_reassigned
        assert not await is_gone(registry, REASSIGNMENT), "the next controller tries again"


async def test_reassignment_is_in_the_history() -> None:
    async with two_brokers() as (controller, registry):
        await start(controller)
        await registry.create(REASSIGNMENT, znodes.encode_reassignment({P0: [1]}))
        await handle_events(controller, registry)
        assert isinstance(controller.history, MemoryJournal)
        events = [json.loads(line) for line in controller.history.lines]
        changes = [
            (each["replicas"], each["adding"], each["removing"])
            for each in events
            if each["what"] == "assignment"
        ]
        assert changes == [([1, 2], [], [2]), ([1], [], [])]


@pytest.mark.parametrize("data", INVALID)
async def test_invalid_reassignment_request_is_kept_and_logged_once(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_brokers() as (controller, registry):
        await start(controller)
        await registry.create(REASSIGNMENT, data)
        await handle_events(controller, registry)
        assert (await registry.get(REASSIGNMENT))[0] == data
        (line,) = logged(caplog, logging.WARNING)
        assert REASSIGNMENT in line


async def test_long_partition_list_is_shortened_in_log(caplog: pytest.LogCaptureFixture) -> None:
    async with two_brokers() as (controller, registry):
        await start(controller)
        targets = {TopicPartition("gone", index): [1] for index in range(100)}
        await registry.create(REASSIGNMENT, znodes.encode_reassignment(targets))
        await handle_events(controller, registry)
        (line,) = logged(caplog, logging.WARNING)
        assert line.endswith("gone-19:UNKNOWN_TOPIC_OR_PARTITION and 80 more")
