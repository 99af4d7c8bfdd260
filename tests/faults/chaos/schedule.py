"""Seeded schedule of overlapping faults. Pure: a seed and a duration give the same faults every time.

Each lane draws from its own random generator, so a lane that this machine cannot run does not change the others.
A longer schedule of the same seed begins with the same faults, unless one of the two is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

HOURS_MAX = 8.0
"""Two clocks differ by less than producer.id.expiration.ms: an expired producer id loses its sequences in Kafka too."""

SHORT_S, SHORT_PACE = 30.0, 0.5
"""A short schedule has shorter pauses between faults, so that most kinds occur."""


class Kind(StrEnum):
    LINK_HOLD = "link-hold"
    LINK_SWALLOW_REQUESTS = "link-swallow-requests"
    LINK_SWALLOW_RESPONSES = "link-swallow-responses"
    LINK_RESET = "link-reset"
    LINK_SLOW = "link-slow"
    LINK_NARROW = "link-narrow"
    ZOOKEEPER_KILL = "zookeeper-kill"
    ZOOKEEPER_PAUSE = "zookeeper-pause"
    ZOOKEEPER_LINK_HOLD = "zookeeper-link-hold"
    ZOOKEEPER_LINK_RESET = "zookeeper-link-reset"
    BROKER_KILL = "broker-SIGKILL"
    BROKER_STOP = "broker-SIGTERM"
    BROKER_PAUSE = "broker-SIGSTOP"
    DISK_FULL = "disk-full"
    CLOCK_JUMP = "clock-jump"


LINK_KINDS = (
    Kind.LINK_HOLD,
    Kind.LINK_SWALLOW_REQUESTS,
    Kind.LINK_SWALLOW_RESPONSES,
    Kind.LINK_RESET,
    Kind.LINK_SLOW,
    Kind.LINK_NARROW,
)
BROKER_KINDS = (Kind.BROKER_KILL, Kind.BROKER_STOP, Kind.BROKER_PAUSE)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `target` is a broker, a pair (source, destination), or empty for ZooKeeper."""

    at_s: float
    for_s: float
    kind: Kind
    target: tuple[int, ...] = ()
    amount: float = 0.0
    """Seconds of latency, bytes per second, or hours of clock shift."""

    @property
    def end_s(self) -> float:
        return self.at_s + self.for_s

    def __str__(self) -> str:
        whom = "→".join(map(str, self.target))
        amount = f" {self.amount:g}" if self.amount else ""
        return f"{self.at_s:7.2f} s .. {self.end_s:7.2f} s  {self.kind} {whom}{amount}"


Draw = Callable[[Random, float], Fault]
"""Draws the fault that starts at the given time."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Faults with one kind of cause. Within a lane, the next fault starts after a pause drawn from `gap_s`."""

    name: str
    gap_s: tuple[float, float]
    draw: Draw
    overlaps: bool = False
    """Whether the pause counts from the start of a fault instead of its end."""


def make_schedule(
    seed: int,
    seconds: float,
    *,
    session_s: float,
    brokers: Sequence[int] = (1, 2, 3),
    without: Iterable[Kind] = (),
) -> list[Fault]:
    """Make the schedule. All faults end within `seconds`."""
    pace = SHORT_PACE if seconds < SHORT_S else 1.0
    faults = []
    for lane in lanes(session_s, brokers):
        random = Random(f"{seed} {lane.name}")
        at = pace * random.uniform(0.0, lane.gap_s[1])
        while at < seconds:
            fault = lane.draw(random, round(at, 2))
            if fault.end_s <= seconds:
                faults.append(fault)
            pause = pace * random.uniform(*lane.gap_s)
            at = pause + (fault.at_s if lane.overlaps else fault.end_s)
    skipped = set(without)
    return sorted(
        (fault for fault in faults if fault.kind not in skipped), key=lambda fault: fault.at_s
    )


def lanes(session_s: float, brokers: Sequence[int]) -> list[Lane]:
    return [
        Lane("links", (0.5, 3.0), draw_link(brokers), overlaps=True),
        Lane("zookeeper", (6.0, 14.0), draw_zookeeper(session_s)),
        Lane("zookeeper links", (3.0, 10.0), draw_zookeeper_link(session_s, brokers)),
        *(
            Lane(f"broker {broker}", (3.0, 12.0), draw_broker(session_s, broker))
            for broker in brokers
        ),
        Lane("disks", (5.0, 14.0), draw_disk(brokers)),
        Lane("clocks", (1.5, 6.0), draw_clock(brokers)),
    ]


def draw_link(brokers: Sequence[int]) -> Draw:
    def draw(random: Random, at: float) -> Fault:
        source, destination = random.sample(list(brokers), 2)
        kind = random.choice(LINK_KINDS)
        amount = 0.0
        if kind is Kind.LINK_SLOW:
            amount = round(random.uniform(0.02, 0.5), 2)
        elif kind is Kind.LINK_NARROW:
            amount = random.randrange(2_000, 50_000)
        return Fault(at, round(random.uniform(0.3, 6.0), 2), kind, (source, destination), amount)

    return draw


def draw_zookeeper(session_s: float) -> Draw:
    def draw(random: Random, at: float) -> Fault:
        kind = random.choice((Kind.ZOOKEEPER_KILL, Kind.ZOOKEEPER_PAUSE))
        # Half of them last less than a session timeout.
        share = random.choice((random.uniform(0.1, 0.8), random.uniform(1.2, 2.5)))
        return Fault(at, round(share * session_s, 2), kind)

    return draw


def draw_zookeeper_link(session_s: float, brokers: Sequence[int]) -> Draw:
    def draw(random: Random, at: float) -> Fault:
        kind = random.choice((Kind.ZOOKEEPER_LINK_HOLD, Kind.ZOOKEEPER_LINK_RESET))
        share = random.choice((random.uniform(0.1, 0.8), random.uniform(1.2, 2.5)))
        return Fault(at, round(share * session_s, 2), kind, (random.choice(list(brokers)),))

    return draw


def draw_broker(session_s: float, broker: int) -> Draw:
    def draw(random: Random, at: float) -> Fault:
        kind = random.choice(BROKER_KINDS)
        share = random.choice((random.uniform(0.0, 0.8), random.uniform(1.2, 2.0)))
        return Fault(at, round(share * session_s, 2), kind, (broker,))

    return draw


def draw_disk(brokers: Sequence[int]) -> Draw:
    def draw(random: Random, at: float) -> Fault:
        target = (random.choice(list(brokers)),)
        return Fault(at, round(random.uniform(0.5, 5.0), 2), Kind.DISK_FULL, target)

    return draw


def draw_clock(brokers: Sequence[int]) -> Draw:
    """The clock keeps its shift until the next jump."""

    def draw(random: Random, at: float) -> Fault:
        hours = round(random.uniform(-HOURS_MAX, HOURS_MAX), 2)
        return Fault(at, 0.0, Kind.CLOCK_JUMP, (random.choice(list(brokers)),), hours)

    return draw
