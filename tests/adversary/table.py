"""The figures of attacks as a table: `python -m tests.adversary apis` and `amplifiers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from barnabas.wire.apis import APIS
from tests.adversary.broker import MB
from tests.adversary.generator import KINDS, Attack, kinds_for
from tests.adversary.hints import Entities
from tests.adversary.measure import Attacker, Outcome
from tests.adversary.stage import attacked_broker, set_up

AttacksFor = Callable[[Entities], Iterator[Attack]]
HEAD = ("attack", "bytes", "turn ms", "stall ms", "+MB", "answer MB", "s", "end")
ROW = "{:<58}{:>10}{:>9}{:>9}{:>7}{:>10}{:>7}  {}"


def run_apis(where: Path, apis: list[str], kinds: list[str], *, is_thorough: bool) -> int:
    """Run the generated attacks of these APIs and kinds, all by default; the number over budget."""
    pairs = [
        (api, kind)
        for api in APIS.values()
        for kind in kinds_for(api)
        if (not apis or api.name in apis) and (not kinds or kind in kinds)
    ]

    def attacks(entities: Entities) -> Iterator[Attack]:
        for api, kind in pairs:
            yield from KINDS[kind](api, entities, is_thorough)

    return run(where, attacks)


def run(where: Path, attacks: AttacksFor) -> int:
    print(ROW.format(*HEAD))
    over = total = 0
    number = 1
    broker = attacked_broker(where / "data-1").start()
    try:
        entities = set_up(broker)
        attacker = Attacker(broker)
        for attack in attacks(entities):
            outcome = attacker.run(attack)
            violations = outcome.violations()
            total += 1
            over += bool(violations)
            print(row(outcome), flush=True)
            for violation in violations:
                print(f"    {violation}", flush=True)
            if outcome.unanswered or outcome.growth_bytes > 500 * MB:
                number += 1
                broker.kill()
                broker = attacked_broker(where / f"data-{number}").start()
                set_up(broker)
                attacker = Attacker(broker)
    finally:
        broker.kill()
    print(f"{over} of {total} attacks are over budget")
    return over


def row(outcome: Outcome) -> str:
    attack, figures = outcome.attack, outcome.figures
    end = f"{outcome.answers} answered" + f", {outcome.closed} closed" * bool(outcome.closed)
    return ROW.format(
        f"{attack.api} {attack.kind} {attack.detail}"[:57],
        f"{attack.sent_bytes:,}",
        f"{figures.turn_cpu_ms:,.0f}",
        f"{figures.gap_wall_ms:,.0f}",
        f"{outcome.growth_bytes / MB:,.0f}",
        f"{outcome.largest_answer_bytes / MB:,.1f}",
        f"{outcome.seconds:.1f}",
        "OVER BUDGET" if outcome.violations() else end,
    )
