"""Who harms brokers: one at a time, back before the next, because with two of three gone nothing is promised.

Each fault hits a leader, and often the controller; how long the writers then need is measured twice, from the blow and
from the return: a broker that comes back, above all one that only slept, must not hold anybody up either.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from support.cluster import MemberProcess
from tests.faults.chaos.stage import SESSION_S, Stage

LIMIT_S = SESSION_S + 5.0


class Kind(StrEnum):
    KILL = "SIGKILL"
    STOP = "SIGTERM"
    PAUSE = "SIGSTOP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """A fault, and what came of it."""

    at_s: float
    kind: Kind
    broker: int
    led: int
    """Partitions of the topic."""
    was_controller: bool
    away_s: float
    after_blow: dict[str, float]
    after_return: dict[str, float]
    whole_s: float
    """From the return until all replicas were in sync."""

    @property
    def slowest_s(self) -> float:
        return max(*self.after_blow.values(), *self.after_return.values())


class Nemesis:
    """`on_death` is told of a broker that was killed, before it is started again."""

    def __init__(
        self, stage: Stage, choose: Random, on_death: Callable[[MemberProcess], None] | None = None
    ) -> None:
        self.stage = stage
        self.choose = choose
        self.on_death = on_death
        self.began = time.monotonic()
        self.blows: list[Blow] = []

    def choose_kind(self) -> Kind:
        return self.choose.choice(list(Kind))

    def choose_victim(self) -> int:
        """One time out of three the controller, else who leads a partition."""
        controller = self.stage.cluster.controller_id
        if self.choose.random() < 1 / 3 and controller in self.stage.cluster.brokers:
            return controller
        partitions = self.stage.partitions() or ()
        leaders = [each.leader for each in partitions if not each.is_offline]
        return self.choose.choice(leaders or [1])

    def strike(self, kind: Kind, victim: int, away_s: float | None = None) -> Blow:
        """Returns when everything is as before. `away_s` is left to chance unless it is given."""
        broker = self.stage.cluster.brokers[victim]
        led = sum(each.leader == victim for each in self.stage.partitions() or ())
        was_controller = self.stage.cluster.controller_id == victim
        at = time.monotonic()
        match kind:
            case Kind.KILL:
                broker.kill()
                if self.on_death is not None:
                    self.on_death(broker)
                chance = self.choose.uniform(0.0, 1.5) * SESSION_S
                self.stay_away(at, chance if away_s is None else away_s)
            case Kind.STOP:
                code = broker.stop()
                assert code == 0, f"exit code {code}; its last words:\n{broker.log()[-2000:]}"
                chance = self.choose.uniform(0.0, 0.5) * SESSION_S
                self.stay_away(at, chance if away_s is None else away_s)
            case Kind.PAUSE:
                broker.pause()
                chance = self.choose.uniform(1.2, 2.0) * SESSION_S
                self.stay_away(at, chance if away_s is None else away_s)
        back = time.monotonic()
        if kind is Kind.PAUSE:
            broker.resume()
        else:
            broker.start()
        after_blow = self.stage.wait_for_writers(at)
        after_return = self.stage.wait_for_writers(back)
        self.stage.wait_until_whole()
        blow = Blow(
            at_s=at - self.began,
            kind=kind,
            broker=victim,
            led=led,
            was_controller=was_controller,
            away_s=back - at,
            after_blow=after_blow,
            after_return=after_return,
            whole_s=time.monotonic() - back,
        )
        self.blows.append(blow)
        return blow

    def stay_away(self, since: float, seconds: float) -> None:
        """The fault lasts. A broken run ends at once."""
        while time.monotonic() < since + seconds:
            self.stage.check_health()
            time.sleep(0.05)

    def strike_for(self, seconds: float) -> None:
        while time.monotonic() - self.began < seconds:
            self.strike(self.choose_kind(), self.choose_victim())
            self.stay_away(time.monotonic(), self.choose.uniform(0.0, 1.0))

    def storm_for(self, seconds: float) -> int:
        """Blows that do not wait for each other, so that now and then two or all are gone at once. Nobody can go on
        then, but nothing may be lost by it either. The number of blows; everybody is back in the end."""
        brokers = list(self.stage.cluster.brokers.values())
        away: dict[int, Kind] = {}
        struck = 0
        while time.monotonic() - self.began < seconds or away:
            is_over = time.monotonic() - self.began >= seconds
            broker = self.choose.choice(brokers)
            kind = away.get(broker.id)
            if kind is Kind.PAUSE:
                broker.resume()
            elif kind is Kind.KILL:
                broker.launch()
            if kind is not None:
                del away[broker.id]
            elif not is_over:
                away[broker.id] = self.choose.choice((Kind.KILL, Kind.PAUSE))
                if away[broker.id] is Kind.KILL:
                    broker.kill()
                else:
                    broker.pause()
                struck += 1
            self.stay_away(time.monotonic(), self.choose.choice((0.0, 0.5, 1.0)) * SESSION_S)
        return struck

    def judge(self) -> None:
        """The table, and whether everybody went on in time."""
        print(self.table())
        late = [blow for blow in self.blows if blow.slowest_s > LIMIT_S]
        assert not late, f"writers stood still for more than {LIMIT_S} s: {late}"

    def table(self) -> str:
        writers = [writer.kind for writer in self.stage.writers]
        lines = [
            f"{'at':>7}  {'fault':8} {'broker':16} {'away':>6}"
            + "".join(f" {name + ' goes on after':>28} {'return':>7}" for name in writers)
            + f" {'whole':>6}"
        ]
        for blow in self.blows:
            who = f"{blow.broker} leads {blow.led}" + (" +ctl" if blow.was_controller else "")
            times = "".join(
                f" {blow.after_blow[name]:26.2f} s {blow.after_return[name]:5.2f} s"
                for name in writers
            )
            lines.append(
                f"{blow.at_s:5.1f} s  {blow.kind:8} {who:16} {blow.away_s:4.1f} s{times}"
                f" {blow.whole_s:4.1f} s"
            )
        return "\n".join(lines)
