"""One run of driver.py or job_driver.py: its JVM, the Python processes of the JVM, and their end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import psutil

from support.process import ENVIRONMENT
from support.waiting import eventually
from tests.processes import has_ended

DRIVER = Path(__file__).with_name("driver.py")
JOB_DRIVER = Path(__file__).with_name("job_driver.py")
ROOT = Path(__file__).parents[2]
START_SECONDS = 120.0
END_SECONDS = 120.0


class Victim(StrEnum):
    """The process that gets SIGKILL. The others must end by themselves."""

    PYTHON = "Python"
    JAVA = "Java"
    BOTH = "both"


class DriverProcess:
    def __init__(self, directory: Path, arguments: Sequence[str], script: Path = DRIVER) -> None:
        self.lines: list[str] = []
        self.known: list[psutil.Process] = []
        self.stderr_path = directory / "driver.log"
        path = f"{ENVIRONMENT['PYTHONPATH']}:{ROOT}"
        with self.stderr_path.open("a") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(script), *arguments, str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=ENVIRONMENT | {"PYTHONPATH": path},
                start_new_session=True,
            )
        self.listener = threading.Thread(target=self.read_lines)
        self.listener.start()

    def read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_until_running(self) -> None:
        eventually(lambda: "running" in self.lines or not self.is_running, "a start", START_SECONDS)
        assert self.is_running, self.stderr_path.read_text()[-4000:]

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def java(self) -> psutil.Process:
        [line] = [line for line in self.lines if line.startswith("java ")]
        return psutil.Process(int(line.split()[1]))

    def failures(self) -> list[str]:
        """Streams and jobs that failed. driver.py restarts its streams."""
        return [line for line in list(self.lines) if line.startswith("failed ")]

    def require_running(self) -> None:
        """AssertionError with the whole report if the driver has ended, or if a stream or job failed."""
        if failed := self.failures():
            raise AssertionError("\n".join(failed))
        assert self.is_running, self.stderr_path.read_text()[-4000:]

    def workers(self) -> dict[str, list[psutil.Process]]:
        """The JVM's Python processes by module, such as `worker.plan_data_source_read`. Daemons are listed separately
        from the processes they fork."""
        java = self.java
        found: dict[str, list[psutil.Process]] = {}
        for process in java.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                command = process.cmdline()
                if not command:
                    continue
                name = command[-1].removeprefix("pyspark.").removeprefix("sql.")
                is_daemon = "pyspark.daemon" in command and process.ppid() == java.pid
                found.setdefault(f"daemon of {name}" if is_daemon else name, []).append(process)
        return found

    # ---- aiming

    def freeze(self) -> None:
        """Pause the JVM, so that the position of its streams can be read before deciding to kill it."""
        java = self.java
        java.suspend()
        eventually(lambda: java.status() == psutil.STATUS_STOPPED, "Java standing still")

    def thaw(self) -> None:
        with suppress(psutil.NoSuchProcess):
            self.java.resume()

    def kill(self, victim: Victim) -> None:
        """SIGKILL Python, the JVM, or both. Returns when Python has ended. The JVM's own workers must detect the end
        themselves."""
        java = self.java
        self.freeze()
        self.known = [java, *java.children(recursive=True)]
        if victim is not Victim.JAVA:
            self.process.kill()
        if victim is not Victim.PYTHON:
            java.kill()
        self.thaw()
        self.reap()

    # ---- ending

    def finish(self, seconds: float = END_SECONDS) -> None:
        """Request a clean end; returns when the result is written."""
        assert self.process.stdin is not None
        self.known = psutil.Process(self.process.pid).children(recursive=True)
        self.process.stdin.write("finish\n")
        self.process.stdin.flush()
        code = self.process.wait(seconds)
        assert code == 0, (self.failures(), self.stderr_path.read_text()[-4000:])
        self.reap()

    def reap(self) -> None:
        self.process.wait(END_SECONDS)
        self.listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def remaining(self) -> list[psutil.Process]:
        """Processes of this run that outlived it."""
        return [process for process in self.known if not has_ended(process)]

    def end(self) -> None:
        """Kill all remaining processes."""
        if self.is_running:
            self.known = psutil.Process(self.process.pid).children(recursive=True)
        for process in self.known:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if self.is_running:
            os.killpg(self.process.pid, 9)
            self.reap()
