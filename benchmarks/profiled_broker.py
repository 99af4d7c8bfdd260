"""The broker's command line with a profiler that SIGUSR1 switches on, and off again.

    python -m benchmarks.profiled_broker calls|lines OUTPUT up --port 0 …

`calls` counts every call with cProfile: exact numbers, but small functions look dearer than they are. `lines` looks
every few milliseconds of CPU time which line is running: nearly free, and time in C is on the line that called it.

Only the broker's own thread is looked at: a cluster runs each of its brokers on one.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Protocol

from barnabas.cli.main import main
from barnabas.cluster import in_process
from barnabas.world.loop_thread import LoopThread

SAMPLE_S = 0.001
BROKER_THREAD = "barnabas-broker-"

threads: list[LoopThread] = []
"""Of brokers, as they were started."""


class NotedThread(LoopThread):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        if name.startswith(BROKER_THREAD):
            threads.append(self)


class Profiler(Protocol):
    def on(self) -> None: ...
    def off(self) -> list[list[object]]:
        """Rows of file, line, function, calls or samples, seconds of its own; dearest first."""
        ...


class Calls:
    def __init__(self) -> None:
        self.profile = cProfile.Profile()

    def on(self) -> None:
        threads[-1].call(self.profile.enable)

    def off(self) -> list[list[object]]:
        threads[-1].call(self.profile.disable)
        stats = pstats.Stats(self.profile).stats  # type: ignore[attr-defined]  # typeshed leaves it out
        rows = [
            [file, line, function, calls, own_s]
            for (file, line, function), (_, calls, own_s, _, _) in stats.items()
        ]
        return sorted(rows, key=lambda row: -row[-1])


class Lines:
    def __init__(self) -> None:
        self.seen: Counter[tuple[str, int, str]] = Counter()
        self.began_s = 0.0

    def on(self) -> None:
        self.began_s = time.process_time()
        signal.signal(signal.SIGPROF, self.look)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)

    def look(self, number: int, _: FrameType | None) -> None:
        frame = sys._current_frames().get(threads[-1].thread.ident or 0)
        if frame is not None:
            code = frame.f_code
            self.seen[code.co_filename, frame.f_lineno, code.co_qualname] += 1

    def off(self) -> list[list[object]]:
        signal.setitimer(signal.ITIMER_PROF, 0)
        # The kernel looks at the timer once per tick, which may be rarer than asked: samples only share out the time.
        each_s = (time.process_time() - self.began_s) / max(1, self.seen.total())
        return [[*where, count, count * each_s] for where, count in self.seen.most_common()]


def switched_by_signal(profiler: Profiler, output: Path) -> None:
    is_on = False

    def switch(number: int, frame: FrameType | None) -> None:
        nonlocal is_on
        is_on = not is_on
        if is_on:
            profiler.on()
            return
        rows = profiler.off()
        unfinished = output.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(rows))
        unfinished.replace(output)

    signal.signal(signal.SIGUSR1, switch)


if __name__ == "__main__":
    in_process.LoopThread = NotedThread  # type: ignore[attr-defined]
    kind, output_path, *arguments = sys.argv[1:]
    switched_by_signal(Calls() if kind == "calls" else Lines(), Path(output_path))
    sys.argv[1:] = arguments
    main()
