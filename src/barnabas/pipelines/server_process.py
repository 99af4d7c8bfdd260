"""Starts and stops the Spark Connect server of a pipeline (server.py) from the command."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnabas.errors import BarnabasError, ConfigError

STOP_S = 30.0
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
CLIENT_VARIABLES = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")
"""Variables with which PySpark would start a Connect client instead of a driver."""
STACK_LINE = re.compile(r"\s+(at |\.\.\. \d+ more)")


class ServerFailed(BarnabasError):
    """The Spark Connect server did not start."""


def check_connect(spark_home: Path) -> None:
    """Raise ConfigError if this Spark cannot start a Connect server. Its JVM would end with a stack trace."""
    if not any((spark_home / "jars").glob("spark-connect_*.jar")):
        why = f"{spark_home} has no Spark Connect (jars/spark-connect_*.jar)"
        hint = "unset SPARK_HOME and run: pip install --force-reinstall 'barnabas[pipelines]'"
        raise ConfigError(
            "spark", f"{why}; {hint}, or use a Connect server: --remote sc://host:port"
        )


class ServerProcess:
    """A Connect server on this machine. Only its owner knows the token that a client needs."""

    def __init__(self, arguments: Mapping[str, Any], log: Path) -> None:
        """Start the process. `wait_ready` returns when it accepts clients."""
        self.log = log
        token = secrets.token_hex(16)
        environment = {
            name: value for name, value in os.environ.items() if name not in CLIENT_VARIABLES
        }
        environment[TOKEN_VARIABLE] = token
        self.token = token
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "barnabas.pipelines.server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
                text=True,
                # Ctrl-C goes to the foreground group. The command decides when the server ends.
                start_new_session=True,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(dict(arguments)) + "\n")
        self.process.stdin.flush()

    def wait_ready(self) -> str:
        """Return the address for a client. Raises ConfigError (also NoJava) and ServerFailed."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {}
        if "port" in answer:
            return f"sc://localhost:{answer['port']}/;token={self.token}"
        if "key" in answer:
            raise ConfigError(answer["key"], answer["why"])
        raise ServerFailed(answer.get("error") or self.last_words())

    def last_words(self) -> str:
        end = last_message(self.log.read_text(errors="replace"))[:300]
        return f"Spark ended before it had started: {end or 'without output'}; its output is in {self.log}"

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> None:
        """End the server and its JVM."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def last_message(output: str) -> str:
    """Return the last line that is not part of a Java stack, or an empty text.

    >>> last_message("start\\njava.lang.Error: no class\\n\\tat x.Y(Y.java:1)\\n\\t... 9 more\\n")
    'java.lang.Error: no class'
    """
    lines = (line for line in output.splitlines() if line.strip())
    return next((line for line in reversed(list(lines)) if not STACK_LINE.match(line)), "")
