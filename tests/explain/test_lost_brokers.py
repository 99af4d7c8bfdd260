"""Brokers crash, stop, or do not respond: leaders, followers, deletions and the broker itself are explained."""

from __future__ import annotations

import threading

from barnabas.client.admin import Admin
from barnabas.explain.finding import Cause
from barnabas.explain.text import cause_text, next_text
from barnabas.metadata.topic_names import STATE_CHANGES
from support.command import run
from tests.explain.live import LiveCluster


def test_crashed_broker(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("copied", [live.controller, victim], min_insync_replicas="2")
    live.create("single", [victim])
    live.create("both", [victim, other])
    live.cluster.brokers[victim].kill()
    live.expect_topic("copied", Cause.FOLLOWER_DOWN, victim, is_dated=True)
    live.expect_topic("copied", Cause.BELOW_MIN_ISR, victim)
    live.expect_topic("single", Cause.ALL_REPLICAS_DOWN, victim, is_dated=True)
    live.expect_broker(victim, Cause.BROKER_DOWN)
    with live.client() as client:
        Admin(client).delete_topics(["single"])
    live.expect_topic("single", Cause.DELETION_WAITS_FOR_BROKER, victim)
    live.cluster.brokers[other].kill()
    live.expect_topic("both", Cause.ALL_REPLICAS_DOWN)
    live.restore()


def test_preferred_leader_after_restart(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("led", [victim, other])
    live.cluster.brokers[victim].kill()
    live.wait_until("led", lambda each: each.leader == other, "led by the other broker")
    live.restore()
    found = live.expect_topic("led", Cause.PREFERRED_WAITS_FOR_CHECK, victim)
    assert "every 5 min" in cause_text(found)
    # With many partitions on their preferred leader, one is not enough for an automatic election.
    live.create("others", *([victim, other] for _ in range(30)))
    live.expect_topic("led", Cause.PREFERRED_BELOW_THRESHOLD, victim)


def test_unclean_election_would_lose_records(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("torn", [victim, other])
    live.produce("torn", 3, acks=-1)
    live.cluster.brokers[other].kill()
    live.wait_until("torn", lambda each: each.isr == (victim,), "one in-sync replica")
    live.produce("torn", 4)
    live.cluster.brokers[victim].kill()
    live.cluster.brokers[other].start()
    found = live.expect_topic("torn", Cause.IN_SYNC_REPLICAS_DOWN, victim, is_dated=True)
    assert (found.values["unclean"], found.values["unclean_end"]) == (other, 3)
    assert "and lose the records from offset 3 on, written since" in cause_text(found)
    assert "elect-leaders --unclean --topic torn:0" in next_text(found)
    live.restore()


def test_stopped_broker(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("shrunk", [other, victim])
    live.cluster.brokers[victim].stop()
    live.expect_topic("shrunk", Cause.FOLLOWER_STOPPED, victim)
    live.expect_broker(victim, Cause.BROKER_STOPPED)
    live.restore()


def test_broker_that_is_shutting_down(live: LiveCluster) -> None:
    """The controlled shutdown waits for another replica to come back in sync."""
    (history,) = live.partitions(STATE_CHANGES)
    victim, other = sorted(live.spare, key=lambda broker: broker != history.leader)
    live.create("last", [victim, other])
    live.create("leaving", [live.controller, victim])
    live.cluster.brokers[other].pause()
    live.produce("last", acks=1)
    live.wait_until("last", lambda each: each.isr == (victim,), "one in-sync replica")
    stopping = threading.Thread(target=live.cluster.brokers[victim].stop)
    stopping.start()
    try:
        live.expect_topic("leaving", Cause.FOLLOWER_SHUTTING_DOWN, victim)
    finally:
        live.cluster.brokers[other].resume()
        stopping.join()
        live.restore()


def test_paused_broker(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("followed", [other, victim])
    live.create("headless", [victim, other])
    live.cluster.brokers[victim].pause()
    try:
        live.expect_topic("headless", Cause.LEADER_SILENT, victim)
        live.produce("followed")
        live.expect_topic("followed", Cause.FOLLOWER_SILENT, victim)
        live.expect_broker(victim, Cause.BROKER_SILENT)
    finally:
        live.restore()


def test_broker_with_closed_port(live: LiveCluster) -> None:
    victim, _ = live.spare
    live.cluster.brokers[victim].kill(expire=False)
    try:
        live.expect_broker(victim, Cause.BROKER_UNREACHABLE)
    finally:
        registry, _ = live.cluster.cluster.open_registry()
        registry.expire_abandoned()
        live.restore()


def test_command_line_names_cause_and_next_step(live: LiveCluster) -> None:
    victim, other = live.spare
    live.create("shown", [other, victim])
    live.cluster.brokers[victim].kill()
    live.expect_topic("shown", Cause.FOLLOWER_DOWN, victim)
    for command in (
        ("topics", "explain", "shown"),
        ("partitions", "explain", "shown-0"),
        ("brokers", "explain", str(victim)),
        ("cluster", "explain"),
        ("topics", "describe", "shown"),
    ):
        ended = run(*command, "-b", live.servers)
        assert ended.returncode == 0, ended.stderr
        text = " ".join(ended.stdout.split())
        assert f"the replica on broker {victim} is missing: the broker is down" in text, command
        assert f"start broker {victim} again" in text, command
    unhealthy = run("cluster", "health", "-b", live.servers, "-o", "json")
    assert '"cause": "follower_down"' in unhealthy.stdout
    live.restore()
    explained = run("topics", "explain", "shown", "-b", live.servers)
    assert "healthy: 1 partition" in explained.stdout
    assert "last changes:" in explained.stdout
    unknown = run("topics", "explain", "show", "-b", live.servers)
    assert unknown.returncode == 1
    assert "did you mean 'shown'?" in unknown.stderr
    wrong = run("partitions", "explain", "shown-7", "-b", live.servers)
    assert wrong.returncode == 1
    assert run("partitions", "explain", "shown", "-b", live.servers).returncode == 2
    assert run("brokers", "explain", "77", "-b", live.servers).returncode == 1
