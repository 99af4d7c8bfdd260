"""Injects faults into brokers one at a time: each broker is back before the next fault, because a cluster that lost
two of three brokers promises nothing.

Each fault hits a leader, often the controller. The writers' recovery is measured twice: from the fault and from the
return. A returning broker, above all one that was only paused, must not delay anyone.
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
class InjectedFault:
    """A fault and its consequences. Times are in seconds."""

    at_s: float
    kind: Kind
    broker: int
    led_partitions: int
    """Partitions of the topic."""
    was_controller: bool
    away_s: float
    after_fault: dict[str, float]
    after_return: dict[str, float]
    in_sync_s: float
    """From the return until all replicas were in sync."""

    @property
    def slowest_s(self) -> float:
        return max(*self.after_fault.values(), *self.after_return.values())


class Nemesis:
    """The fault injector. `on_death` is called with a killed broker before it is restarted."""

    def __init__(
        self, stage: Stage, choose: Random, on_death: Callable[[MemberProcess], None] | None = None
    ) -> None:
        self.stage = stage
        self.choose = choose
        self.on_death = on_death
        self.began = time.monotonic()
        self.faults: list[InjectedFault] = []

    def choose_kind(self) -> Kind:
        return self.choose.choice(list(Kind))

    def choose_victim(self) -> int:
        """Choose the controller in one of three cases, otherwise the leader of a partition."""
        controller = self.stage.cluster.controller_id
        if self.choose.random() < 1 / 3 and controller in self.stage.cluster.brokers:
            return controller
        partitions = self.stage.partitions() or ()
        leaders = [each.leader for each in partitions if not each.is_offline]
        return self.choose.choice(leaders or [1])

    def inject(self, kind: Kind, victim: int, away_s: float | None = None) -> InjectedFault:
        """Inject a fault; returns when the cluster is healthy again. `away_s` is random unless given."""
        broker = self.stage.cluster.brokers[victim]
        led_partitions = sum(each.leader == victim for each in self.stage.partitions() or ())
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
                assert code == 0, f"exit code {code}; last log lines:\n{broker.log()[-2000:]}"
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
        after_fault = self.stage.wait_for_writers(at)
        after_return = self.stage.wait_for_writers(back)
        self.stage.wait_until_healthy()
        fault = InjectedFault(
            at_s=at - self.began,
            kind=kind,
            broker=victim,
            led_partitions=led_partitions,
            was_controller=was_controller,
            away_s=back - at,
            after_fault=after_fault,
            after_return=after_return,
            in_sync_s=time.monotonic() - back,
        )
        self.faults.append(fault)
        return fault

    def stay_away(self, since: float, seconds: float) -> None:
        """Wait while the fault lasts. A failed run ends at once."""
        while time.monotonic() < since + seconds:
            self.stage.check_health()
            time.sleep(0.05)

    def inject_for(self, seconds: float) -> None:
        while time.monotonic() - self.began < seconds:
            self.inject(self.choose_kind(), self.choose_victim())
            self.stay_away(time.monotonic(), self.choose.uniform(0.0, 1.0))

    def storm_for(self, seconds: float) -> int:
        """Inject faults that overlap, so that sometimes two or all brokers are down. Writes stop then, but no record
        may be lost. Returns the number of faults; all brokers are back at the end."""
        brokers = list(self.stage.cluster.brokers.values())
        away: dict[int, Kind] = {}
        count = 0
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
                count += 1
            self.stay_away(time.monotonic(), self.choose.choice((0.0, 0.5, 1.0)) * SESSION_S)
        return count

    def check(self) -> None:
        """Print the table and check that all writers resumed in time."""
        print(self.table())
        late = [fault for fault in self.faults if fault.slowest_s > LIMIT_S]
        assert not late, f"writers were blocked for more than {LIMIT_S} s: {late}"

    def table(self) -> str:
        writers = [writer.kind for writer in self.stage.writers]
        lines = [
            f"{'at':>7}  {'fault':8} {'broker':16} {'away':>6}"
            + "".join(f" {name + ' resumes after':>28} {'return':>7}" for name in writers)
            + f" {'in sync':>7}"
        ]
        for fault in self.faults:
            who = f"{fault.broker} leads {fault.led_partitions}" + (
                " +ctl" if fault.was_controller else ""
            )
            times = "".join(
                f" {fault.after_fault[name]:26.2f} s {fault.after_return[name]:5.2f} s"
                for name in writers
            )
            lines.append(
                f"{fault.at_s:5.1f} s  {fault.kind:8} {who:16} {fault.away_s:4.1f} s{times}"
                f" {fault.in_sync_s:4.1f} s"
            )
        return "\n".join(lines)
