"""One of three brokers forgets what was not fsynced whenever it is killed. What was acknowledged stands on the others.

Its log may end earlier after each of its deaths than it said before, even below the high watermark it had. It must
come back as a follower, cut what does not fit and copy the rest, and never show anybody what only it believes.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.broker_process import chosen_seed
from tests.cluster_process import MemberProcess
from tests.faults.chaos.forgetful_disk import lose_power
from tests.faults.chaos.nemesis import Kind, Nemesis
from tests.faults.chaos.stage import Stage

SECONDS = float(os.environ.get("BARNABAS_FAULT_SECONDS") or 0)
FORGETFUL = 2
SEED = 7


class PowerCut:
    """What happens to who is killed, if that is the one that forgets."""

    def __init__(self, choose: Random) -> None:
        self.choose = choose
        self.lost: list[int] = []

    def __call__(self, broker: MemberProcess) -> None:
        if broker.id == FORGETFUL:
            self.lost.append(lose_power(broker.log_dir, self.choose))

    def judge(self) -> None:
        print(f"bytes that the disk forgot: {self.lost}")
        assert sum(self.lost) > 0, "this disk forgets nothing: nothing is proven"


def test_a_replica_that_forgets_costs_nobody_anything(tmp_path: Path, chroot: str) -> None:
    choose = Random(SEED)
    cut = PowerCut(choose)
    with Stage(tmp_path, chroot, forgetful=FORGETFUL) as stage:
        nemesis = Nemesis(stage, choose, cut)
        nemesis.strike(Kind.KILL, FORGETFUL)
        # Who leads while it copies goes, so that it may have to lead with what it has.
        nemesis.strike(Kind.KILL, nemesis.choose_victim())
        stage.settle()
        nemesis.judge()
        cut.judge()


@pytest.mark.skipif(not SECONDS, reason="takes minutes: make faults")
@pytest.mark.timeout(SECONDS + 300)
def test_nothing_breaks_for_minutes_though_one_disk_forgets(tmp_path: Path, chroot: str) -> None:
    choose = Random(chosen_seed())
    cut = PowerCut(choose)
    with Stage(tmp_path, chroot, forgetful=FORGETFUL) as stage:
        nemesis = Nemesis(stage, choose, cut)
        nemesis.strike(Kind.KILL, FORGETFUL)
        nemesis.strike_for(SECONDS)
        stage.settle()
        nemesis.judge()
        cut.judge()
