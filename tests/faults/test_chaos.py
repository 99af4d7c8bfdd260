"""Leaders and controllers are killed, stopped and paused under load, and nothing that was promised breaks.

What is held is in chaos/: no acknowledged record is lost or there twice, nobody ever sees two values at one offset, all
replicas are alike byte for byte, epochs never go back (tests/lifecycle/invariants.py), and both writers go on in time.

The short run has a fixed seed. `make faults` runs for BARNABAS_FAULT_SECONDS with a new seed each time, which is
printed; BARNABAS_SEED repeats one.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.broker_process import chosen_seed
from tests.faults.chaos.nemesis import Kind, Nemesis
from tests.faults.chaos.stage import Stage

SECONDS = float(os.environ.get("BARNABAS_FAULT_SECONDS") or 0)
SEED = 20


def test_whoever_leads_may_be_killed_stopped_or_paused(tmp_path: Path, chroot: str) -> None:
    with Stage(tmp_path, chroot) as stage:
        nemesis = Nemesis(stage, Random(SEED))
        for kind in Kind:
            nemesis.strike(kind, nemesis.choose_victim())
        stage.settle()
        nemesis.judge()


@pytest.mark.skipif(not SECONDS, reason="takes minutes: make faults")
@pytest.mark.timeout(SECONDS + 300)
def test_nothing_breaks_for_minutes(tmp_path: Path, chroot: str) -> None:
    with Stage(tmp_path, chroot) as stage:
        nemesis = Nemesis(stage, Random(chosen_seed()))
        nemesis.strike_for(SECONDS)
        stage.settle()
        nemesis.judge()
