"""One broker with an embedded registry that measures its own event loop.

    python -m tests.adversary.measured_broker <data directory> <port> [key=value ...]

It prints "up" and its broker epoch when it serves. Then every line on stdin is a command, answered with one line of
JSON on stdout: `reset` starts a new measurement, `report` returns the figures since the last reset. It exits when stdin
is closed.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import re
import resource
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from barnabas.cli.brokers import interpreter
from barnabas.cluster.in_process import InProcessCluster
from barnabas.world.network import raise_descriptor_limit

HEARTBEAT_SECONDS = 0.001
SAMPLE_SECONDS = 0.005
SLOW_SECONDS = 0.01
STACK_DEPTH = 4
# A broker that allocates more fails with MemoryError before the machine runs out of memory.
DATA_BYTES_MAX = 3 << 30


class LoopMeter:
    """Longest turn of an event loop, and the code it ran.

    A turn is one callback of the loop. Its CPU time does not depend on other processes or threads, and does not count
    garbage collections, which may fall into any turn. The gap is the time between two heartbeats of 1 ms: every
    connection waits that long.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        self.loop = loop
        self.thread = thread
        self.turn = 0
        self.turn_began = 0.0
        self.samples: Counter[str] = Counter()
        self.collecting_s = self.collection_began = 0.0
        self.reset()

    def reset(self) -> None:
        self.turns = 0
        self.longest_cpu_s = 0.0
        self.longest_where = ""
        self.gap_wall_s = self.gap_cpu_s = 0.0
        self.beat_wall, self.beat_cpu = time.monotonic(), time.thread_time()

    def install(self) -> None:
        run = asyncio.Handle._run
        thread_time, monotonic, current = time.thread_time, time.monotonic, threading.get_ident

        def measured(handle: asyncio.Handle) -> None:
            if current() != self.thread:
                run(handle)
                return
            self.turn += 1
            self.turns += 1
            self.turn_began = monotonic()
            self.collecting_s = 0.0
            began = thread_time()
            run(handle)
            spent = thread_time() - began - self.collecting_s
            self.turn_began = 0.0
            if spent > self.longest_cpu_s:
                self.longest_cpu_s = spent
                self.longest_where = self.most_sampled()

        asyncio.Handle._run = measured  # type: ignore[method-assign, assignment]
        # First at the start of a collection and last at its end.
        gc.callbacks.insert(0, partial(self.on_collection, "start"))
        gc.callbacks.append(partial(self.on_collection, "stop"))
        self.loop.call_soon_threadsafe(self.beat)
        threading.Thread(target=self.sample, name="meter", daemon=True).start()

    def on_collection(self, wanted: str, phase: str, _: dict[str, int]) -> None:
        if phase == wanted and threading.get_ident() == self.thread:
            if phase == "start":
                self.collection_began = time.thread_time()
            else:
                self.collecting_s += time.thread_time() - self.collection_began

    def beat(self) -> None:
        wall, cpu = time.monotonic(), time.thread_time()
        self.gap_wall_s = max(self.gap_wall_s, wall - self.beat_wall - HEARTBEAT_SECONDS)
        self.gap_cpu_s = max(self.gap_cpu_s, cpu - self.beat_cpu)
        self.beat_wall, self.beat_cpu = wall, cpu
        self.loop.call_later(HEARTBEAT_SECONDS, self.beat)

    def sample(self) -> None:
        """Record the stack of turns that take long."""
        sampled = 0
        while True:
            time.sleep(SAMPLE_SECONDS)
            began, turn = self.turn_began, self.turn
            if began and time.monotonic() - began > SLOW_SECONDS:
                frame = sys._current_frames().get(self.thread)
                if turn != sampled:
                    self.samples.clear()
                    sampled = turn
                if turn == self.turn:
                    self.samples[stack_of(frame)] += 1

    def most_sampled(self) -> str:
        found = self.samples.most_common(1)
        self.samples.clear()
        return found[0][0] if found else ""

    def figures(self) -> dict[str, Any]:
        return {
            "turn_cpu_ms": self.longest_cpu_s * 1000,
            "where": self.longest_where,
            "gap_cpu_ms": self.gap_cpu_s * 1000,
            "gap_wall_ms": self.gap_wall_s * 1000,
            "turns": self.turns,
        }


def stack_of(frame: FrameType | None) -> str:
    """The innermost functions of the broker, as file:line function."""
    found: list[str] = []
    while frame is not None and len(found) < STACK_DEPTH:
        code = frame.f_code
        if "/barnabas/" in code.co_filename:
            where = code.co_filename.rpartition("/barnabas/")[2]
            found.append(f"{where}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(found)


def memory() -> dict[str, int]:
    status = Path("/proc/self/status").read_text()
    found = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", status))
    return {"rss_bytes": int(found["VmRSS"]) * 1024, "peak_bytes": int(found["VmHWM"]) * 1024}


def forget_peak_memory() -> None:
    """Return free memory to the kernel first, so that the next growth shows."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))
    raise_descriptor_limit()
    interpreter.tune_interpreter()
    data, port, *settings = sys.argv[1:]
    cluster = InProcessCluster(
        Path(data),
        port=int(port),
        settings=dict(setting.split("=", 1) for setting in settings),
    )
    cluster.start()
    life = cluster.brokers[1].instance
    assert life is not None
    loop_thread = life.thread
    assert loop_thread.thread.ident is not None
    meter = LoopMeter(loop_thread.loop, loop_thread.thread.ident)
    meter.install()
    router = life.broker.router
    assert router is not None
    print("up", router.context.control.broker_epoch, flush=True)
    for line in sys.stdin:
        if line.strip() == "reset":
            loop_thread.call(forget_peak_memory)
            loop_thread.call(meter.reset)
        figures = loop_thread.call(meter.figures)
        print(json.dumps(figures | memory()), flush=True)
    cluster.stop(clean=False)


if __name__ == "__main__":
    main()
