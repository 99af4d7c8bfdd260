"""Download Apache Kafka and install stream-processing frameworks if they are missing, then run the tests.

python -m interop [arguments for pytest]

Without arguments, all tests run, in two processes at the same time. Each has its own brokers of Kafka.
"""

from __future__ import annotations

import os
import subprocess
import sys

from interop.harness.frameworks import install_frameworks
from interop.harness.jars import INTEROP, fetch
from interop.harness.unavailable import FetchFailed, RegistryUnreachable, Unavailable

FIRST_HALF = tuple(
    str(INTEROP / f"test_{name}.py")
    for name in (
        "data_directories",
        "dump_log",
        "group_tools",
        "java_clients",
        "java_exactly_once",
        "java_frameworks",
        "kafka_commands",
        "reassign_command",
        "tools",
        "tools_three_brokers",
        "transactional_data",
        "transactions_tool",
    )
)
"""Tests of files, command-line tools and Java programs, which take about half of the time."""


def main(arguments: list[str]) -> None:
    try:
        fetch()
    except Unavailable as error:
        if not error.may_skip():
            sys.exit(f"interop: {error}; in CI nothing may be skipped")
        print(f"interop is skipped: {error}")
        return
    except FetchFailed as error:
        sys.exit(f"interop: {error}")
    try:
        install_frameworks()
    except RegistryUnreachable as error:
        print(f"interop leaves out the Python frameworks: {error}")
    except FetchFailed as error:
        sys.exit(f"interop: {error}")
    pytest = [sys.executable, "-m", "pytest"]
    if arguments:
        os.execv(sys.executable, [*pytest, *arguments])
    others = [str(INTEROP), *(f"--ignore={path}" for path in FIRST_HALF)]
    halves = [subprocess.Popen([*pytest, *half]) for half in (FIRST_HALF, others)]
    codes = [half.wait() for half in halves]
    sys.exit(1 if any(codes) else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
