"""Print every difference and, where both reject a request, the error messages of both.

python -m interop.scenarios [one|three|log-dirs|consumer-groups|transactions]      all but the last by default

`one` and `three` are the scripts for one broker and for three, `log-dirs` is that for a broker with three directories.
`consumer-groups` is that for the new consumer protocol, `transactions` is the part of `one` about transactions.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from barnabas.java.find import Java
from interop.harness.jars import Jars, jars, require_java
from interop.scenarios.both import play_to_both
from interop.scenarios.compare import differences
from interop.scenarios.consumer_groups import play_to_consumer_groups
from interop.scenarios.log_dirs import play_to_log_dirs
from interop.scenarios.script import TRANSACTIONS_ONLY
from interop.scenarios.step import Transcript
from interop.scenarios.three.both import play_to_three

Play = Callable[[Path, Java, Jars], tuple[Transcript, Transcript]]

ALL: dict[str, Play] = {
    "one": play_to_both,
    "three": play_to_three,
    "log-dirs": play_to_log_dirs,
    "consumer-groups": play_to_consumer_groups,
}
SCRIPTS: dict[str, Play] = {
    **ALL,
    "transactions": partial(play_to_both, script=TRANSACTIONS_ONLY, after_stop=()),
}


def main(names: list[str]) -> None:
    for name in names or ALL:
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
