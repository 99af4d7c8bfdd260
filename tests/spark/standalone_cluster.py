"""A standalone Spark cluster: a master and its workers, each in its own process."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from barnabas.java.find import find_java
from barnabas.spark.cache import cache_directory
from barnabas.spark.installation import spark_home
from barnabas.spark.start_scripts import launcher_home

START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 20
MASTER_AT = re.compile(r"Starting Spark master at (spark://[\w.:]+)\n")
REGISTERED = re.compile(r"Registering worker ")


@contextlib.contextmanager
def standalone_cluster(
    directory: Path, workers: int, java_options: str, *, cores: int = 1
) -> Iterator[str]:
    """Yields the master's URL. The system chooses the ports; the master logs its own.

    `cores` is the number of tasks that one worker runs at the same time."""
    directory.mkdir(parents=True, exist_ok=True)
    started: list[subprocess.Popen[bytes]] = []
    log = directory / "master.log"
    try:
        master = ("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        started.append(start(log, directory, java_options, *master))
        url = wait_for(log, MASTER_AT, 1, started)[0]
        for number in range(workers):
            place = directory / f"worker-{number}"
            worker = ("worker.Worker", "--host", "127.0.0.1", "--webui-port", "0")
            work = ("--cores", str(cores), "--memory", "1g", "--work-dir", str(place), url)
            worker_log = directory / f"worker-{number}.log"
            started.append(start(worker_log, directory, java_options, *worker, *work))
        wait_for(log, REGISTERED, workers, started)
        yield url
    finally:
        for process in reversed(started):
            end(process)


def start(
    log: Path, directory: Path, java_options: str, role: str, *arguments: str
) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": java_options,
        "JAVA_HOME": str(launcher_home(find_java("Spark"), cache_directory())),
        # Workers get only the parts of the checkout that the session ships to them.
        "PYTHONPATH": "",
    }
    command = [str(spark_home() / "bin/spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
    with log.open("wb") as file:
        # In a new process session: executors are its children, and one signal ends them all.
        return subprocess.Popen(
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def wait_for(
    log: Path, pattern: re.Pattern[str], count: int, processes: list[subprocess.Popen[bytes]]
) -> list[str]:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        found = pattern.findall(log.read_text(errors="replace"))
        if len(found) >= count:
            return found
        assert all(process.poll() is None for process in processes), log.read_text()[-2000:]
        time.sleep(0.1)
    raise AssertionError(f"{pattern.pattern} not in {log} in time: {log.read_text()[-2000:]}")


def end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_TIMEOUT_S)


def bare_python(path: Path) -> Path:
    """A Python with all installed packages except this project, as on an unprepared worker.

    The project is installed for development by a line in site-packages. `-S` skips such lines, and the directory is
    added explicitly.
    """
    import pyarrow

    site = Path(pyarrow.__file__).parents[1]
    path.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{site}:$PYTHONPATH"\nexec "{sys.executable}" -S "$@"\n'
    )
    path.chmod(0o755)
    return path
