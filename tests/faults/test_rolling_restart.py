"""Each of three brokers is stopped in order and started again, under load: no application notices but by its clock.

A session lasts longer here than any partition may be away: nobody can go on because a session has ended, only because
whoever stops hands over what it leads first (controlled shutdown).
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from tests.faults.chaos.nemesis import Kind, Nemesis
from tests.faults.chaos.stage import PARTITIONS, Stage

SESSION_MS = 10_000
UNAVAILABLE_S_MAX = 5.0
WRITERS = ("rdkafka", "kafka-python", "barnabas")


def test_a_rolling_restart_under_load_costs_no_application_an_error(
    tmp_path: Path, chroot: str
) -> None:
    settings = {"zookeeper.session.timeout.ms": str(SESSION_MS)}
    with Stage(tmp_path, chroot, writers=WRITERS, settings=settings) as stage:
        nemesis = Nemesis(stage, Random(0))
        slowest = []
        lines = [f"{'stopped':9}" + "".join(f" {'partition ' + str(n):>12}" for n in range(4))]
        for broker in stage.cluster.brokers:
            began = time.monotonic()
            nemesis.strike(Kind.STOP, broker)
            ended = time.monotonic()
            for writer in (None, *WRITERS):
                silences = [
                    stage.ledger.longest_silence(index, began, ended, writer)
                    for index in range(PARTITIONS)
                ]
                slowest.append(max(silences))
                name = f"broker {broker}" if writer is None else f"  {writer}"
                lines.append(f"{name:14}" + "".join(f" {silence:8.3f} s" for silence in silences))
        stage.settle()
        print("\n".join(lines))
        print(nemesis.table())
        assert max(slowest) < UNAVAILABLE_S_MAX
