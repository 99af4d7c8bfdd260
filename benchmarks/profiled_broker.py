"""The command line of Barnabas with a profiler. SIGUSR1 starts the profiler, the next SIGUSR1 stops it.

    python -m benchmarks.profiled_broker calls|lines OUTPUT up --port 0 …

`calls` counts every call with cProfile. Its counts are exact, but it makes small functions look more expensive. `lines`
samples the running line every few milliseconds of CPU time. It costs almost nothing, and attributes time in C code to
the line that called it.

Only the thread of the broker is profiled.
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
STARTED = ".started"
BROKER_THREAD = "barnabas-broker-"

threads: list[LoopThread] = []
"""Threads of the brokers, in the order of their start."""


class RecordedThread(LoopThread):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        if name.startswith(BROKER_THREAD):
            threads.append(self)


class Profiler(Protocol):
    def start(self) -> None: ...
    def stop(self) -> list[list[object]]:
        """Return rows of file, line, function, calls or samples, and own seconds, the most expensive first."""
        ...


class CallProfiler:
    def __init__(self) -> None:
        self.profile = cProfile.Profile()

    def start(self) -> None:
        threads[-1].call(self.profile.enable)

    def stop(self) -> list[list[object]]:
        threads[-1].call(self.profile.disable)
        stats = pstats.Stats(self.profile).stats  # type: ignore[attr-defined]  # typeshed leaves it out
        rows = [
            [file, line, function, calls, own_s]
            for (file, line, function), (_, calls, own_s, _, _) in stats.items()
        ]
        return sorted(rows, key=lambda row: -row[-1])


class LineProfiler:
    def __init__(self) -> None:
        self.samples: Counter[tuple[str, int, str]] = Counter()
        self.began_s = 0.0

    def start(self) -> None:
        self.began_s = time.process_time()
        signal.signal(signal.SIGPROF, self.sample)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)

    def sample(self, number: int, _: FrameType | None) -> None:
        frame = sys._current_frames().get(threads[-1].thread.ident or 0)
        if frame is not None:
            code = frame.f_code
            self.samples[code.co_filename, frame.f_lineno, code.co_qualname] += 1

    def stop(self) -> list[list[object]]:
        signal.setitimer(signal.ITIMER_PROF, 0)
        # The kernel checks the timer once per tick, which may be less often than requested. So the samples only
        # distribute the measured CPU time.
        each_s = (time.process_time() - self.began_s) / max(1, self.samples.total())
        return [[*where, count, count * each_s] for where, count in self.samples.most_common()]


def toggle_on_signal(profiler: Profiler, output: Path) -> None:
    """Start and stop the profiler on SIGUSR1. The handler runs in the main thread, maybe after the next requests.

    So it reports the start with a file.
    """
    is_on = False

    def switch(number: int, frame: FrameType | None) -> None:
        nonlocal is_on
        is_on = not is_on
        if is_on:
            profiler.start()
            output.with_suffix(STARTED).touch()
            return
        rows = profiler.stop()
        unfinished = output.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(rows))
        unfinished.replace(output)

    signal.signal(signal.SIGUSR1, switch)


if __name__ == "__main__":
    in_process.LoopThread = RecordedThread  # type: ignore[attr-defined]
    kind, output_path, *arguments = sys.argv[1:]
    toggle_on_signal(CallProfiler() if kind == "calls" else LineProfiler(), Path(output_path))
    sys.argv[1:] = arguments
    main()
