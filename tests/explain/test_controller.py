"""The controller is missing, paused, stuck or late: what waits for it is explained."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from barnabas.controller.events import (
    AlterPartitionReceived,
    ReassignmentsProgressed,
    RequestAnswered,
)
from barnabas.explain.finding import Cause
from barnabas.metadata import znodes
from barnabas.model import TopicPartition
from barnabas.world.ports import Create, Delete
from tests.explain.live import LiveCluster, cluster, topic


async def create(path: str, data: bytes, session: Any) -> None:
    await session.create(path, data)


def test_paused_controller(live: LiveCluster) -> None:
    """Requests by znodes, as older tools write them, wait until there is a controller again."""
    first, other = live.spare
    live.create("marked", [first, other])
    live.create("wanted", [first, other])
    controller = live.controller
    live.cluster.brokers[controller].pause()
    move = znodes.encode_reassignment({TopicPartition("wanted", 0): [other, first]})
    try:
        for name in ("marked", "unknown"):
            live.registry(partial(create, znodes.delete_topic_path(name), b""))
        live.registry(partial(create, znodes.REASSIGN_PARTITIONS, move))
        live.expect(
            cluster(Cause.CONTROLLER_SILENT, controller),
            topic("marked", Cause.DELETION_WAITS_FOR_CONTROLLER),
            topic("unknown", Cause.MARKER_WITHOUT_TOPIC),
            topic("wanted", Cause.MOVE_REQUESTED),
        )
    finally:
        live.restore()


def test_late_events(live: LiveCluster) -> None:
    """The controller works, but it learns late of caught-up followers, of deleted replicas and of moved ones."""
    victim, other = live.spare
    live.create("behind", [other, victim])
    live.create("deleted", [victim, other])
    live.create("moved", [other])
    live.cluster.brokers[victim].kill()
    live.wait_until("behind", lambda each: each.isr == (other,), "one in-sync replica")
    with live.holding(AlterPartitionReceived):
        live.cluster.brokers[victim].start()
        live.expect(topic("behind", Cause.ISR_CHANGE_PENDING, victim))
    live.restore()
    with live.holding(RequestAnswered):
        live.delete("deleted")
        live.expect(topic("deleted", Cause.DELETION_RUNNING))
    with live.holding(ReassignmentsProgressed):
        live.reassign("moved", victim)
        live.expect(topic("moved", Cause.MOVE_FINISHING))
    live.wait_until("moved", lambda each: each.replicas == (victim,), "on the new broker")


def test_stuck_controller(live: LiveCluster) -> None:
    """The handler of an event never ends."""
    controller = live.controller
    instance = live.cluster.brokers[controller].instance
    assert instance is not None
    assert instance.broker.router is not None
    queue = instance.broker.router.context.controller.queue

    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    instance.thread.call(lambda: setattr(queue, "handle", hang))
    try:
        live.expect(cluster(Cause.CONTROLLER_STUCK, controller))
    finally:
        live.cluster.brokers[controller].kill()
        live.restore()


def test_no_controller(live: LiveCluster) -> None:
    """Another process took the znode /controller, and the broker that led a partition crashes."""
    victim, other = live.spare
    live.create("orphaned", [victim, other])
    controller = live.cluster.brokers[live.controller]
    data = znodes.encode_controller(99, timestamp_ms=0)

    async def usurp(session: Any) -> None:
        await session.multi(
            [Delete(path=znodes.CONTROLLER), Create(path=znodes.CONTROLLER, data=data)]
        )

    controller.pause()
    try:
        live.registry(usurp)
        controller.resume()
        live.expect(cluster(Cause.NO_CONTROLLER))
        live.cluster.brokers[victim].kill()
        live.expect(topic("orphaned", Cause.ELECTION_PENDING, other))
    finally:
        live.registry(lambda session: session.delete(znodes.CONTROLLER))
        live.restore()
