"""Leaders and controllers are killed, stopped and paused under load, and all guarantees hold.

The checks are in chaos/: no acknowledged record is lost or duplicated, no reader sees two values at one offset, all
replicas are identical byte for byte, epochs never decrease (tests/lifecycle/invariants.py), and both writers resume in
time.

Some runs use disks that lose unsynced data when their broker is killed, one at a time. The broker's log may then end
below its former high watermark. It must restart as a follower, truncate, and copy the rest. It must never serve
records that only it has.

A storm is a schedule of overlapping faults of all kinds (chaos/schedule.py). After it, every client must make progress
in time.

The short runs have a fixed seed. `make faults` runs for BARNABAS_FAULT_SECONDS with a new seed each time, which is
printed. BARNABAS_SEED repeats a run, BARNABAS_CHAOS_SEED a storm.
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
"""This schedule contains faults of all kinds."""
for_minutes = pytest.mark.skipif(not SECONDS, reason="takes minutes: make faults")
pytestmark = pytest.mark.timeout(SECONDS + 600)


class PowerCut:
    """Callback that makes a killed broker's disk lose unsynced data."""

    def __init__(self, choose: Random) -> None:
        self.choose = choose
        self.lost: list[int] = []

    def __call__(self, broker: MemberProcess) -> None:
        self.lost.append(lose_power(broker.log_dir, self.choose))

    def check(self) -> None:
        print(f"bytes lost on disks: {self.lost}")
        assert sum(self.lost) > 0, "no disk lost data: the test proves nothing"


def test_leader_power_loss_stop_and_pause_lose_nothing(tmp_path: Path, chroot: str) -> None:
    choose = Random(SEED)
    cut = PowerCut(choose)
    with Stage(tmp_path, chroot, forgetful=True) as stage:
        nemesis = Nemesis(stage, choose, cut)
        # It restarts at once, and so meets its successor as controller.
        nemesis.inject(Kind.KILL, stage.cluster.controller_id, away_s=0.0)
        nemesis.inject(Kind.STOP, nemesis.choose_victim())
        nemesis.inject(Kind.PAUSE, nemesis.choose_victim())
        stage.settle()
        nemesis.check()
        cut.check()


def storm(data: Path, seed: int, seconds: float) -> None:
    """Run overlapping faults decided by the seed alone; then check that no record is lost and no broker hangs."""
    replay = f"BARNABAS_CHAOS_SEED={seed} BARNABAS_FAULT_SECONDS={seconds:g}"
    with StormStage(data, seed, delivery_s=seconds + 600) as stage:
        without = () if stage.volumes else (FaultKind.DISK_FULL,)
        schedule = make_schedule(seed, seconds, session_s=SESSION_S, without=without)
        run = Storm(stage, schedule)
        with run.reported(replay):
            run.run()
            stage.settle()


def test_short_storm_of_overlapping_faults(
    tmp_path: Path,
) -> None:
    require_java()
    storm(tmp_path, STORM_SEED, STORM_SECONDS)


@for_minutes
def test_storm_of_overlapping_faults(tmp_path: Path) -> None:
    require_java()
    given = os.environ.get("BARNABAS_CHAOS_SEED")
    storm(tmp_path, int(given) if given else Random().randrange(1 << 32), SECONDS)


@for_minutes
def test_long_chaos_run_loses_nothing(tmp_path: Path, chroot: str) -> None:
    with Stage(tmp_path, chroot) as stage:
        nemesis = Nemesis(stage, Random(choose_seed()))
        nemesis.inject_for(SECONDS)
        stage.settle()
        nemesis.check()


@for_minutes
def test_long_chaos_run_with_power_losses_loses_nothing(tmp_path: Path, chroot: str) -> None:
    choose = Random(choose_seed())
    cut = PowerCut(choose)
    with Stage(tmp_path, chroot, forgetful=True) as stage:
        nemesis = Nemesis(stage, choose, cut)
        for _ in range(3):
            nemesis.inject(Kind.KILL, stage.cluster.controller_id, away_s=0.0)
        nemesis.inject_for(SECONDS)
        stage.settle()
        nemesis.check()
        cut.check()


@for_minutes
def test_simultaneous_broker_failures_lose_nothing(tmp_path: Path, chroot: str) -> None:
    with Stage(tmp_path, chroot) as stage:
        nemesis = Nemesis(stage, Random(choose_seed()))
        count = nemesis.storm_for(SECONDS)
        stage.settle()
        print(f"{count} faults")
