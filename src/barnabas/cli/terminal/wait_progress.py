"""Progress line for a request that is in flight: what is still missing, and the elapsed time.

    orders: partitions 3 and 5 have no leader yet  4 s

Written to standard error if that is a terminal and the request takes longer than DELAY_S. The broker responds only when
the request is done, so a second connection polls the metadata meanwhile.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from barnabas.client.cluster import Cluster
from barnabas.errors import BarnabasError
from barnabas.progress_line import ProgressLine

DELAY_S = 0.3
"""Shorter requests get no line."""
INTERVAL_S = 0.25
REQUEST_TIMEOUT_S = 2.0

DescribeRemaining = Callable[[Cluster], str]
"""Returns what is still missing, or an empty text if nothing is."""


@contextmanager
def show_progress_while(cluster: Cluster, describe: DescribeRemaining) -> Iterator[None]:
    """Show the result of `describe`, refreshed every INTERVAL_S, until the block ends."""
    if not sys.stderr.isatty():
        yield
        return
    line = ProgressLine(sys.stderr)
    done = threading.Event()
    polling = cluster.with_new_connections(timeout_s=REQUEST_TIMEOUT_S)
    arguments = (polling, describe, line, done)
    thread = threading.Thread(target=show_until_done, args=arguments, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(REQUEST_TIMEOUT_S)
        line.erase()


def show_until_done(
    cluster: Cluster, describe: DescribeRemaining, line: ProgressLine, done: threading.Event
) -> None:
    began = time.monotonic()
    if done.wait(DELAY_S):
        return
    with cluster:
        while not done.is_set():
            # If no broker answers, the line stays unchanged.
            with suppress(BarnabasError):
                text = describe(cluster)
                seconds = time.monotonic() - began
                if not done.is_set():
                    line.show(f"{text}  {seconds:.0f} s" if text else "")
            done.wait(INTERVAL_S)
