"""`python -m interop.scenarios`: every difference, and where both refuse, what each of them says to people."""

from __future__ import annotations

import tempfile
from pathlib import Path

from interop.harness.jars import jars, require_java
from interop.scenarios.both import play_to_both
from interop.scenarios.compare import differences


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        kafka, ours = play_to_both(Path(scratch), require_java(), jars())
    for found in differences(kafka, ours):
        print(f"{found.step} | {found.path} | {found.kafka} | {found.ours}")
    for step, texts in kafka.messages.items():
        for path, text in texts.items():
            mine = ours.messages.get(step, {}).get(path)
            if text != mine and not path.endswith("documentation"):
                print(f"\n{step} | {path}\n  Kafka: {text}\n  ours:  {mine}")


if __name__ == "__main__":
    main()
