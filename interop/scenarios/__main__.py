"""Print every difference and, where both reject a request, the error messages of both.

python -m interop.scenarios [one|three|log-dirs]      all by default

`one` and `three` are the scripts for one broker and for three, `log-dirs` is that for a broker with three directories.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from interop.harness.jars import jars, require_java
from interop.scenarios.both import play_to_both
from interop.scenarios.compare import differences
from interop.scenarios.log_dirs import play_to_log_dirs
from interop.scenarios.step import Transcript
from interop.scenarios.three.both import play_to_three

SCRIPTS = {"one": play_to_both, "three": play_to_three, "log-dirs": play_to_log_dirs}


def main(names: list[str]) -> None:
    for name in names or SCRIPTS:
        with tempfile.TemporaryDirectory() as scratch:
            print_differences(*SCRIPTS[name](Path(scratch), require_java(), jars()))


def print_differences(kafka: Transcript, ours: Transcript) -> None:
    for found in differences(kafka, ours):
        print(f"{found.step} | {found.path} | {found.kafka} | {found.ours}")
    for step, texts in kafka.messages.items():
        for path, text in texts.items():
            mine = ours.messages.get(step, {}).get(path)
            if text != mine and not path.endswith("documentation"):
                print(f"\n{step} | {path}\n  Kafka: {text}\n  ours:  {mine}")


if __name__ == "__main__":
    main(sys.argv[1:])
