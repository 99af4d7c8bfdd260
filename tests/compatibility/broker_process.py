"""`barnabas up` as an operator runs it: it can be told to stop or killed, and started again in the same place."""

import random
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests import child_process

STOP_SECONDS_MAX = 30


class BrokerProcess:
    """Up when the context begins."""

    def __init__(self, data: Path, port: int, *settings: str) -> None:
        self.data = data
        self.port = port
        self.settings = settings
        self.process: subprocess.Popen[str] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_directory(self) -> Path:
        return self.data / "broker-1"

    def start(self) -> None:
        """Returns when it greets, which it does when clients can connect."""
        command = ["-m", "barnabas.cli.main", "up", "--port", str(self.port)]
        command += ["--data", str(self.data)]
        for setting in self.settings:
            command += ["--override", setting]
        process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            text=True,
            env=child_process.ENVIRONMENT,
        )
        self.process = process
        assert process.stdout is not None
        greeting = process.stdout.readline()
        assert "Barnabas is up" in greeting, f"the broker did not start: {greeting!r}"

    def end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.communicate(timeout=STOP_SECONDS_MAX)

    def restart(self, number: signal.Signals) -> None:
        self.end(number)
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)


def free_port() -> int:
    """A port nobody has now, for a broker that must come back to the same one.

    Not one of those the system gives to outgoing connections: while the broker is away, a client that tries to reach it
    could be given the very port, and even reach itself.
    """
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("none of a hundred ports is free")
