"""One `barnabas broker` as a child process: start it, describe its end, and read the metadata that it reports."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import IO

from barnabas.client.cluster import Cluster
from barnabas.client.view import ClusterView
from barnabas.errors import ApiError, ConfigError
from barnabas.security.client_settings import PLAINTEXT, ClientSecurity

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


async def start_broker_process(
    arguments: Iterable[str], output: IO[bytes] | int, death_signal: signal.Signals
) -> Process:
    """Start `barnabas broker <arguments>`. Call it in the main thread, which must live as long as the broker.

    `output` gets standard output and standard error. If this process ends, the kernel sends `death_signal` to the
    broker.
    """
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "barnabas.cli.main", "broker", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches only this process, which stops the brokers in order
        preexec_fn=signal_with_parent(os.getpid(), death_signal),
    )


def signal_with_parent(parent: int, death_signal: signal.Signals) -> Callable[[], None]:
    """Return a function for a child to call before exec. The kernel then signals the child when `parent` ends."""

    def request_death_signal() -> None:
        LIBC.prctl(PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # the parent ended meanwhile
            os._exit(1)

    return request_death_signal


def exit_text(code: int) -> str:
    """
    >>> exit_text(-9), exit_text(1)
    ('was killed (SIGKILL)', 'ended with exit code 1')
    """
    if code < 0:
        return f"was killed ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"


def failure_reason(log: Sequence[str]) -> str:
    """Return the error at the end of a broker's log, or else its last line.

    >>> failure_reason(["... INFO starting", "error: disk full", "hint:  delete files"])
    'disk full'
    """
    errors = [line.removeprefix("error: ") for line in log[-2:] if line.startswith("error: ")]
    return errors[-1] if errors else log[-1] if log else "its log is empty"


def read_view(
    servers: str, timeout_s: float, security: ClientSecurity = PLAINTEXT
) -> ClusterView | None:
    """Return the metadata that one of these brokers reports, or None if none answers."""
    try:
        with Cluster(servers, timeout_s=timeout_s, security=security) as cluster:
            return cluster.refresh([])
    except (ApiError, ConfigError):  # ConfigError: no servers
        return None


def shows_cluster(view: ClusterView | None, ids: Collection[int]) -> bool:
    """Return whether the metadata shows all these brokers and a controller."""
    return view is not None and set(ids) <= view.brokers.keys() and view.controller in view.brokers
