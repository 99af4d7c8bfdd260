"""One life of driver.py: its Java, the Python processes of that Java, and their end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from support.process import ENVIRONMENT
from support.waiting import eventually

DRIVER = Path(__file__).with_name("driver.py")
START_SECONDS = 120.0
END_SECONDS = 120.0


class DriverProcess:
    def __init__(self, directory: Path, arguments: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.known: list[psutil.Process] = []
        self.stderr_path = directory / "driver.log"
        # Each life starts a dozen Pythons. Whatever they compile is kept, apart from the source tree.
        environment = ENVIRONMENT | {"PYTHONPYCACHEPREFIX": str(directory / "pycache")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with self.stderr_path.open("a") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(DRIVER), *arguments, str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment,
                start_new_session=True,
            )
        self.listener = threading.Thread(target=self.listen)
        self.listener.start()

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_until_running(self) -> None:
        eventually(lambda: "running" in self.lines or not self.lives, "a start", START_SECONDS)
        assert self.lives, self.stderr_path.read_text()[-4000:]

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    @property
    def java(self) -> psutil.Process:
        [line] = [line for line in self.lines if line.startswith("java ")]
        return psutil.Process(int(line.split()[1]))

    def failures(self) -> list[str]:
        """Streams that failed and were started again by the driver itself."""
        return [line for line in list(self.lines) if line.startswith("failed ")]

    def workers(self) -> dict[str, list[psutil.Process]]:
        """Java's Python processes by what they run, as `worker.plan_data_source_read`; a daemon is told from those it
        forks."""
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
        """Java stands still, so that where its streams stand can be looked at before it is decided to kill it."""
        java = self.java
        java.suspend()
        eventually(lambda: java.status() == psutil.STATUS_STOPPED, "Java standing still")

    def thaw(self) -> None:
        self.java.resume()

    def kill_java(self) -> None:
        """kill -9 of Java; the Python in front of it has then nothing left to do. Java's own workers are left to find
        out for themselves."""
        self.known = self.java.children(recursive=True)
        self.java.kill()
        self.process.kill()
        self.reap()

    # ---- ending

    def finish(self) -> None:
        """Ask for a good end, which is when what was found has been written."""
        assert self.process.stdin is not None
        self.known = psutil.Process(self.process.pid).children(recursive=True)
        self.process.stdin.write("finish\n")
        self.process.stdin.flush()
        code = self.process.wait(END_SECONDS)
        assert code == 0, self.stderr_path.read_text()[-4000:]
        self.reap()

    def reap(self) -> None:
        self.process.wait(END_SECONDS)
        self.listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def left(self) -> list[psutil.Process]:
        """Processes of this life that outlived it."""
        return [process for process in self.known if not has_ended(process)]

    def end(self) -> None:
        """Whatever is left of it, at once."""
        if self.lives:
            self.known = psutil.Process(self.process.pid).children(recursive=True)
        for process in self.known:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if self.lives:
            os.killpg(self.process.pid, 9)
            self.reap()


def has_ended(process: psutil.Process) -> bool:
    """Also one that nobody has asked for its exit code yet. Between two questions it may go altogether."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
