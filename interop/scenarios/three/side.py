"""Three brokers of one kind below their own znode, with actions and requests."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from interop.harness.member import Member, start_together
from interop.harness.znodes import Znodes
from interop.scenarios.directory import partition_directory
from interop.scenarios.normalise import Flat, Normaliser
from interop.scenarios.runner import HUNG_UP, STAYS
from interop.scenarios.step import Transcript
from interop.scenarios.three.step import (
    Action,
    Ask,
    Kill,
    ListReplicas,
    Pause,
    Resume,
    Role,
    Send,
    Start,
    Step,
    Stop,
    Which,
)
from interop.scenarios.three.view import View, find_unrest, flatten_view
from support.process import pause_process, require_running
from tests.compatibility.raw import Raw

REST_SECONDS = 60.0
UNTIL_SECONDS = 20.0
STILL_SECONDS = 0.7
TO_BE_REMOVED = "-delete"
POLL_SECONDS = 0.1


class Side:
    """A cluster. `play` does a step; `look` waits until the cluster is at rest, and records its state."""

    def __init__(self, name: str, brokers: Sequence[Member]) -> None:
        self.name = name
        self.brokers = {broker.broker_id: broker for broker in brokers}
        self.alive: set[int] = set()
        self.controller: int | None = None
        self.normaliser = Normaliser()
        self.transcript = Transcript()
        self.answers: dict[str, Any] = {}

    def start(self) -> None:
        """Start the first broker alone, so that it becomes controller, then the others together."""
        first, *others = self.brokers.values()
        start_together([first])
        self.alive.add(first.broker_id)
        start_together(others, already=[first])
        self.alive.update(self.brokers)
        self.controller = first.broker_id

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    # ---- a step

    def take(self, step: Step) -> None:
        self.play(step)
        if step.is_recorded:
            self.look(step)

    def play(self, step: Step) -> None:
        assert step.name not in self.transcript.answers, f"two steps: {step.name}"
        self.normaliser.now_ms = int(time.time() * 1000)
        self.transcript.answers[step.name] = self.do(step.name, step.action)

    def do(self, name: str, action: Action) -> Flat:
        match action:
            case Ask():
                values, texts = self.ask(name, action)
                self.transcript.messages[name] = texts
                return values
            case Send():
                return self.send(action)
            case Stop():
                self.alive.discard(action.broker)
                self.brokers[action.broker].stop()
            case Kill():
                self.alive.discard(action.broker)
                self.brokers[action.broker].kill()
            case Pause():
                pause_process(self.brokers[action.broker].running.pid)
            case Resume():
                os.kill(self.brokers[action.broker].running.pid, signal.SIGCONT)
            case Start():
                self.brokers[action.broker].settings.update(action.settings)
                self.brokers[action.broker].launch()
                self.alive.add(action.broker)
            case ListReplicas():
                return self.replicas(action)
        return {}

    def look(self, step: Step) -> None:
        deadline = time.monotonic() + REST_SECONDS
        before, since = None, 0.0
        while True:
            for broker in self.alive:
                require_running(self.brokers[broker].running)
            view, why = None, "the brokers do not answer"
            with contextlib.suppress(OSError, LookupError):
                view = self.view()
                why = find_unrest(view, self.alive) or ""
            if view is not None and view.marked_topics and not why:
                # A pending deletion is at rest when it makes no more progress.
                if before is None or (before.znodes, before.directories) != (
                    view.znodes,
                    view.directories,
                ):
                    before, since = view, time.monotonic()
                why = "" if time.monotonic() > since + STILL_SECONDS else "a deletion goes on"
            if not why or time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        assert view is not None, f"{self.name}, {step.name}: {why}"
        self.controller = view.controller
        answer = {**self.transcript.answers[step.name], **flatten_view(view, self.normaliser)}
        # A pending change is a difference, and names itself.
        self.transcript.answers[step.name] = {**answer, "still to come": why}

    def view(self) -> View:
        metadata = {}
        for broker in sorted(self.alive):
            with Raw(self.brokers[broker].bootstrap_servers) as raw:
                everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
                metadata[broker] = raw.ask(everything, MetadataResponse)
        address, _, chroot = self.brokers[1].settings["zookeeper.connect"].partition("/")
        with Znodes(int(address.rpartition(":")[2])) as znodes:
            return View(znodes.tree(f"/{chroot}"), metadata, self.directories())

    def directories(self) -> dict[int, frozenset[str]]:
        return {
            number: frozenset(
                path.name
                for path in broker.log_dir.glob("*-*")
                if path.is_dir() and not path.name.endswith(TO_BE_REMOVED)
            )
            for number, broker in self.brokers.items()
        }

    # ---- requests and files

    def number(self, which: Which) -> int:
        if isinstance(which, int):
            return which
        assert self.controller is not None
        if which is Role.CONTROLLER:
            return self.controller
        return min(self.alive - {self.controller})

    def ask(self, step: str, action: Ask) -> tuple[Flat, Flat]:
        deadline = time.monotonic() + UNTIL_SECONDS
        while True:
            answer = self.answers[step] = self.ask_once(action)
            values, texts = self.normaliser.flatten(answer)
            path, wanted = action.until or ("", None)
            if values.get(path) == wanted or time.monotonic() > deadline:
                return values, texts
            time.sleep(POLL_SECONDS)

    def ask_once(self, action: Ask) -> Message | dict[str, Any]:
        message = action.request(self) if callable(action.request) else action.request
        try:
            with Raw(self.brokers[self.number(action.broker)].bootstrap_servers) as raw:
                return raw.ask(message, APIS[message.API_KEY].response, action.version)
        except (ConnectionError, TimeoutError) as error:
            return {"connection": type(error).__name__}

    def send(self, action: Send) -> Flat:
        """The connection counts as open if it answers the next request."""
        message = action.request(self) if callable(action.request) else action.request
        try:
            with Raw(self.brokers[self.number(action.broker)].bootstrap_servers) as raw:
                raw.begin(message)
                raw.ask(MetadataRequest(topics=()), MetadataResponse)
        except ConnectionError:
            return dict(HUNG_UP)
        return dict(STAYS)

    # ---- request context

    def topic_id(self, topic: str) -> UUID:
        """The id of the newest topic with this name."""
        return [known for known, name in self.normaliser.topics.items() if name == topic][-1]

    def answer(self, step: str) -> Any:
        return self.answers[step]

    def replicas(self, action: ListReplicas) -> Flat:
        found: Flat = {}
        for number, broker in self.brokers.items():
            directory = broker.log_dir / f"{action.topic}-{action.partition}"
            if directory.is_dir():
                files = partition_directory(directory, self.normaliser)
                found |= {f"broker {number}: {name}": value for name, value in files.items()}
        return found
