"""The process of a broker on this machine: find it by the lock of its log directory, and stop it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from barnabas.client.cluster import Cluster
from barnabas.model import BrokerId
from barnabas.world.directory_lock import LOCK_FILE, is_locked


def local_broker_pid(cluster: Cluster, broker: BrokerId, log_dirs: Iterable[str]) -> int | None:
    """Return the pid of a broker that runs on this machine as a process of its own, else None.

    The brokers of one `barnabas up` share a process, which must not be stopped for one of them.
    """
    stream = cluster.connection(broker).stream
    if stream.getsockname()[0] != stream.getpeername()[0]:
        return None
    for directory in log_dirs:
        pid = lock_holder(directory)
        if pid is not None and is_broker_command(command_line(pid)):
            return pid
    return None


def lock_holder(directory: str) -> int | None:
    if not is_locked(directory):
        return None
    try:
        return int(Path(directory, LOCK_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def is_broker_command(words: Sequence[str]) -> bool:
    """Return whether a command line runs `barnabas broker`.

    >>> is_broker_command(["python", "-m", "barnabas.cli.main", "broker", "x.properties"])
    True
    >>> is_broker_command(["/usr/bin/python", "/usr/bin/barnabas", "up", "--brokers", "3"])
    False
    """
    return any(
        "barnabas" in Path(program).name and word == "broker" for program, word in pairwise(words)
    )


def request_shutdown(pid: int) -> None:
    """Send SIGTERM: the broker shuts down in a controlled way."""
    os.kill(pid, signal.SIGTERM)
