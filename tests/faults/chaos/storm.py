"""Runs a schedule of overlapping faults against a stage, and reports the events when a run fails."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from support.cluster import MemberProcess
from tests.faults.chaos import checks
from tests.faults.chaos.proxies import Direction, Disturbance
from tests.faults.chaos.schedule import LINK_KINDS, Fault, Kind
from tests.faults.chaos.storm_stage import NODE, ZOOKEEPER_ID, StormStage

TICK_S = 0.05
STOP_S = 90.0
"""A broker that has not exited this long after SIGTERM hangs."""
EXPLAINED_FOR_S = 30.0
"""A broker may exit by itself if its disk was full or ZooKeeper was down within this time: it could not start."""
EXPLAINING = (
    Kind.ZOOKEEPER_KILL,
    Kind.ZOOKEEPER_PAUSE,
    Kind.ZOOKEEPER_LINK_HOLD,
    Kind.ZOOKEEPER_LINK_RESET,
    Kind.DISK_FULL,
)
STOPPED_CODES = (0, 143, -signal.SIGTERM)
"""Exit codes of a broker that got SIGTERM: while running, while starting, and before Python ran its code."""
FAILED_CODES = (1,)
"""Exit codes of a broker that could not start or continue. Any other code, such as the watchdog's, is a defect."""
BALLAST = "ballast"
OFFLINE = b"log directory is offline"
DISKS_EVERY_S = 1.0


class Exit(NamedTuple):
    """The exit of a broker process."""

    at_s: float
    broker: int
    code: int
    why: str


class Storm:
    """Runs the schedule. `run()` returns when all faults have ended and every broker process runs."""

    def __init__(self, stage: StormStage, schedule: list[Fault]) -> None:
        self.stage = stage
        self.schedule = schedule
        self.began = time.monotonic()
        self.down: dict[int, set[int]] = {broker: set() for broker in stage.cluster.brokers}
        """By broker, the numbers of the faults that keep it from being restarted."""
        self.noted: set[int] = set()
        """Processes whose exit was noted."""
        self.killed: set[int] = set()
        self.stop_requests: dict[int, float] = {}
        self.unable_until: dict[int, float] = {}
        """Until when a broker has a reason to exit by itself."""
        self.full: set[int] = set()
        self.were_full: set[int] = set()
        self.log_begins: dict[int, int] = {}
        """The position in each broker's log at which its current process starts."""
        self.next_look_at_disks = 0.0
        self.exits: list[Exit] = []

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began

    def run(self) -> None:
        self.began = time.monotonic()
        steps: list[tuple[float, int, bool]] = []
        for number, fault in enumerate(self.schedule):
            steps += [(fault.at_s, number, False), (fault.end_s, number, True)]
        for at_s, number, ends in sorted(steps):
            self.wait_until(at_s)
            fault = self.schedule[number]
            if ends:
                self.end(number, fault)
            else:
                self.begin(number, fault)
        for broker in self.stage.cluster.brokers:
            self.stage.set_clock(broker, 0.0)
        deadline = time.monotonic() + STOP_S
        self.restart_brokers_with_offline_disks()
        while not all(broker.is_running for broker in self.brokers) or self.stop_requests:
            self.supervise()
            assert time.monotonic() < deadline, "not all brokers could be restarted"
            time.sleep(TICK_S)

    @property
    def brokers(self) -> list[MemberProcess]:
        return list(self.stage.cluster.brokers.values())

    def wait_until(self, at_s: float) -> None:
        while True:
            self.supervise()
            self.stage.check_health()
            left = at_s - self.now_s
            if left <= 0:
                return
            time.sleep(min(left, TICK_S))

    # ---- faults

    def begin(self, number: int, fault: Fault) -> None:
        zookeeper = self.stage.zookeeper
        if fault.kind in LINK_KINDS:
            key = (fault.target[0], fault.target[1])
            self.stage.proxies.disturb(key, number, disturbance(fault))
            return
        for broker in fault.target or tuple(self.stage.cluster.brokers):
            if fault.kind in EXPLAINING:
                until = fault.end_s + EXPLAINED_FOR_S
                self.unable_until[broker] = max(self.unable_until.get(broker, 0.0), until)
        match fault.kind:
            case Kind.ZOOKEEPER_KILL:
                zookeeper.kill(NODE)
            case Kind.ZOOKEEPER_PAUSE:
                zookeeper.pause(NODE)
            case Kind.ZOOKEEPER_LINK_HOLD | Kind.ZOOKEEPER_LINK_RESET:
                key = (fault.target[0], ZOOKEEPER_ID)
                self.stage.proxies.disturb(key, number, disturbance(fault))
            case Kind.DISK_FULL:
                self.full.add(fault.target[0])
                self.were_full.add(fault.target[0])
                self.fill(fault.target[0])
            case Kind.CLOCK_JUMP:
                self.stage.set_clock(fault.target[0], fault.amount)
            case _:
                self.inject(number, fault)

    def inject(self, number: int, fault: Fault) -> None:
        broker = self.stage.cluster.brokers[fault.target[0]]
        if fault.kind is Kind.BROKER_PAUSE:
            if broker.is_running:
                broker.signal(signal.SIGSTOP)
            return
        self.down[broker.id].add(number)
        if broker.is_running and fault.kind is Kind.BROKER_KILL:
            self.killed.add(broker.id)
            broker.kill()
        elif broker.is_running:
            self.stop_requests.setdefault(broker.id, time.monotonic())
            broker.signal(signal.SIGTERM)

    def end(self, number: int, fault: Fault) -> None:
        match fault.kind:
            case Kind.ZOOKEEPER_KILL:
                self.stage.zookeeper.launch_node(NODE)
            case Kind.ZOOKEEPER_PAUSE:
                self.stage.zookeeper.resume(NODE)
            case Kind.ZOOKEEPER_LINK_HOLD | Kind.ZOOKEEPER_LINK_RESET:
                self.stage.proxies.heal((fault.target[0], ZOOKEEPER_ID), number)
            case Kind.DISK_FULL:
                self.free(fault.target[0])
                self.full.discard(fault.target[0])
            case Kind.BROKER_PAUSE:
                broker = self.stage.cluster.brokers[fault.target[0]]
                if broker.is_running:
                    broker.signal(signal.SIGCONT)
            case Kind.BROKER_KILL | Kind.BROKER_STOP:
                self.down[fault.target[0]].discard(number)
            case Kind.CLOCK_JUMP:
                pass
            case _:
                self.stage.proxies.heal((fault.target[0], fault.target[1]), number)

    def fill(self, broker: int) -> None:
        """Fill the volume completely."""
        descriptor = os.open(self.stage.volumes[broker] / BALLAST, os.O_WRONLY | os.O_CREAT)
        try:
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while os.write(descriptor, bytes(size)):
                        continue
        finally:
            os.close(descriptor)

    def free(self, broker: int) -> None:
        (self.stage.volumes[broker] / BALLAST).unlink()

    # ---- broker processes

    def supervise(self) -> None:
        """Note brokers that exited, and start those that no fault keeps down."""
        for broker in self.brokers:
            if broker.is_running:
                self.check_for_hang(broker)
                continue
            self.note_exit(broker)
            if not self.down[broker.id]:
                self.log_begins[broker.id] = broker.log_path.stat().st_size
                broker.launch()
        if time.monotonic() >= self.next_look_at_disks:
            self.next_look_at_disks = time.monotonic() + DISKS_EVERY_S
            self.restart_brokers_with_offline_disks()

    def restart_brokers_with_offline_disks(self) -> None:
        """Restart brokers that took their log directory offline because it was full.

        A leader does so if another replica can lead. As in Kafka, it stays offline until the next start.
        """
        for broker in self.brokers:
            if broker.is_running and broker.id not in self.full and broker.id in self.were_full:
                with broker.log_path.open("rb") as log:
                    log.seek(self.log_begins.get(broker.id, 0))
                    has_lost_disk = OFFLINE in log.read()
                if has_lost_disk:
                    self.killed.add(broker.id)
                    broker.kill()

    def check_for_hang(self, broker: MemberProcess) -> None:
        requested_at = self.stop_requests.get(broker.id)
        if requested_at is not None and time.monotonic() - requested_at > STOP_S:
            raise AssertionError(f"broker {broker.id} has not exited {STOP_S} s after SIGTERM")

    def note_exit(self, broker: MemberProcess) -> None:
        assert broker.process is not None
        if broker.process.pid in self.noted:
            return
        self.noted.add(broker.process.pid)
        code = broker.wait()
        requested_at = self.stop_requests.pop(broker.id, None)
        if broker.id in self.killed:
            self.killed.discard(broker.id)
            why = "killed"
        elif requested_at is not None and code in STOPPED_CODES:
            why = "asked to stop"
        elif self.now_s < self.unable_until.get(broker.id, 0.0) and code in FAILED_CODES:
            why = "could not continue"
        else:
            lines = "\n".join(broker.log().splitlines()[-20:])
            raise AssertionError(f"broker {broker.id} exited with {code} by itself:\n{lines}")
        self.exits.append(Exit(self.now_s, broker.id, code, why))

    # ---- reporting

    @contextmanager
    def reported(self, replay: str) -> Iterator[None]:
        """Wrap a run: any failure prints how to replay it, and the events in order."""
        print(replay)
        if self.stage.no_volumes:
            print(f"without {Kind.DISK_FULL}: {self.stage.no_volumes}")
        try:
            yield
        except BaseException as error:
            checks.dump_stacks(self.brokers)
            self.stage.save_data()
            raise AssertionError(
                f"{replay}\nfailed after {self.now_s:.1f} s, logs in {self.stage.data}\n"
                f"{self.table()}\n{error}"
            ) from error
        print(self.summary(), replay, sep="\n")

    def table(self) -> str:
        lines = [(fault.at_s, str(fault)) for fault in self.schedule]
        lines += [
            (
                each.at_s,
                f"{each.at_s:7.2f} s               broker {each.broker} exited with "
                f"{each.code}: {each.why}",
            )
            for each in self.exits
        ]
        return "\n".join(line for _, line in sorted(lines))

    def summary(self) -> str:
        counts = {kind: sum(each.kind is kind for each in self.schedule) for kind in Kind}
        shown = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        return (
            f"{shown}; topics: {self.stage.storm.done}; exits: {len(self.exits)}; "
            f"records of unknown fate: {len(self.stage.ledger.unknown)}"
        )


def disturbance(fault: Fault) -> Disturbance:
    match fault.kind:
        case Kind.LINK_SWALLOW_REQUESTS:
            return Disturbance(swallows=Direction.REQUESTS)
        case Kind.LINK_SWALLOW_RESPONSES:
            return Disturbance(swallows=Direction.RESPONSES)
        case Kind.LINK_RESET | Kind.ZOOKEEPER_LINK_RESET:
            return Disturbance(resets=True)
        case Kind.LINK_SLOW:
            return Disturbance(latency_s=fault.amount)
        case Kind.LINK_NARROW:
            return Disturbance(bytes_per_s=fault.amount)
        case _:
            return Disturbance(holds=True)
