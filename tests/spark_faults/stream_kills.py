"""Kills of streams: of the driver at chosen moments, of its Python workers, and of the broker.

BARNABAS_FAULT_ROUNDS sets the number of kills of each kind (`make faults` uses 20). BARNABAS_SEED repeats the order,
the targets and the pauses of a run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random

import msgspec
import psutil

from support.broker import BrokerProcess
from support.waiting import eventually
from tests.processes import assert_ended
from tests.spark_faults.driver import StreamSettings
from tests.spark_faults.driver_process import DriverProcess, Victim
from tests.spark_faults.load import Load
from tests.spark_faults.stream_position import Moment, Stream

PARTITIONS = 2
SOURCE, SINK = "orders", "copies"
STEP_SECONDS = 180.0
AIM_SECONDS = 180.0
SPREAD_S = {Moment.BEFORE: 0.25, Moment.DURING: 0.0, Moment.AFTER: 0.02}
"""The kill comes at most this long after the moment begins: about as long as the moment lasts."""
TASK_WORKER = "worker"
IDLE_WORKERS = ("lookup_data_sources", "create_data_source")
"""They worked when a stream was started, and wait for the next one."""


class Other(StrEnum):
    WORKER = "worker"
    BROKER = "broker"


Kind = Moment | Other


@dataclass(kw_only=True)
class Tally:
    kills: Counter[str] = field(default_factory=Counter)
    workers: Counter[str] = field(default_factory=Counter)
    hit: Counter[str] = field(default_factory=Counter)
    """Positions of the streams when a driver was killed at the chosen moment of one of them."""
    missed_aims: int = 0
    failures: list[tuple[Kind, str]] = field(default_factory=list)

    def failures_after(self, kind: Kind) -> list[str]:
        return [line for cause, line in self.failures if cause is kind]


class Run:
    def __init__(
        self,
        broker: BrokerProcess,
        directory: Path,
        chance: Random,
        streams: Mapping[str, Stream],
        spread_s: Mapping[Moment, float] = SPREAD_S,
        **settings: str,
    ) -> None:
        self.broker = broker
        self.directory = directory
        self.chance = chance
        self.tally = Tally()
        self.streams = streams
        self.spread_s = spread_s
        self.settings = settings
        self.drivers: list[DriverProcess] = []
        self.is_fresh = False
        self.counted = 0
        """The number of stream failures of this run that are in the tally."""

    @property
    def driver(self) -> DriverProcess:
        return self.drivers[-1]

    def start_driver(self) -> None:
        for stream in self.streams.values():
            stream.mark()
        settings = StreamSettings(
            servers=self.broker.bootstrap_servers,
            source=SOURCE,
            sink=SINK,
            streams=list(self.streams),
            **self.settings,
        )
        arguments = [msgspec.json.encode(settings).decode()]
        self.drivers.append(DriverProcess(self.directory, arguments))
        self.driver.wait_until_running()
        self.is_fresh = True

    def end(self) -> None:
        for life in self.drivers:
            life.end()

    def read_by_all(self) -> int:
        return min(sum(stream.read_up_to().values()) for stream in self.streams.values())

    # ---- one round

    def inject(self, kind: Kind, aimed_at: str) -> None:
        life = self.driver
        match kind:
            case Other.WORKER:
                self.kill_worker(self.streams[aimed_at])
            case Other.BROKER:
                self.kill_broker()
            case _:
                self.kill_driver(self.streams[aimed_at], kind)
        self.tally.kills[str(kind)] += 1
        failures = life.failures()
        self.tally.failures += [(kind, line) for line in failures[self.counted :]]
        self.counted = len(failures) if life is self.driver else 0

    def kill_driver(self, stream: Stream, moment: Moment) -> None:
        first = stream.planned_at_mark + 1
        if not self.is_fresh:
            stream.mark()
            first = stream.planned_at_mark + 1
        elif moment is Moment.BEFORE and self.chance.random() < 0.5:
            # Hit the recovery itself: a repeated batch, or the start before it.
            time.sleep(self.chance.uniform(0.0, 3.0))
            first -= 1
        deadline = time.monotonic() + AIM_SECONDS
        while not self.hits(stream, moment, first):
            assert self.driver.is_running, self.driver.stderr_path.read_text()[-4000:]
            assert time.monotonic() < deadline, f"{stream.name} was never {moment}"
            time.sleep(0.0005)
        for each in self.streams.values():
            self.tally.hit[f"{each.name} {each.position().moment}"] += 1
        self.driver.kill(Victim.BOTH)
        self.start_driver()

    def hits(self, stream: Stream, moment: Moment, first: int) -> bool:
        """True with the JVM paused at the chosen moment."""
        standing = stream.position()
        if standing.moment is not moment or standing.batch < first:
            return False
        time.sleep(self.chance.uniform(0.0, self.spread_s[moment]))
        self.driver.freeze()
        if stream.position().moment is moment:
            return True
        self.tally.missed_aims += 1
        self.driver.thaw()
        return False

    def kill_worker(self, stream: Stream) -> None:
        stream.mark()
        self.wait(
            lambda: (
                stream.position().moment is Moment.BEFORE
                and stream.position().batch > stream.planned_at_mark
            ),
            "a batch under way",
        )
        time.sleep(self.chance.uniform(0.0, self.spread_s[Moment.BEFORE]))
        while True:
            name, victim = self.choose_worker()
            with suppress(psutil.NoSuchProcess):  # it ended by itself
                victim.kill()
                break
        assert_ended([victim])
        self.tally.workers[name] += 1
        self.wait_for_progress()

    def choose_worker(self) -> tuple[str, psutil.Process]:
        at_work = {
            name: processes
            for name, processes in sorted(self.driver.workers().items())
            if not name.endswith(IDLE_WORKERS)
        }
        # Every other one is a worker that runs tasks; there are more other kinds than rounds.
        if self.tally.workers.total() % 2 == 0 and TASK_WORKER in at_work:
            name = TASK_WORKER
        else:
            name = self.chance.choice(list(at_work))
        return name, self.chance.choice(at_work[name])

    def kill_broker(self) -> None:
        if self.is_fresh:
            # A stream that cannot reach the broker when it starts fails at once.
            self.wait_for_progress()
        time.sleep(self.chance.uniform(0.0, 0.5))
        self.broker.kill()
        time.sleep(self.chance.uniform(0.0, 1.5))
        self.broker.start()
        self.wait_for_progress()

    def wait_for_progress(self) -> None:
        """Wait until each stream has committed the current batch and one that was planned after it."""
        planned = {name: stream.position().batch for name, stream in self.streams.items()}
        self.wait(
            lambda: all(
                stream.committed() > planned[name] for name, stream in self.streams.items()
            ),
            f"all streams beyond {planned}",
        )
        self.is_fresh = False

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        def is_over() -> bool:
            assert self.driver.is_running, self.driver.stderr_path.read_text()[-4000:]
            return condition()

        eventually(is_over, what, STEP_SECONDS)


@contextmanager
def running(run: Run) -> Iterator[Run]:
    try:
        run.start_driver()
        yield run
    finally:
        run.end()


def kill_rounds(default: int) -> int:
    return int(os.environ.get("BARNABAS_FAULT_ROUNDS") or default)


def kill_repeatedly(run: Run, rounds: int, began: float) -> Load:
    """Kill everything in random order under load, and wait until the streams have copied the whole input."""
    with Load(run.broker.bootstrap_servers, SOURCE, run.read_by_all) as load:
        kills = shuffled_rounds(run.chance, list(run.streams), rounds)
        for number, (kind, aimed_at) in enumerate(kills):
            seconds = time.monotonic() - began
            print(f"{seconds:6.1f} s: {number} {kind}, {aimed_at}", flush=True)
            run.inject(kind, aimed_at)
        load.stop()
    run.wait(lambda: run.read_by_all() == load.sent, "all streams have read all input")
    run.driver.finish()
    # A worker that outlived its JVM may still be writing.
    eventually(
        lambda: not any(driver.remaining() for driver in run.drivers),
        "the end of all workers",
        60.0,
    )
    return load


def shuffled_rounds(chance: Random, streams: Sequence[str], count: int) -> list[tuple[Kind, str]]:
    """Every kind equally often, aimed at the streams in turn."""
    kinds: list[Kind] = [*Moment, *Other]
    rounds: list[tuple[Kind, str]] = [
        (kind, streams[(number + at) % len(streams)])
        for at, kind in enumerate(kinds)
        for number in range(count)
    ]
    chance.shuffle(rounds)
    return rounds


def report(tally: Tally, load: Load, found: Mapping[str, Counter[str]], seconds: float) -> None:
    wanted = load.values()
    print(f"kills: {dict(tally.kills)}; {tally.missed_aims} aims missed")
    print(f"workers killed: {dict(tally.workers)}")
    print(f"stream positions when the driver was killed: {dict(sorted(tally.hit.items()))}")
    print(f"streams that failed: {Counter(f'{kind}' for kind, _ in tally.failures)}")
    for kind, line in tally.failures:
        print(f"  after {kind}: {line}")
    print(f"records: {load.sent} in {seconds:.0f} s")
    for name, values in found.items():
        missing = len(wanted - set(values))
        print(f"{name}: {missing} missing, {values.total() - len(values)} duplicates")
