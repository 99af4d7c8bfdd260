"""`barnabas <arguments>` in a child process, which imports the same `barnabas` package as this process."""

from __future__ import annotations

import subprocess
import sys

from support.process import ENVIRONMENT

COMMAND = [sys.executable, "-m", "barnabas.cli.main"]
RUN_SECONDS = 60


def run(*arguments: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run `barnabas <arguments>` to its end, as the user with the id `user` if it is given."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env=ENVIRONMENT,
        check=False,
        user=user,
    )
