"""What the controller does, told while it happens: read from the files in which every controller notes it at once.

`barnabas topics history NAME --follow` tells the same from the topic `__state_changes`, with the requests to the
brokers and their answers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barnabas.cli.history.narrator import Narrator

LOOK_EVERY_SECONDS = 0.05
TOLD = ("controller", "partition", "topic")

Event = dict[str, Any]


class Transitions(threading.Thread):
    """Prints from the moment it is started; `catch_up` before saying what came of it."""

    def __init__(
        self, directory: Path, topics: tuple[str, ...], say: Callable[[str], None]
    ) -> None:
        super().__init__(daemon=True)
        self.directory = directory
        self.narrators = {topic: Narrator(topic) for topic in topics}
        self.say = say
        self.read_bytes: dict[Path, int] = {}
        self.lock = threading.Lock()
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(LOOK_EVERY_SECONDS):
            self.catch_up()

    def stop(self) -> None:
        self.is_over.set()
        self.join()

    def catch_up(self) -> None:
        with self.lock:
            found = [event for path in self.paths() for event in self.new_events(path)]
            for event in sorted(found, key=lambda event: (event["epoch"], event["sequence"])):
                self.tell(event)

    def paths(self) -> list[Path]:
        return sorted(self.directory.glob("broker-*/state-changes-*.jsonl"))

    def new_events(self, path: Path) -> Iterator[Event]:
        """Whole lines that were not there before."""
        seen = self.read_bytes.get(path, 0)
        with path.open("rb") as file:
            file.seek(seen)
            lines = file.read().rpartition(b"\n")[0]
        if lines:
            self.read_bytes[path] = seen + len(lines) + 1
            yield from map(json.loads, lines.split(b"\n"))

    def tell(self, event: Event) -> None:
        topic = event.get("topic", next(iter(self.narrators)))
        if event["what"] in TOLD and topic in self.narrators:
            time = event["at"].rpartition("T")[2].rstrip("Z")
            about = f"{topic}, " if event["what"] != "controller" else ""
            self.say(f"   │ {time}  {about}{self.narrators[topic].sentence([event])}")
