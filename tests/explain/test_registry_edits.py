"""Topics that were written to the registry by hand, and topics with impossible settings."""

from __future__ import annotations

from barnabas.explain.finding import Cause
from barnabas.explain.text import cause_text
from barnabas.metadata import znodes
from tests.explain.live import LiveCluster, broker, cluster, topic


def test_replicas_on_unknown_brokers(live: LiveCluster) -> None:
    live.write_topic("ghost", replicas=(8, 9))
    live.write_topic("partly", replicas=(live.controller, 9))
    live.expect(
        topic("ghost", Cause.NEVER_LED, 8, 9),
        topic("partly", Cause.FOLLOWER_NEVER_SEEN, 9),
        broker(9, Cause.BROKER_NEVER_SEEN),
    )
    ended = live.run("partitions", "explain", "ghost-0")
    assert "none of its replicas was ever online" in ended.stdout
    assert live.run("partitions", "explain", "ghost-7").returncode == 1


def test_colliding_names(live: LiveCluster) -> None:
    live.create("metrics.daily", [live.controller])
    live.write_topic("metrics_daily", replicas=(live.controller,))
    live.expect(topic("metrics.daily", Cause.TOPIC_NAMES_COLLIDE))


def test_invalid_znode(live: LiveCluster) -> None:
    path = znodes.topic_path("broken")
    live.registry(lambda session: session.create(path, b"nonsense"))
    found, _ = live.expect(
        topic("broken", Cause.TOPIC_ZNODE_INVALID), cluster(Cause.TOPIC_ZNODE_INVALID)
    )
    assert path in cause_text(found)
    live.registry(lambda session: session.delete(path))


def test_min_isr_above_replicas(live: LiveCluster) -> None:
    live.create("impossible", [live.controller], min_insync_replicas="2")
    (found,) = live.expect(topic("impossible", Cause.MIN_ISR_ABOVE_REPLICAS))
    assert cause_text(found) == (
        "writes with acks=all are always rejected: min.insync.replicas=2, but there is only 1 replica"
    )
