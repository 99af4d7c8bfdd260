"""Three brokers are stopped and restarted in turn under load: clients see only a short delay.

The session timeout is longer than any partition may be unavailable. So recovery cannot come from an expired session,
only from controlled shutdown, which moves leaders first.
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


def test_rolling_restart_under_load_causes_no_client_errors(tmp_path: Path, chroot: str) -> None:
    settings = {"zookeeper.session.timeout.ms": str(SESSION_MS)}
    with Stage(tmp_path, chroot, writers=WRITERS, settings=settings) as stage:
        nemesis = Nemesis(stage, Random(0))
        slowest = []
        lines = [f"{'stopped':9}" + "".join(f" {'partition ' + str(n):>12}" for n in range(4))]
        for broker in stage.cluster.brokers:
            began = time.monotonic()
            nemesis.inject(Kind.STOP, broker)
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
