"""Plays a script to one broker and records the responses. It compares nothing and expects nothing."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codec import Message
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.world.registry.reader import Reader
from interop.harness.kafka import KafkaBroker
from interop.harness.znodes import Znodes
from interop.scenarios.directory import log_directory, partition_directory
from interop.scenarios.normalise import Normaliser
from interop.scenarios.registry import Nodes, paths_in, shown_znodes
from interop.scenarios.step import (
    Action,
    Ask,
    Await,
    Begin,
    End,
    ListLogDir,
    ListPartition,
    ListZnodes,
    Request,
    Restart,
    Send,
    SendBytes,
    Step,
    Transcript,
)
from support.broker import BrokerProcess
from tests.compatibility.raw import Raw

AWAIT_SECONDS = 30.0
LATEST_OF_3_9: dict[int, int] = {ApiKey.CONSUMER_GROUP_HEARTBEAT: 0}
"""The newest versions of Kafka 3.9, for APIs that Barnabas serves in newer versions."""
HUNG_UP = {"connection": "closed by the broker"}
STAYS = {"connection": "stays open"}


class RealKafka:
    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.bootstrap_servers = broker.bootstrap_servers
        self.log_dir = broker.log_dir

    def znodes(self) -> Nodes:
        address, _, chroot = self.broker.settings["zookeeper.connect"].partition("/")
        with Znodes(int(address.rpartition(":")[2])) as znodes:
            return znodes.tree(f"/{chroot}")

    def stop(self) -> None:
        self.broker.stop()

    def start(self) -> None:
        self.broker.start()
        self.bootstrap_servers = self.broker.bootstrap_servers


class Ours:
    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.bootstrap_servers = broker.bootstrap_servers
        self.log_dir = broker.log_dir

    def znodes(self) -> Nodes:
        reader = Reader(str(self.broker.data / "registry"))
        try:
            tree = reader.tree()
            found = {path: tree.node(path) for path in paths_in(tree)}
            return {path: (node.data, node.stat().version) for path, node in found.items()}
        finally:
            reader.close()

    def stop(self) -> None:
        self.broker.stop(signal.SIGTERM)

    def start(self) -> None:
        self.broker.start()


class PendingRequest(NamedTuple):
    """A request without its response yet."""

    raw: Raw
    response: type[Message]
    version: int
    correlation_id: int


class Runner:
    def __init__(self, broker: RealKafka | Ours) -> None:
        self.broker = broker
        self.normaliser = Normaliser()
        self.transcript = Transcript()
        self.answers: dict[str, Any] = {}
        self.connection: Raw | None = None
        self.begun: dict[str, PendingRequest] = {}

    def run(self, script: Iterable[Step]) -> Transcript:
        try:
            for step in script:
                assert step.name not in self.transcript.answers, f"two steps: {step.name}"
                self.normaliser.now_ms = int(time.time() * 1000)
                self.do(step.name, step.action)
        finally:
            self.disconnect()
            for begun in self.begun.values():
                begun.raw.close()
        return self.transcript

    def do(self, name: str, action: Action) -> None:
        answer: dict[str, object]
        match action:
            case Ask():
                self.note(name, lambda: self.ask(action.request, action.version, action.patience_s))
                return
            case Await():
                self.note(name, lambda: self.ask_until(action))
                return
            case End():
                self.note(name, lambda: self.end(action))
                return
            case Begin():
                answer = self.begin(name, action)
            case Send():
                answer = self.send(action.request, action.version)
            case SendBytes():
                answer = self.send_bytes(action.data)
            case Restart():
                self.disconnect()
                self.broker.stop()
                self.broker.start()
                answer = {}
            case ListPartition():
                directory = self.broker.log_dir / f"{action.topic}-{action.partition}"
                answer = partition_directory(directory, self.normaliser)
            case ListLogDir():
                answer = log_directory(self.broker.log_dir)
            case ListZnodes():
                answer = shown_znodes(self.broker.znodes(), self.normaliser)
        self.transcript.answers[name] = answer

    def note(self, name: str, ask: Callable[[], object]) -> None:
        try:
            answer = ask()
        except (ConnectionError, TimeoutError) as error:
            self.disconnect()
            closed = not isinstance(error, TimeoutError)
            self.transcript.answers[name] = HUNG_UP if closed else {"connection": "no answer"}
            return
        self.answers[name] = answer
        values, texts = self.normaliser.flatten(answer)
        self.transcript.answers[name] = values
        self.transcript.messages[name] = texts

    # ---- request context

    def topic_id(self, topic: str) -> UUID:
        return next(known for known, name in self.normaliser.topics.items() if name == topic)

    def answer(self, step: str) -> Any:
        return self.answers[step]

    # ---- the wire

    def ask(self, request: Request, version: int | None, patience_s: float) -> Message:
        message = request(self) if callable(request) else request
        raw = self.connected()
        raw.socket.settimeout(patience_s)
        if version is None:
            version = LATEST_OF_3_9.get(message.API_KEY)
        return raw.ask(message, APIS[message.API_KEY].response, version)

    def ask_until(self, action: Await) -> Message:
        deadline = time.monotonic() + AWAIT_SECONDS
        while True:
            answer = self.ask(action.request, action.version, AWAIT_SECONDS)
            found, _ = self.normaliser.flatten(answer)
            if found.get(action.path) == action.value or time.monotonic() > deadline:
                return answer
            time.sleep(0.05)

    def begin(self, step: str, action: Begin) -> dict[str, object]:
        message = action.request(self) if callable(action.request) else action.request
        raw = Raw(self.broker.bootstrap_servers)
        sent = raw.begin(message, action.version)
        self.begun[step] = PendingRequest(raw, APIS[message.API_KEY].response, *sent)
        return {}

    def end(self, action: End) -> Message:
        begun = self.begun.pop(action.step)
        begun.raw.socket.settimeout(action.patience_s)
        try:
            return begun.raw.answer(begun.response, begun.version, begun.correlation_id)
        finally:
            begun.raw.close()

    def send(self, request: Request, version: int | None) -> dict[str, object]:
        """The connection counts as open if it answers the next request."""
        raw = self.connected()
        message = request(self) if callable(request) else request
        try:
            raw.begin(message, version)
            raw.ask(MetadataRequest(topics=()), MetadataResponse)
        except ConnectionError:
            self.disconnect()
            return dict(HUNG_UP)
        return dict(STAYS)

    def send_bytes(self, data: bytes) -> dict[str, object]:
        self.disconnect()
        raw = self.connected()
        try:
            raw.send(data)
            raw.socket.settimeout(5.0)
            size = len(raw.receive())
        except (ConnectionError, TimeoutError) as error:
            return dict(HUNG_UP) if isinstance(error, ConnectionError) else dict(STAYS)
        finally:
            self.disconnect()
        return {"answered with bytes": size}

    def connected(self) -> Raw:
        if self.connection is None:
            self.connection = Raw(self.broker.bootstrap_servers)
        return self.connection

    def disconnect(self) -> None:
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.close()
            self.connection = None
