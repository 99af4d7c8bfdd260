"""Every API under every kind of hostile request: the event loop stays responsive, memory and answers stay bounded.

`BARNABAS_ADVERSARY=thorough` sends large requests in every version. Run one API with `-k Metadata`, one kind with
`-k repeat`. `python -m tests.adversary apis` prints the figures of all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.wire.apis import APIS
from tests.adversary.generator import KINDS, kinds_for
from tests.adversary.hints import Entities
from tests.adversary.measure import Attacker
from tests.adversary.schema import api_named
from tests.adversary.stage import attacked_broker, set_up

IS_THOROUGH = os.environ.get("BARNABAS_ADVERSARY") == "thorough"
Stage = tuple[Attacker, Entities]


class Stages:
    """The attacked broker, replaced by a fresh one after a test that failed."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.number = 0
        self.stage: Stage | None = None

    def open(self) -> Stage:
        if self.stage is None:
            self.number += 1
            broker = attacked_broker(self.where / f"data-{self.number}").start()
            self.stage = Attacker(broker), set_up(broker)
        return self.stage

    def close(self) -> None:
        if self.stage is not None:
            self.stage[0].broker.kill()
            self.stage = None


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    stages = Stages(tmp_path_factory.mktemp("adversary"))
    yield stages
    stages.close()


@pytest.mark.parametrize(
    ("api", "kind"),
    [(api.name, kind) for api in APIS.values() for kind in kinds_for(api)],
)
def test_attack_stays_within_budget(stages: Stages, api: str, kind: str) -> None:
    attacker, entities = stages.open()
    violations: list[str] = []
    try:
        for attack in KINDS[kind](api_named(api), entities, IS_THOROUGH):
            outcome = attacker.run(attack)
            print(outcome)
            violations += [f"{attack}: {found}" for found in outcome.violations()]
            if outcome.unanswered:
                break
        attacker.check_health()
        assert not violations, "\n".join(violations)
    except BaseException:
        stages.close()
        raise
