"""All attacks at once against one broker, while a well-behaved application measures their effect.

Run it on an otherwise idle machine: latencies include every wait for a core.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from pathlib import Path

from barnabas.wire.apis import APIS
from support.process import ENVIRONMENT
from tests.adversary.amplifiers import AMPLIFIERS, against
from tests.adversary.broker import MB, Figures
from tests.adversary.generator import KINDS, Send, kinds_for
from tests.adversary.hints import Entities
from tests.adversary.measure import DEADLINE_SECONDS, Attacker, Stages, Tally
from tests.adversary.stage import PROBE_TOPIC

P99_MS_MAX = 250.0
RSS_BYTES_MAX = 400 * MB
ROUNDS_MAX = 1000
"""Limit of rounds per attack: bounds the work of a fast machine in a minute."""
GENERATED_ATTACKERS = 4
AMPLIFYING = ("of one group", "120,000 keys", "slashed", "Fetch that", "Fetch sessions", "bombs")
"""Attacks in which a few small requests do great harm."""
WARM_UP_SECONDS = 2.0


Work = Callable[[Tally], None]


class Besieger:
    """Repeats one attack, or a sequence of attacks, until the time is over."""

    def __init__(self, name: str, address: tuple[str, int], attacks: Iterator[Work]) -> None:
        self.name = name
        self.address = address
        self.attacks = attacks
        self.rounds = self.answers = self.closed = self.timeouts = self.refused = 0
        self.sent_bytes = self.largest_bytes = 0
        self.error = ""

    def run(self, until: float) -> None:
        for attack in self.attacks:
            if time.monotonic() > until or self.rounds >= ROUNDS_MAX:
                return
            self.rounds += 1
            tally = Tally(self.address)
            try:
                attack(tally)
            except TimeoutError:
                self.timeouts += 1
            except OSError as error:
                self.refused += 1
                self.error = str(error)
            self.answers += tally.answers
            self.closed += tally.closed
            self.sent_bytes += tally.sent_bytes
            self.largest_bytes = max(self.largest_bytes, tally.largest_bytes)


def generated(entities: Entities, seed: int) -> Iterator[Work]:
    """Attacks on all APIs, in a random order, over and over."""
    chance = random.Random(seed)
    pairs = [(api, kind) for api in APIS.values() for kind in kinds_for(api)]
    while True:
        chance.shuffle(pairs)
        for api, kind in pairs:
            for attack in KINDS[kind](api, entities, False):
                yield from (partial(exchange, send=send) for send in attack.sends)


def exchange(tally: Tally, *, send: Send) -> None:
    tally.exchange(send)


def besiege(where: Path, seconds: float, names: list[str], *, is_full: bool) -> bool:
    """Print the table; returns whether the targets were met. A full siege adds floods and generated requests."""
    if not names and not is_full:
        names = list(AMPLIFYING)
    stages = Stages(where)
    try:
        attacker, entities = stages.open()
        broker = attacker.broker
        command = [sys.executable, "-m", "tests.adversary.well_behaved"]
        application = subprocess.Popen(
            [*command, broker.bootstrap_servers, PROBE_TOPIC, str(seconds + WARM_UP_SECONDS)],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        time.sleep(WARM_UP_SECONDS)  # the clients connect
        broker.reset()
        besiegers = [
            Besieger(name, broker.address, repeat(against(amplifier, entities)))
            for name, amplifier in AMPLIFIERS.items()
            if not names or any(wanted in name for wanted in names)
        ]
        if not names:
            besiegers += [
                Besieger(f"generated {number}", broker.address, generated(entities, number))
                for number in range(GENERATED_ATTACKERS)
            ]
        until = time.monotonic() + seconds
        threads = [
            threading.Thread(target=each.run, args=(until,), daemon=True) for each in besiegers
        ]
        for thread in threads:
            thread.start()
        output, _ = application.communicate(timeout=seconds + 3 * DEADLINE_SECONDS)
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        return print_results(attacker, besiegers, json.loads(output))
    finally:
        stages.close()


def print_results(
    attacker: Attacker,
    besiegers: list[Besieger],
    application: dict[str, dict[str, list[float]]],
) -> bool:
    figures = attacker.broker.report()
    row = "{:<40}{:>8}{:>10}{:>8}{:>10}{:>9}{:>12}{:>12}"
    print(
        row.format(
            "attack", "rounds", "answers", "closed", "timeouts", "refused", "sent MB", "max MB"
        )
    )
    for each in besiegers:
        counts = each.rounds, each.answers, each.closed, each.timeouts, each.refused
        sizes = f"{each.sent_bytes / MB:,.1f}", f"{each.largest_bytes / MB:,.1f}"
        print(row.format(each.name, *counts, *sizes), each.error)
    print()
    row = "{:<40}{:>8}{:>12}{:>12}{:>12}"
    print(row.format("well-behaved application", "count", "p50 ms", "p99 ms", "max ms"))
    is_met = True
    for kind, latencies in application["latencies"].items():
        ranked = sorted(latencies)
        p50, p99, top = (ranked[min(int(len(ranked) * q), len(ranked) - 1)] for q in (0.5, 0.99, 1))
        is_met = is_met and p99 < P99_MS_MAX
        print(row.format(kind, len(ranked), f"{p50:,.1f}", f"{p99:,.1f}", f"{top:,.1f}"))
    failures = list(application["failures"])
    print(f"failures of the application: {len(failures)} {failures[:3]}")
    defects = attacker.new_defects()
    print(f"defects in the broker's log: {len(defects)} {defects[:3]}")
    print_figures(figures)
    is_met = is_met and figures.peak_bytes < RSS_BYTES_MAX and not failures and not defects
    print("targets met" if is_met else "TARGETS MISSED", end="")
    print(f": p99 < {P99_MS_MAX:.0f} ms, peak memory < {RSS_BYTES_MAX // MB} MB, no failures")
    return is_met


def print_figures(figures: Figures) -> None:
    print(
        f"peak memory: {figures.peak_bytes / MB:,.0f} MB, at the end {figures.rss_bytes / MB:,.0f}"
    )
    print(f"longest turn: {figures.turn_cpu_ms:,.0f} ms of CPU in {figures.where}")
    print(f"longest stall: {figures.gap_wall_ms:,.0f} ms")
