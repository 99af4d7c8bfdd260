"""Attack a broker on this machine and print what it cost.

    python -m tests.adversary apis [--api NAME ...] [--kind KIND ...] [--thorough]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.adversary.generator import KINDS
from tests.adversary.table import run_apis


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.adversary", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    apis = commands.add_parser("apis", help="generated requests, API by API")
    apis.add_argument("--api", action="append", default=[])
    apis.add_argument("--kind", action="append", default=[], choices=list(KINDS))
    apis.add_argument("--thorough", action="store_true", help="large requests in every version")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        over = run_apis(Path(where), options.api, options.kind, is_thorough=options.thorough)
    sys.exit(bool(over))


if __name__ == "__main__":
    main()
