"""The figures of attacks as a table: `python -m tests.adversary apis` and `amplifiers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from barnabas.wire.apis import APIS
from tests.adversary.amplifiers import AMPLIFIERS, against, growth_max
from tests.adversary.broker import MB
from tests.adversary.generator import KINDS, kinds_for
from tests.adversary.hints import Entities
from tests.adversary.measure import GROWTH_BYTES_MAX, Attacker, Outcome, Stages

Runnable = Callable[[Attacker], Outcome]
HEAD = ("attack", "bytes", "turn ms", "stall ms", "+MB", "answer MB", "s", "end")
ROW = "{:<58}{:>10}{:>9}{:>9}{:>7}{:>10}{:>7}  {}"


TURN_CPU_MS_TARGET = 10.0


def run_apis(where: Path, apis: list[str], kinds: list[str], *, is_thorough: bool) -> int:
    """Run the generated attacks of these APIs and kinds, all by default; returns the number over budget."""
    pairs = [
        (api, kind)
        for api in APIS.values()
        for kind in kinds_for(api)
        if (not apis or api.name in apis) and (not kinds or kind in kinds)
    ]

    def attacks(entities: Entities) -> Iterator[Runnable]:
        for api, kind in pairs:
            for attack in KINDS[kind](api, entities, is_thorough):
                yield partial(Attacker.run, attack=attack)

    return run(where, attacks)


def run_amplifiers(where: Path, names: list[str]) -> int:
    def attacks(entities: Entities) -> Iterator[Runnable]:
        for name, amplifier in AMPLIFIERS.items():
            if not names or any(wanted in name for wanted in names):
                yield partial(
                    Attacker.measure,
                    name=name,
                    attack=against(amplifier, entities),
                    growth_bytes_max=growth_max(name),
                )

    return run(where, attacks)


def run(where: Path, attacks: Callable[[Entities], Iterator[Runnable]]) -> int:
    print(ROW.format(*HEAD))
    over = total = 0
    stages = Stages(where)
    try:
        for attack in attacks(stages.open()[1]):
            outcome = attack(stages.open()[0])
            violations = outcome.violations()
            total += 1
            over += bool(violations)
            print(row(outcome), flush=True)
            for violation in violations:
                print(f"    {violation}", flush=True)
            if not violations and outcome.figures.turn_cpu_ms > TURN_CPU_MS_TARGET:
                print(f"    longest turn in {outcome.figures.where}", flush=True)
            if outcome.unanswered or outcome.growth_bytes > GROWTH_BYTES_MAX:
                stages.close()
    finally:
        stages.close()
    print(f"{over} of {total} attacks are over budget")
    return over


def row(outcome: Outcome) -> str:
    tally, figures = outcome.tally, outcome.figures
    end = f"{tally.answers} answered" + f", {tally.closed} closed" * bool(tally.closed)
    return ROW.format(
        outcome.name[:57],
        f"{tally.sent_bytes:,}",
        f"{figures.turn_cpu_ms:,.0f}",
        f"{figures.gap_wall_ms:,.0f}",
        f"{outcome.growth_bytes / MB:,.0f}",
        f"{tally.largest_bytes / MB:,.1f}",
        f"{outcome.seconds:.1f}",
        "OVER BUDGET" if outcome.violations() else end,
    )
