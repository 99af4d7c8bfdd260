"""Topics that were written to the registry by hand: assigned to unknown brokers, with invalid data, or moved."""

from __future__ import annotations

import errno

from barnabas.explain.finding import Cause
from barnabas.explain.text import cause_text
from barnabas.metadata import znodes
from barnabas.model import TopicPartition
from support.command import run
from tests.explain.live import LiveCluster
from tests.faulty_disk import failing


def test_topic_on_unknown_brokers_never_had_a_leader(live: LiveCluster) -> None:
    live.write_topic("ghost", replicas=(8, 9))
    live.expect_topic("ghost", Cause.NEVER_LED, 8, 9)
    ended = run("partitions", "explain", "ghost-0", "-b", live.servers)
    assert "none of its replicas was ever online" in " ".join(ended.stdout.split())


def test_replica_on_unknown_broker(live: LiveCluster) -> None:
    live.write_topic("partly", replicas=(live.controller, 9))
    live.expect_topic("partly", Cause.FOLLOWER_NEVER_SEEN, 9)
    live.expect_broker(9, Cause.BROKER_NEVER_SEEN)


def test_colliding_names(live: LiveCluster) -> None:
    live.create("metrics.daily", [live.controller])
    live.write_topic("metrics_daily", replicas=(live.controller,))
    live.expect_topic("metrics.daily", Cause.TOPIC_NAMES_COLLIDE)


def test_invalid_znode(live: LiveCluster) -> None:
    path = znodes.topic_path("broken")
    live.registry(lambda session: session.create(path, b"nonsense"))
    found = live.expect_topic("broken", Cause.TOPIC_ZNODE_INVALID)
    assert path in cause_text(found)
    live.expect_cluster(Cause.TOPIC_ZNODE_INVALID)
    live.registry(lambda session: session.delete(path))


def test_min_isr_above_replicas(live: LiveCluster) -> None:
    live.create("impossible", [live.controller], min_insync_replicas="2")
    found = live.expect_topic("impossible", Cause.MIN_ISR_ABOVE_REPLICAS)
    assert cause_text(found) == (
        "writes with acks=all are always rejected: min.insync.replicas=2, but there is only 1 replica"
    )


# ---- reassignments: written as znodes, in the format of Kafka (adding_replicas, removing_replicas)


def test_move_waits_for_target_that_is_down(live: LiveCluster) -> None:
    here = live.controller
    live.write_topic("moved", replicas=(9, here), adding=(9,), removing=(here,))
    live.expect_topic("moved", Cause.MOVE_TARGET_DOWN, 9)
    # A deletion ends the reassignment, but the replica that is being added must be deleted too.
    live.registry(lambda session: session.create(znodes.delete_topic_path("moved"), b""))
    live.expect_topic("moved", Cause.DELETION_WAITS_FOR_BROKER, 9)


def test_move_waits_for_target_that_cannot_write(live: LiveCluster) -> None:
    victim, other = live.spare
    live.write_topic("growing", replicas=(other, victim), adding=(victim,))
    live.wait_until("growing", lambda each: each.isr == (other, victim), "all in sync")
    live.expect_topic("growing", Cause.MOVE_FINISHING)
    with failing(live.data / f"broker-{victim}", errno.ENOSPC):
        live.produce("growing", 20)
        found = live.expect_topic("growing", Cause.MOVE_CATCHING_UP, victim)
        assert found.lag == 20
        live.cluster.brokers[victim].pause()
        live.expect_topic("growing", Cause.MOVE_TARGET_SILENT, victim)
    live.cluster.brokers[victim].kill()
    live.restore()


def test_requested_move_waits_for_controller(live: LiveCluster) -> None:
    first, other = live.spare
    live.create("wanted", [first, other])
    controller = live.cluster.brokers[live.controller]
    controller.pause()
    try:
        data = znodes.encode_reassignment({TopicPartition("wanted", 0): [other, first]})
        live.registry(lambda session: session.create(znodes.REASSIGN_PARTITIONS, data))
        live.expect_topic("wanted", Cause.MOVE_REQUESTED)
    finally:
        live.registry(lambda session: session.delete(znodes.REASSIGN_PARTITIONS))
        live.restore()
