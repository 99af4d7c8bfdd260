"""The controller is missing, paused or stuck: what waits for it is explained."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from barnabas.explain.finding import Cause
from barnabas.metadata import znodes
from barnabas.world.ports import Create, Delete
from tests.explain.live import LiveCluster


async def create(path: str, session: Any) -> None:
    await session.create(path, b"")


def test_paused_controller(live: LiveCluster) -> None:
    first, other = live.spare
    live.create("marked", [first, other])
    controller = live.controller
    live.cluster.brokers[controller].pause()
    try:
        live.expect_cluster(Cause.CONTROLLER_SILENT, controller)
        for name in ("marked", "unknown"):
            path = znodes.delete_topic_path(name)
            live.registry(partial(create, path))
        live.expect_topic("marked", Cause.DELETION_WAITS_FOR_CONTROLLER)
        live.expect_topic("unknown", Cause.MARKER_WITHOUT_TOPIC)
    finally:
        live.restore()


def test_stuck_controller(live: LiveCluster) -> None:
    """The handler of an event never ends: a follower that has caught up does not get into the ISR."""
    victim, other = live.spare
    live.create("waiting", [other, victim])
    live.cluster.brokers[victim].pause()
    live.produce("waiting")
    live.wait_until("waiting", lambda each: each.isr == (other,), "one in-sync replica")
    controller = live.controller
    instance = live.cluster.brokers[controller].instance
    assert instance is not None
    assert instance.broker.router is not None
    queue = instance.broker.router.context.controller.queue

    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    instance.thread.call(lambda: setattr(queue, "handle", hang))
    try:
        live.expect_cluster(Cause.CONTROLLER_STUCK, controller)
        live.cluster.brokers[victim].resume()
        live.expect_topic("waiting", Cause.ISR_CHANGE_PENDING, victim)
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
        live.expect_cluster(Cause.NO_CONTROLLER)
        live.cluster.brokers[victim].kill()
        live.expect_topic("orphaned", Cause.ELECTION_PENDING, other)
    finally:
        live.registry(lambda session: session.delete(znodes.CONTROLLER))
        live.restore()
