"""Attacks by data, by batches and by many connections: the same budget holds as for single requests."""

from __future__ import annotations

import pytest

from tests.adversary.amplifiers import AMPLIFIERS, against, growth_max
from tests.adversary.measure import Stages


@pytest.mark.parametrize("name", AMPLIFIERS)
def test_amplifier_stays_within_budget(stages: Stages, name: str) -> None:
    attacker, entities = stages.open()
    try:
        outcome = attacker.measure(name, against(AMPLIFIERS[name], entities), growth_max(name))
        print(outcome)
        attacker.check_health()
        assert not outcome.violations()
    except BaseException:
        stages.close()
        raise
