"""Prints the controller's state transitions as they happen, from the journal files of the brokers.

`barnabas topics history NAME --follow -v` shows the same events from the topic `__state_changes`, and also the requests
to brokers and their responses.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barnabas.cli.history.narrator import Narrator

POLL_SECONDS = 0.05
SHOWN_EVENTS = ("controller", "partition", "topic")

Event = dict[str, Any]


class Transitions(threading.Thread):
    """Prints new events from its start on. `catch_up` prints what is there, before the demo prints a result."""

    def __init__(
        self, directory: Path, topics: tuple[str, ...], print_text: Callable[[str], None]
    ) -> None:
        super().__init__(daemon=True)
        self.directory = directory
        self.narrators = {topic: Narrator(topic) for topic in topics}
        self.print_text = print_text
        self.read_bytes: dict[Path, int] = {}
        self.lock = threading.Lock()
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(POLL_SECONDS):
            self.catch_up()

    def stop(self) -> None:
        self.stopped.set()
        self.join()

    def catch_up(self) -> None:
        with self.lock:
            found = [event for path in self.paths() for event in self.new_events(path)]
            for event in sorted(found, key=lambda event: (event["epoch"], event["sequence"])):
                self.print_event(event)

    def paths(self) -> list[Path]:
        return sorted(self.directory.glob("broker-*/state-changes-*.jsonl"))

    def new_events(self, path: Path) -> Iterator[Event]:
        """Yield the events of complete lines that were not read before."""
        seen = self.read_bytes.get(path, 0)
        with path.open("rb") as file:
            file.seek(seen)
            lines = file.read().rpartition(b"\n")[0]
        if lines:
            self.read_bytes[path] = seen + len(lines) + 1
            yield from map(json.loads, lines.split(b"\n"))

    def print_event(self, event: Event) -> None:
        topic = event.get("topic", next(iter(self.narrators)))
        if event["what"] in SHOWN_EVENTS and topic in self.narrators:
            time = event["at"].rpartition("T")[2].rstrip("Z")
            about = f"{topic}, " if event["what"] != "controller" else ""
            self.print_text(f"   │ {time}  {about}{self.narrators[topic].sentence([event])}")
