"""The process of a broker on this machine: find it by the lock of its log directory, and stop it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from barnabas.client.cluster import Cluster
from barnabas.model import BrokerId
from barnabas.world.directory_lock import LOCK_FILE

PROCESSES = Path("/proc")


def local_broker_pid(cluster: Cluster, broker: BrokerId, log_dirs: Iterable[str]) -> int | None:
    """Return the pid of a broker that runs on this machine as a process of its own, else None.

    The brokers of one `barnabas up` share a process, which must not be stopped for one of them.
    """
    stream = cluster.connection(broker).stream
    if stream.getsockname()[0] != stream.getpeername()[0]:
        return None
    found = map(find_broker_process, log_dirs)
    return next((pid for pid in found if pid is not None), None)


def find_broker_process(log_dir: str) -> int | None:
    """Return the pid of the `barnabas broker` that has the lock file of this directory open, else None."""
    with suppress(OSError):
        lock = Path(log_dir, LOCK_FILE).stat()
        pids = [int(each.name) for each in PROCESSES.iterdir() if each.name.isdigit()]
        brokers = (pid for pid in pids if is_broker_command(command_line(pid)))
        return next((pid for pid in brokers if has_open_file(pid, lock)), None)
    return None


def has_open_file(pid: int, file: os.stat_result) -> bool:
    """Whether a process has a file open. False for a process of another user."""
    with suppress(OSError):
        for descriptor in (PROCESSES / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(descriptor.stat(), file):
                    return True
    return False


def command_line(pid: int) -> list[str]:
    try:
        return (
            (PROCESSES / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        )
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
