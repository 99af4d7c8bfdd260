"""Attacks with data, batches and many connections: the same budget applies as for single requests."""

from __future__ import annotations

from functools import partial

import pytest

from tests.adversary.amplifiers import AMPLIFIERS, against, growth_max
from tests.adversary.measure import Stages, run_with_retries


@pytest.mark.parametrize("name", AMPLIFIERS)
def test_amplifier_stays_within_budget(stages: Stages, name: str) -> None:
    attacker, entities = stages.open()
    try:
        attack = against(AMPLIFIERS[name], entities)
        outcome = run_with_retries(partial(attacker.measure, name, attack, growth_max(name)))
        attacker.check_health()
        assert not outcome.violations()
    except BaseException:
        stages.close()
        raise
