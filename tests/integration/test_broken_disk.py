"""A log directory breaks under a broker that goes on running: others lead what it had, until it is started again."""

from __future__ import annotations

import time
from collections.abc import Callable

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.errors import StorageError

DEADLINE_S = 20
PARTITIONS = 6


def eventually(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.01)


def break_disk(cluster: LocalCluster, broker_id: int) -> None:
    """As when the system refuses to write there: what follows is what the broker makes of it."""
    life = cluster.brokers[broker_id].life
    assert life is not None
    logs = life.broker.logs
    assert logs is not None
    directory = life.broker.config.log_dirs[0]
    life.thread.call(lambda: logs.mark_offline(directory, StorageError(directory, "broken")))


def test_others_lead_what_was_on_a_broken_disk_and_it_comes_back_with_the_broker() -> None:
    with (
        LocalCluster(brokers=3) as cluster,
        Cluster(cluster.bootstrap_servers, client_id="test") as client,
    ):
        admin = Admin(client)
        admin.create_topics([NewTopic(name="orders", partitions=PARTITIONS, replication_factor=3)])

        def states() -> list[tuple[int, tuple[int, ...]]]:
            (topic,) = admin.describe_topics(["orders"])
            return [(each.leader, each.isr) for each in topic.partitions]

        eventually(lambda: all(len(isr) == 3 for _, isr in states()), "all in sync")
        victim = next(each for each in cluster.brokers if each != cluster.controller_id)
        break_disk(cluster, victim)
        eventually(
            lambda: all(
                leader not in (victim, -1) and victim not in isr for leader, isr in states()
            ),
            "nobody is led by a broken disk",
        )
        cluster.brokers[victim].kill()
        cluster.brokers[victim].start()
        eventually(lambda: all(victim in isr for _, isr in states()), "back in sync")
