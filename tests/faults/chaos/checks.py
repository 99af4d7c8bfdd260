"""Checks on broker processes: no unexplained traceback, no busy loop, responses in time."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from support.broker import starved_seconds
from support.cluster import MemberProcess

BUSY_SHARE = 0.9
BUSY_S = 5.0
BUSY_ROUNDS = 3
"""A broker that is busy in this many consecutive checks hangs; a backlog would be done."""
ANSWER_S = 5.0

TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$")
EXPLAINED: tuple[tuple[str, str], ...] = ()
"""Pattern of a traceback's last line, and the reason why it is not a defect."""


def tracebacks(log: str) -> list[str]:
    """Each traceback with the log line before it."""
    lines = log.splitlines()
    found = []
    for at, line in enumerate(lines):
        if TRACEBACK.match(line):
            end = at + 1
            while end < len(lines) and lines[end].startswith((" ", "\t")):
                end += 1
            found.append("\n".join(lines[max(at - 1, 0) : end + 1]))
    return found


def unexplained(
    found: Iterable[str], explained: Iterable[tuple[str, str]] = EXPLAINED
) -> list[str]:
    patterns = [re.compile(pattern) for pattern, _ in explained]
    return [
        trace
        for trace in found
        if not any(pattern.search(trace.rsplit("\n", 1)[-1]) for pattern in patterns)
    ]


class Usage(NamedTuple):
    at: float
    cpu_s: float
    starved_s: float


def usage(pid: int) -> Usage:
    times = psutil.Process(pid).cpu_times()
    starved = sum(map(starved_seconds, Path(f"/proc/{pid}/task").iterdir()))
    return Usage(time.monotonic(), times.user + times.system, starved)


def busy_share(before: Usage, after: Usage) -> float:
    """The share of time the process ran, relative to the time in which the machine had a core for it."""
    available = (after.at - before.at) - (after.starved_s - before.starved_s)
    return (after.cpu_s - before.cpu_s) / max(available, 0.001)


def busy_brokers(brokers: Iterable[MemberProcess]) -> list[int]:
    """Brokers that are always busy although no client sends requests."""
    suspects = {broker.id: broker.process.pid for broker in brokers if broker.process is not None}
    for _ in range(BUSY_ROUNDS):
        before = {broker: usage(pid) for broker, pid in suspects.items()}
        time.sleep(BUSY_S)
        suspects = {
            broker: pid
            for broker, pid in suspects.items()
            if busy_share(before[broker], usage(pid)) > BUSY_SHARE
        }
        if not suspects:
            break
    return sorted(suspects)


def silent_brokers(brokers: Iterable[MemberProcess]) -> list[int]:
    """Brokers that do not answer Metadata in time; `view` waits for five seconds."""
    return [broker.id for broker in brokers if broker.view() is None]


def dump_stacks(brokers: Iterable[MemberProcess]) -> None:
    """Make every broker log the stacks of its threads. Paused brokers do so when they resume."""
    for broker in brokers:
        if broker.is_running and broker.process is not None:
            os.kill(broker.process.pid, signal.SIGUSR1)
    time.sleep(1.0)
