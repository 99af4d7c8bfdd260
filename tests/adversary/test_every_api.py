"""Every API under every kind of hostile request: the event loop stays responsive, memory and answers stay bounded.

`BARNABAS_ADVERSARY=thorough` sends large requests in every version. Run one API with `-k Metadata`, one kind with
`-k repeat`. `python -m tests.adversary apis` prints the figures of all of them.
"""

from __future__ import annotations

import os
from functools import partial

import pytest

from barnabas.wire.apis import APIS
from tests.adversary.generator import KINDS, kinds_for
from tests.adversary.measure import Stages, run_with_retries
from tests.adversary.schema import api_named

IS_THOROUGH = os.environ.get("BARNABAS_ADVERSARY") == "thorough"


@pytest.mark.parametrize(
    ("api", "kind"),
    [(api.name, kind) for api in APIS.values() for kind in kinds_for(api)],
)
def test_attack_stays_within_budget(stages: Stages, api: str, kind: str) -> None:
    attacker, entities = stages.open()
    violations: list[str] = []
    try:
        for attack in KINDS[kind](api_named(api), entities, IS_THOROUGH):
            outcome = run_with_retries(partial(attacker.run, attack))
            violations += [f"{outcome.name}: {found}" for found in outcome.violations()]
            if outcome.unanswered:
                break
        attacker.check_health()
        assert not violations, "\n".join(violations)
    except BaseException:
        stages.close()
        raise
