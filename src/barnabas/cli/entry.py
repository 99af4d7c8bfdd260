"""The `barnabas` program. It ends quietly if Ctrl-C comes while modules are imported."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    # Until all modules are imported, SIGINT ends the process at once, without a traceback.
    inherited = signal.signal(signal.SIGINT, signal.SIG_DFL)
    if inherited is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a background job of a shell
    from barnabas.cli.main import main as run

    try:
        if inherited is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
