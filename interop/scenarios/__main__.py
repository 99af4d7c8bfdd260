"""Every difference, and where both refuse, what each of them says to people.

python -m interop.scenarios [one|three]      of the script for one broker, or of that for three; else of both
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from interop.harness.jars import jars, require_java
from interop.scenarios.both import play_to_both
from interop.scenarios.compare import differences
from interop.scenarios.step import Transcript
from interop.scenarios.three.both import play_to_three

SCRIPTS = {"one": play_to_both, "three": play_to_three}


def main(names: list[str]) -> None:
    for name in names or SCRIPTS:
        with tempfile.TemporaryDirectory() as scratch:
            tell(*SCRIPTS[name](Path(scratch), require_java(), jars()))


def tell(kafka: Transcript, ours: Transcript) -> None:
    for found in differences(kafka, ours):
        print(f"{found.step} | {found.path} | {found.kafka} | {found.ours}")
    for step, texts in kafka.messages.items():
        for path, text in texts.items():
            mine = ours.messages.get(step, {}).get(path)
            if text != mine and not path.endswith("documentation"):
                print(f"\n{step} | {path}\n  Kafka: {text}\n  ours:  {mine}")


if __name__ == "__main__":
    main(sys.argv[1:])
