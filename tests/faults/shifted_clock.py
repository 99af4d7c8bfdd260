"""The `barnabas` command with a shifted wall clock: `shifted_clock.py <ms> <arguments>`."""

from __future__ import annotations

import sys
import time

from barnabas.cli.main import main
from barnabas.world.clock import SystemClock


def shift(milliseconds: int) -> None:
    def now_ms(self: SystemClock) -> int:
        return time.time_ns() // 1_000_000 + milliseconds

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]


if __name__ == "__main__":
    shift(int(sys.argv.pop(1)))
    main()
