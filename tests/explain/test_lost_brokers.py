"""Brokers crash, stop, or do not respond: leaders, followers, moves, deletions and the broker itself are explained."""

from __future__ import annotations

import threading

from barnabas.controller.events import AlterPartitionReceived
from barnabas.explain.finding import Cause
from barnabas.explain.text import cause_text, next_text
from tests.explain.live import LiveCluster, broker, topic


def test_crashed_broker(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("copied", [live.controller, victim], min_insync_replicas="2")
    live.create("single", [victim])
    live.create("both", [victim, other])
    live.cluster.brokers[victim].kill()
    _, _, below, _ = live.expect(
        topic("copied", Cause.FOLLOWER_DOWN, victim, is_dated=True),
        topic("single", Cause.ALL_REPLICAS_DOWN, victim, is_dated=True),
        topic("copied", Cause.BELOW_MIN_ISR, victim),
        broker(victim, Cause.BROKER_DOWN),
    )
    assert next_text(below).startswith(f"start broker {victim} again")
    live.delete("single")
    live.expect(topic("single", Cause.DELETION_WAITS_FOR_BROKER, victim))
    live.cluster.brokers[other].kill()
    live.expect(topic("both", Cause.ALL_REPLICAS_DOWN))
    live.restore()


def test_preferred_leader_after_restart(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("led", [victim, other])
    with live.holding_rebalance():
        live.cluster.brokers[victim].kill()
        live.wait_until("led", lambda each: each.leader == other, "led by the other broker")
        live.restore()
        (found,) = live.expect(topic("led", Cause.PREFERRED_WAITS_FOR_CHECK, victim))
        assert "every 5 min" in cause_text(found)
        # With many partitions on their preferred leader, one is not enough for an automatic election.
        live.create("others", *([victim, other] for _ in range(30)))
        live.expect(topic("led", Cause.PREFERRED_BELOW_THRESHOLD, victim))


def test_unclean_election_would_lose_records(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("torn", [victim, other])
    live.produce("torn", 3, acks=-1)
    live.cluster.brokers[other].kill()
    live.wait_until("torn", lambda each: each.isr == (victim,), "one in-sync replica")
    live.produce("torn", 4)
    live.cluster.brokers[victim].kill()
    live.cluster.brokers[other].start()
    (found,) = live.expect(topic("torn", Cause.IN_SYNC_REPLICAS_DOWN, victim, is_dated=True))
    assert (found.values["unclean"], found.values["unclean_end"]) == (other, 3)
    assert "and lose the records from offset 3 on, written since" in cause_text(found)
    assert "elect-leaders --unclean --topic torn:0" in next_text(found)
    live.restore()


def test_stopped_broker(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("shrunk", [other, victim])
    live.cluster.brokers[victim].stop()
    live.expect(
        topic("shrunk", Cause.FOLLOWER_STOPPED, victim), broker(victim, Cause.BROKER_STOPPED)
    )
    live.restore()


def test_broker_that_is_shutting_down(live: LiveCluster) -> None:
    """The controlled shutdown waits for another replica to come back in sync."""
    victim, other = live.spare
    live.create("last", [victim, other])
    live.create("leaving", [live.controller, victim])
    live.cluster.brokers[other].kill()
    live.wait_until("last", lambda each: each.isr == (victim,), "one in-sync replica")
    stopping = threading.Thread(target=live.cluster.brokers[victim].stop)
    with live.holding(AlterPartitionReceived):
        live.cluster.brokers[other].start()
        stopping.start()
        live.expect(topic("leaving", Cause.FOLLOWER_SHUTTING_DOWN, victim))
    stopping.join()
    live.restore()


def test_paused_broker_that_then_crashes(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("headless", [victim, other])
    live.create("alone", [victim])
    live.create("followed", [other, victim], min_insync_replicas="2")
    live.create("moved", [other])
    live.create("deleted", [other, victim])
    live.cluster.brokers[victim].pause()
    try:
        live.produce("followed")
        live.reassign("moved", victim)
        live.delete("deleted")
        led, alone, _, below, *_ = live.expect(
            topic("headless", Cause.LEADER_SILENT, victim),
            topic("alone", Cause.LEADER_SILENT, victim),
            topic("followed", Cause.FOLLOWER_SILENT, victim),
            topic("followed", Cause.BELOW_MIN_ISR, victim),
            topic("moved", Cause.MOVE_TARGET_SILENT, victim),
            topic("deleted", Cause.DELETION_WAITS_FOR_SILENT_BROKER, victim),
            broker(victim, Cause.BROKER_SILENT),
        )
        assert "Another replica is elected when" in cause_text(led)
        assert "No other replica is in sync" in cause_text(alone)
        assert next_text(below).startswith(f"check the process of broker {victim}")
        live.cluster.brokers[victim].kill()
        (moved, _) = live.expect(
            topic("moved", Cause.MOVE_TARGET_DOWN, victim),
            topic("deleted", Cause.DELETION_WAITS_FOR_BROKER, victim),
        )
        assert "`barnabas reassign cancel moved:0`" in next_text(moved)
        # A deletion ends the reassignment, but the replica that is being added must be deleted too.
        live.delete("moved")
        live.expect(topic("moved", Cause.DELETION_WAITS_FOR_BROKER, victim))
    finally:
        live.restore()


def test_broker_with_closed_port(live: LiveCluster) -> None:
    victim, _ = live.spare
    live.cluster.brokers[victim].kill(expire=False)
    try:
        live.expect(broker(victim, Cause.BROKER_UNREACHABLE))
    finally:
        registry, _ = live.cluster.cluster.open_registry()
        registry.expire_abandoned()
        live.restore()


def test_command_line_names_cause_and_next_step(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("shown", [other, victim])
    live.cluster.brokers[victim].kill()
    live.expect(topic("shown", Cause.FOLLOWER_DOWN, victim))
    for command in (
        ("topics", "explain", "shown"),
        ("partitions", "explain", "shown-0"),
        ("brokers", "explain", str(victim)),
        ("cluster", "explain"),
        ("topics", "describe", "shown"),
    ):
        ended = live.run(*command)
        assert ended.returncode == 0, ended.stderr
        assert f"the replica on broker {victim} is missing: the broker is down" in ended.stdout
        assert f"start broker {victim} again" in ended.stdout, command
    unhealthy = live.run("cluster", "health", "-o", "json")
    assert '"cause": "follower_down"' in unhealthy.stdout
    live.restore()
    explained = live.run("topics", "explain", "shown")
    assert "healthy: 1 partition" in explained.stdout
    assert "last changes:" in explained.stdout
    unknown = live.run("topics", "explain", "show")
    assert unknown.returncode == 1
    assert "did you mean 'shown'?" in unknown.stderr
    assert live.run("partitions", "explain", "shown-7").returncode == 1
    assert live.run("partitions", "explain", "shown").returncode == 2
    assert live.run("brokers", "explain", "77").returncode == 1
