"""Files that describe the running pipelines and streams of this user, for other processes.

    $XDG_STATE_HOME/barnabas/pipelines/        (~/.local/state/barnabas/pipelines)
        NAME.lock      locked by the process that runs the pipeline
        NAME.json      its process id, files and progress
        NAME.log       output of Spark
    $XDG_STATE_HOME/barnabas/streams/          the same for the streams of a session; NAME is the process id

The lock ends with its process, even by SIGKILL, so a file without a locked lock is stale. Process ids alone would not
show that, because the system uses them again.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from barnabas.errors import ConfigError
from barnabas.spark.cache import replace_file

LOCK_WAIT_S = 1.0
"""`status` holds a lock for an instant."""


def state_directory(kind: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory for `pipelines` or `streams`."""
    configured = Path(environment.get("XDG_STATE_HOME", ""))
    root = configured if configured.is_absolute() else Path.home() / ".local" / "state"
    return root / "barnabas" / kind


class RunState:
    """The files of a pipeline or session that this process runs."""

    def __init__(self, directory: Path, name: str, lock: IO[str]) -> None:
        self.path = directory / f"{name}.json"
        self.log = directory / f"{name}.log"
        self.lock = lock

    @classmethod
    def open(cls, directory: Path, name: str) -> RunState:
        """Lock the name. Raises ConfigError if another process runs a pipeline with this name."""
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (directory / f"{name}.lock").open("a+")
        except OSError as error:
            raise ConfigError(str(directory), f"cannot be used: {error.strerror}") from None
        deadline = time.monotonic() + LOCK_WAIT_S
        while not try_lock(lock):
            if time.monotonic() > deadline:
                lock.close()
                run = read_state(directory / f"{name}.json") or {}
                who = f"by process {run['pid']} ({run['spec']})" if "pid" in run else "already"
                why = f"this pipeline is run {who}; stop it first: barnabas pipeline stop {name}"
                raise ConfigError(name, why)
            time.sleep(0.05)
        return cls(directory, name, lock)

    def save(self, document: Mapping[str, Any]) -> None:
        replace_file(self.path, json.dumps(document).encode(), mode=0o600)

    def close(self) -> None:
        self.path.unlink(missing_ok=True)
        self.lock.close()


def try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_state(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def is_running(directory: Path, name: str) -> bool:
    try:
        with (directory / f"{name}.lock").open("a+") as lock:
            return not try_lock(lock)
    except OSError:
        return False


def list_runs(directory: Path) -> list[dict[str, Any]]:
    """Return the states that running processes wrote, sorted by name. Removes those of processes that were killed."""
    runs = []
    for path in sorted(directory.glob("*.json")):
        if is_running(directory, path.stem):
            state = read_state(path)
            if state is not None:
                runs.append(state)
        else:
            path.unlink(missing_ok=True)
    return runs
