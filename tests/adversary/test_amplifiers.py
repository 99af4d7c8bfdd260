"""Attacks by data, by batches and by many connections: the same budget holds as for single requests."""

from __future__ import annotations

from functools import partial

import pytest

from tests.adversary.amplifiers import AMPLIFIERS, against, growth_max
from tests.adversary.measure import Stages, settled


@pytest.mark.parametrize("name", AMPLIFIERS)
def test_amplifier_stays_within_budget(stages: Stages, name: str) -> None:
    attacker, entities = stages.open()
    try:
        attack = against(AMPLIFIERS[name], entities)
        outcome = settled(partial(attacker.measure, name, attack, growth_max(name)))
        attacker.check_health()
        assert not outcome.violations()
    except BaseException:
        stages.close()
        raise
