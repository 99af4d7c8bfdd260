"""Download Apache Kafka and install stream-processing frameworks if they are missing, then run the tests.

python -m interop [arguments for pytest]
"""

from __future__ import annotations

import os
import sys

from interop.harness.frameworks import install_frameworks
from interop.harness.jars import INTEROP, fetch
from interop.harness.unavailable import FetchFailed, RegistryUnreachable, Unavailable


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
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *(arguments or [str(INTEROP)])])


if __name__ == "__main__":
    main(sys.argv[1:])
