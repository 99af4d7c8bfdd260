"""A process that runs group members of one library, and their events. See clients/script.py."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from support.process import ENVIRONMENT
from tests.tools import KAFKAJS

ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).parent / "clients"
KAFKAJS_NAME = "kafkajs"

Line = dict[str, Any]


class Host:
    def __init__(self, library: str, data: Path) -> None:
        self.library = library
        self.handlers: dict[str, Callable[[Line], None]] = {}
        """Event handlers by member."""
        command = (
            ["node", str(CLIENTS / "kafkajs.js")]
            if library == KAFKAJS_NAME
            else [sys.executable, "-m", f"tests.groups.clients.{library}"]
        )
        self.errors = data / f"{library}.stderr"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env=ENVIRONMENT | {"NODE_PATH": str(KAFKAJS / "node_modules")},
                text=True,
            )
        self.listener = Thread(target=self.read_lines, daemon=True)
        self.listener.start()

    def read_lines(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue  # killed in the middle of a line
            self.handlers[line["member"]](line)

    def send(self, what: Line) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL the process; returns when all its output has been read."""
        self.process.kill()
        self.process.wait()
        self.listener.join()
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
