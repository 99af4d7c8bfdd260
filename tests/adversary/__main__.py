"""Attack a broker on this machine and print the costs.

python -m tests.adversary apis [--api NAME ...] [--kind KIND ...] [--thorough]
python -m tests.adversary amplifiers [NAME ...]
python -m tests.adversary siege [--seconds N] [--full] [NAME ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.adversary.generator import KINDS
from tests.adversary.siege import besiege
from tests.adversary.table import run_amplifiers, run_apis


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.adversary", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    apis = commands.add_parser("apis", help="generated requests, API by API")
    apis.add_argument("--api", action="append", default=[])
    apis.add_argument("--kind", action="append", default=[], choices=list(KINDS))
    apis.add_argument("--thorough", action="store_true", help="large requests in every version")
    amplifiers = commands.add_parser("amplifiers", help="attacks by data, batches, connections")
    amplifiers.add_argument("name", nargs="*", help="part of a name; all by default")
    siege = commands.add_parser("siege", help="all attacks at once, beside other clients")
    siege.add_argument("--seconds", type=float, default=60.0)
    siege.add_argument("--full", action="store_true", help="with floods and generated requests")
    siege.add_argument("name", nargs="*", help="only amplifiers with this in their names")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        match options.command:
            case "apis":
                thorough = options.thorough
                ok = not run_apis(Path(where), options.api, options.kind, is_thorough=thorough)
            case "amplifiers":
                ok = not run_amplifiers(Path(where), options.name)
            case _:
                ok = besiege(Path(where), options.seconds, options.name, is_full=options.full)
    sys.exit(not ok)


if __name__ == "__main__":
    main()
