"""`barnabas up -- COMMAND`: a command that runs against the cluster. Also how other programs learn its address.

--write-env FILE    FILE has the variables of `server_variables` while the cluster is up
--ready-fd N        the bootstrap servers and a newline are written to descriptor N when the cluster is up
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from barnabas.cli.brokers.broker_process import signal_with_parent
from barnabas.cli.options import SERVERS_VARIABLE
from barnabas.errors import ConfigError, reason
from barnabas.security.client_sources import CONFIG_VARIABLE

SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
)
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these to the command itself: Ctrl-C and Ctrl-\\."""
STANDARD_DESCRIPTORS = (0, 1, 2)


def server_variables(servers: str) -> dict[str, str]:
    """The environment variables that have the address of the cluster."""
    return {SERVERS_VARIABLE: servers, "BOOTSTRAP_SERVERS": servers}


class ReadyNotice(NamedTuple):
    """Where the address of the cluster is announced."""

    env_file: Path | None = None
    descriptor: int | None = None

    def check(self) -> None:
        """Raise ConfigError before the cluster starts if the address could not be announced."""
        if self.descriptor is not None:
            try:
                os.fstat(self.descriptor)
            except OSError as error:
                why = f"{self.descriptor} is not an open file descriptor; open it, as in {self.descriptor}>FILE"
                raise ConfigError("--ready-fd", why) from error
        if self.env_file is not None:
            self.remove_env_file()

    def remove_env_file(self) -> None:
        """Remove the file of this or of an earlier cluster. Raises ConfigError if it has other contents."""
        assert self.env_file is not None
        with env_file_errors(self.env_file), suppress(FileNotFoundError):
            for line in self.env_file.read_text(errors="replace").splitlines():
                if line.partition("=")[0] not in {*server_variables(""), CONFIG_VARIABLE}:
                    why = f"{self.env_file} exists and has other contents; choose another file"
                    raise ConfigError("--write-env", why)
            self.env_file.unlink()

    @contextmanager
    def published(self, servers: str, variables: Mapping[str, str]) -> Iterator[None]:
        """Announce the address and the variables. Remove the file at the end of the `with` block."""
        if self.env_file is not None:
            write_env_file(self.env_file, variables)
        if self.descriptor is not None:
            with suppress(OSError):  # the reader is gone
                os.write(self.descriptor, f"{servers}\n".encode())
            if self.descriptor not in STANDARD_DESCRIPTORS:
                os.close(self.descriptor)
        try:
            yield
        finally:
            if self.env_file is not None:
                self.env_file.unlink(missing_ok=True)


def write_env_file(path: Path, variables: Mapping[str, str]) -> None:
    """Write the file in one step: a program that waits for it never reads a part of it."""
    temporary = path.with_name(f"{path.name}.tmp")
    with env_file_errors(path):
        temporary.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
        temporary.replace(path)


@contextmanager
def env_file_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError("--write-env", f"cannot write {path}: {reason(error)}") from error


def check_command(command: Sequence[str]) -> None:
    """Raise ConfigError before the cluster starts if the program of the command does not exist."""
    if command and shutil.which(command[0]) is None:
        raise ConfigError("COMMAND", f"'{command[0]}' is not a program that can be run")


async def run_with_variables(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run the command with these variables in its environment. Returns its exit code, 128+N after signal N.

    Signals are forwarded to it. If this process is killed, the command gets SIGTERM. Call it in the main thread.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **variables},
            preexec_fn=signal_with_parent(os.getpid(), signal.SIGTERM),
        )
    except OSError as error:
        raise ConfigError("COMMAND", f"cannot run '{command[0]}': {reason(error)}") from error

    def forward(number: signal.Signals) -> None:
        if process.returncode is None and not (number in FROM_TERMINAL and sys.stdin.isatty()):
            process.send_signal(number)

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, forward, number)
    code = await process.wait()
    return 128 - code if code < 0 else code
