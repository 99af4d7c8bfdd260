"""What is being waited for, on one line of the terminal, until it is there.

    orders: partitions 3 and 5 have no leader yet  4 s

Written to standard error, only if that is a terminal, and only if it takes longer than a moment. A request waits in its
broker, which says nothing until all is done; so another connection looks meanwhile.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from barnabas.client.cluster import Cluster
from barnabas.errors import BarnabasError
from barnabas.spark.progress import ProgressLine

PATIENCE_S = 0.3
"""What is done sooner needs no line."""
INTERVAL_S = 0.25
LOOK_TIMEOUT_S = 2.0

Look = Callable[[Cluster], str]
"""What is still missing, or nothing to say."""


@contextmanager
def shown_meanwhile(servers: str, look: Look) -> Iterator[None]:
    """While the work within goes on, tell every moment what `look` says."""
    if not sys.stderr.isatty():
        yield
        return
    line = ProgressLine(sys.stderr)
    done = threading.Event()
    thread = threading.Thread(target=watch, args=(servers, look, line, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(LOOK_TIMEOUT_S)
        line.erase()


def watch(servers: str, look: Look, line: ProgressLine, done: threading.Event) -> None:
    began = time.monotonic()
    if done.wait(PATIENCE_S):
        return
    with suppress(BarnabasError), Cluster(servers, timeout_s=LOOK_TIMEOUT_S) as cluster:
        while not done.is_set():
            # A broker that does not answer now is nobody's failure: only the line stays as it was.
            with suppress(BarnabasError):
                text = look(cluster)
                seconds = time.monotonic() - began
                if not done.is_set():
                    line.show(f"{text}  {seconds:.0f} s" if text else "")
            done.wait(INTERVAL_S)
