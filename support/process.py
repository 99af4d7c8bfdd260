"""A child process with a log file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import barnabas
from barnabas.java.process import find_fault
from barnabas.security.client_settings import ALIASES, SETTINGS, environment_variable
from barnabas.security.client_sources import CONFIG_VARIABLE

CLIENT_VARIABLES = frozenset(
    {CONFIG_VARIABLE, *(environment_variable(name) for name in (*SETTINGS, *ALIASES))}
)
"""Variables with security settings of clients."""
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in CLIENT_VARIABLES},
    "PYTHONPATH": str(Path(barnabas.__file__).parents[1]),
}
"""A child imports the same `barnabas` as this process, and has no security settings of clients."""
START_SECONDS = 90.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.02
TAIL_LINES = 25
PR_SET_PDEATHSIG = 1
# Loaded before any fork: a child must not load libraries between fork and exec.
LIBC = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


class StartFailed(Exception):
    """A process did not start. The first line of the message is the reason. The end of the process's log follows."""


class ChildProcess:
    """A child process, which starts at once. `name` is used in error messages.

    With `is_piped`, standard input and output are pipes for `send` and `read_line`; standard error goes to the log.
    Without it, all output goes to the log.

    With `is_isolated`, the child has its own session. It is killed together with its children, and the kernel kills it
    when the thread that started it ends.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        directory: Path | None = None,
        environment: Mapping[str, str] = ENVIRONMENT,
        is_piped: bool = False,
        is_isolated: bool = False,
        before_exec: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.log_path = log
        self.is_isolated = is_isolated
        self.unread = b""
        with log.open("ab") as output:
            self.child = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.PIPE if is_piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if is_piped else output,
                stderr=output,
                bufsize=0,
                start_new_session=is_isolated,
                preexec_fn=die_with_parent if is_isolated else before_exec,
            )

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -9 after SIGKILL."""
        return self.child.poll()

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def describe(self) -> str:
        """Return the state of the process and the end of its log, for assertion messages."""
        state = "is running" if self.is_running else f"ended with exit code {self.exit_code}"
        return f"{self.name} {state}; the end of its log:\n{tail(self.log())}"

    # ---- pipes

    def send(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{line}\n".encode())

    def read_line(self, seconds: float) -> str:
        """Return the next line of standard output, without the newline. AssertionError if none arrives in time."""
        assert self.child.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self.unread:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self.child.stdout], [], [], left)
            assert ready, f"no line within {seconds} s: {self.describe()}"
            piece = self.child.stdout.read(1 << 16)
            if not piece:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.child.wait(max(0.0, deadline - time.monotonic()))
                raise AssertionError(f"output ended at {self.unread!r}: {self.describe()}")
            self.unread += piece
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode()

    # ---- signals and the end

    def send_signal(self, number: int) -> None:
        self.child.send_signal(number)

    def pause(self) -> None:
        """Send SIGSTOP. Returns when all threads have stopped."""
        pause_process(self.pid)

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL: no clean shutdown, no flush. Idempotent."""
        if self.is_isolated:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.child.kill()
        self.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Request a clean shutdown. Returns the exit code; TimeoutExpired if the process does not end in time."""
        self.send_signal(number)
        return self.wait()

    def stop_or_kill(self) -> int:
        """Like `stop`, but sends SIGKILL after the timeout. Kills the rest of its process group if it is isolated."""
        try:
            return self.stop()
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            self.kill()

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait until the process has ended, and close its pipes. Returns the exit code."""
        code = self.child.wait(seconds)
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()
        return code


class Startable(Protocol):
    """A ChildProcess or a JavaProcess."""

    name: str

    @property
    def pid(self) -> int: ...

    @property
    def exit_code(self) -> int | None: ...

    def log(self) -> str: ...


def wait_for(
    process: Startable, probe: Callable[[], T | None], seconds: float = START_SECONDS
) -> T:
    """Poll `probe` and return its first result. StartFailed if the process ends first, or at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        require_running(process)
        if (found := probe()) is not None:
            return found
        if time.monotonic() > deadline:
            raise start_failed(process, f"it is not ready after {seconds:.0f} s")
        time.sleep(POLL_SECONDS)


def require_running(process: Startable) -> None:
    if process.exit_code is not None:
        raise start_failed(process, f"exit code {process.exit_code}")


def start_failed(process: Startable, fallback_reason: str) -> StartFailed:
    log = process.log()
    why = find_fault(log) or fallback_reason
    return StartFailed(f"{process.name} did not start: {why}\n{tail(log)}")


def tail(log: str) -> str:
    return "\n".join(f"  | {line}" for line in log.splitlines()[-TAIL_LINES:])


def die_with_parent() -> None:
    """Make the kernel kill this process when the thread that started it ends. Runs in the child, before exec."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def pause_process(pid: int, seconds: float = 30.0) -> None:
    """Send SIGSTOP. Returns when all threads have stopped, which takes a while on a busy machine."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + seconds
    while any(thread_state(thread) != "T" for thread in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


def thread_state(thread: Path) -> str:
    """Return the state of a thread: R runs, S sleeps, T is stopped. A thread that has ended counts as T."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"
