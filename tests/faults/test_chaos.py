"""Leaders and controllers are killed, stopped and paused under load, and nothing that was promised breaks.

What is held is in chaos/: no acknowledged record is lost or there twice, nobody ever sees two values at one offset, all
replicas are alike byte for byte, epochs never go back (tests/lifecycle/invariants.py), and both writers go on in time.

Some runs are on disks that forget what was not fsynced when their broker is killed, one at a time. Its log then ends
earlier than it said before, even below the high watermark it had: it must come back as a follower, cut what does not
fit and copy the rest, and never show anybody what only it believes.

A storm is faults of all kinds that overlap (chaos/schedule.py). When they stop, everybody must go on in time.

The short runs have a fixed seed. `make faults` runs for BARNABAS_FAULT_SECONDS with a new seed each time, which is
printed; BARNABAS_SEED repeats one, BARNABAS_CHAOS_SEED one of a storm.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from support.cluster import MemberProcess
from support.seed import choose_seed
from tests.faults.chaos.forgetful_disk import lose_power
from tests.faults.chaos.nemesis import Kind, Nemesis
from tests.faults.chaos.schedule import Kind as FaultKind
from tests.faults.chaos.schedule import make_schedule
from tests.faults.chaos.stage import SESSION_S, Stage
from tests.faults.chaos.storm import Storm
from tests.faults.chaos.storm_stage import StormStage
from tests.zookeeper import require_java

SECONDS = float(os.environ.get("BARNABAS_FAULT_SECONDS") or 0)
SEED = 20
STORM_SEED, STORM_SECONDS = 2909, 12.0
"""Faults of all kinds happen in it."""
for_minutes = pytest.mark.skipif(not SECONDS, reason="takes minutes: make faults")
pytestmark = pytest.mark.timeout(SECONDS + 600)


class PowerCut:
    """What happens to who is killed."""

    def __init__(self, choose: Random) -> None:
        self.choose = choose
        self.lost: list[int] = []

    def __call__(self, broker: MemberProcess) -> None:
        self.lost.append(lose_power(broker.log_dir, self.choose))

    def judge(self) -> None:
        print(f"bytes that disks forgot: {self.lost}")
        assert sum(self.lost) > 0, "these disks forget nothing: nothing is proven"


def test_whoever_leads_may_lose_its_power_be_stopped_or_paused(tmp_path: Path, chroot: str) -> None:
    choose = Random(SEED)
    cut = PowerCut(choose)
    with Stage(tmp_path, chroot, forgetful=True) as stage:
        nemesis = Nemesis(stage, choose, cut)
        # Back at once, it meets whoever comes after it in office.
        nemesis.strike(Kind.KILL, stage.cluster.controller_id, away_s=0.0)
        nemesis.strike(Kind.STOP, nemesis.choose_victim())
        nemesis.strike(Kind.PAUSE, nemesis.choose_victim())
        stage.settle()
        nemesis.judge()
        cut.judge()


def storm(data: Path, seed: int, seconds: float) -> None:
    """Faults of all kinds that overlap, decided by the seed alone; then nothing is lost and nobody hangs."""
    replay = f"BARNABAS_CHAOS_SEED={seed} BARNABAS_FAULT_SECONDS={seconds:g}"
    with StormStage(data, seed, delivery_s=seconds + 600) as stage:
        without = () if stage.volumes else (FaultKind.DISK_FULL,)
        schedule = make_schedule(seed, seconds, session_s=SESSION_S, without=without)
        run = Storm(stage, schedule)
        with run.reported(replay):
            run.run()
            stage.settle()


def test_short_storm_of_overlapping_faults_loses_nothing_and_leaves_no_hang(
    tmp_path: Path,
) -> None:
    require_java()
    storm(tmp_path, STORM_SEED, STORM_SECONDS)


@for_minutes
def test_storm_of_overlapping_faults_loses_nothing_and_leaves_no_hang(tmp_path: Path) -> None:
    require_java()
    given = os.environ.get("BARNABAS_CHAOS_SEED")
    storm(tmp_path, int(given) if given else Random().randrange(1 << 32), SECONDS)


@for_minutes
def test_nothing_breaks_for_minutes(tmp_path: Path, chroot: str) -> None:
    with Stage(tmp_path, chroot) as stage:
        nemesis = Nemesis(stage, Random(choose_seed()))
        nemesis.strike_for(SECONDS)
        stage.settle()
        nemesis.judge()


@for_minutes
def test_nothing_breaks_for_minutes_though_disks_forget(tmp_path: Path, chroot: str) -> None:
    choose = Random(choose_seed())
    cut = PowerCut(choose)
    with Stage(tmp_path, chroot, forgetful=True) as stage:
        nemesis = Nemesis(stage, choose, cut)
        for _ in range(3):
            nemesis.strike(Kind.KILL, stage.cluster.controller_id, away_s=0.0)
        nemesis.strike_for(SECONDS)
        stage.settle()
        nemesis.judge()
        cut.judge()


@for_minutes
def test_nothing_is_lost_though_all_may_be_gone_at_once(tmp_path: Path, chroot: str) -> None:
    with Stage(tmp_path, chroot) as stage:
        nemesis = Nemesis(stage, Random(choose_seed()))
        struck = nemesis.storm_for(SECONDS)
        stage.settle()
        print(f"{struck} blows")
