"""The I/O layers of a broker that crashes at a chosen point: they count outgoing operations and trigger at the n-th.

    write     create, set, delete or multi on the registry
    request   LeaderAndIsr, UpdateMetadata or StopReplica to a broker, this one included

The trap triggers before an operation is sent, so that it never happens, or after it, so that only its response is lost.
The count starts when the trap is set, or when this broker is elected; then that write is number 0. The broker itself
is the unmodified product.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from ssl import SSLContext
from typing import TypeVar

from barnabas.errors import NoNode
from barnabas.metadata import znodes
from barnabas.wire.headers import decode_request_header
from barnabas.world.ports import (
    CheckVersion,
    Listener,
    Network,
    Op,
    Part,
    Receiver,
    Registry,
    RegistrySession,
    ServerTls,
    SessionState,
    Stream,
    Watch,
    ZnodeStat,
)
from tests.lifecycle.wire import CONTROL_REQUESTS, Trace

T = TypeVar("T")

SIZE = struct.Struct(">i")
SIZE_AND_KEY = struct.Struct(">ih")
ELECTION = f"{znodes.CONTROLLER} {znodes.CONTROLLER_EPOCH}"


class Kind(StrEnum):
    WRITE = "write"
    REQUEST = "request"


class When(StrEnum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class CrashPoint:
    when: When
    kind: Kind
    number: int
    """From 1."""

    def __str__(self) -> str:
        return f"{self.when} {self.kind} {self.number}"


@dataclass(slots=True)
class Trap:
    """`strike` kills the victims. It returns True if this broker is one of them, unless it never returns, as in a
    process that has just killed itself."""

    strike: Callable[[], bool] = lambda: False
    point: CrashPoint | None = None
    counts: dict[Kind, int] = field(default_factory=dict)
    labels: list[tuple[Kind, str]] = field(default_factory=list)
    """What was counted."""
    awaits_election: bool = False

    def set(
        self, point: CrashPoint | None, strike: Callable[[], bool], *, from_election: bool = False
    ) -> None:
        """Set the trap; without a point it only counts."""
        self.counts.clear()
        self.labels.clear()
        self.strike = strike
        self.point = point
        self.awaits_election = from_election

    def count(self, kind: Kind, label: str) -> int:
        if self.awaits_election:
            return 0
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.labels.append((kind, label))
        return self.counts[kind]

    def succeeded(self, label: str) -> None:
        if label == ELECTION:
            self.awaits_election = False

    def triggers(self, when: When, kind: Kind, number: int) -> bool:
        if self.awaits_election or self.point != CrashPoint(when, kind, number):
            return False
        self.point = None
        return self.strike()


# ---- the registry


class TrappedRegistry:
    def __init__(self, registry: Registry, trap: Trap) -> None:
        self.registry = registry
        self.trap = trap
        self.session: RegistrySession | None = None
        """The last session that was opened."""

    async def connect(self, session_timeout_ms: int) -> RegistrySession:
        self.session = await self.registry.connect(session_timeout_ms)
        return TrappedSession(self.session, self.trap)


class TrappedSession:
    def __init__(self, session: RegistrySession, trap: Trap) -> None:
        self.session = session
        self.trap = trap

    @property
    def id(self) -> int:
        return self.session.id

    @property
    def state(self) -> SessionState:
        return self.session.state

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        self.session.on_state(listener)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:
        return await self.session.get(path, watch)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        return await asyncio.gather(*map(self.get_if_there, paths))

    async def get_if_there(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        try:
            return await self.get(path)
        except NoNode:
            return None

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        return await self.session.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self.session.children(path, watch)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, ZnodeStat]:
        return await self.write(
            path,
            lambda: self.session.create(path, data, ephemeral=ephemeral, sequential=sequential),
        )

    async def set(self, path: str, data: bytes, version: int = -1) -> ZnodeStat:
        return await self.write(path, lambda: self.session.set(path, data, version))

    async def delete(self, path: str, version: int = -1) -> None:
        await self.write(path, lambda: self.session.delete(path, version))

    async def multi(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        written = " ".join(op.path for op in ops if not isinstance(op, CheckVersion))
        if not written:
            return await self.session.multi(ops)
        return await self.write(written, lambda: self.session.multi(ops))

    async def close(self) -> None:
        await self.session.close()

    async def abandon(self) -> None:
        await self.session.abandon()

    async def write(self, label: str, send: Callable[[], Awaitable[T]]) -> T:
        number = self.trap.count(Kind.WRITE, label)
        if self.trap.triggers(When.BEFORE, Kind.WRITE, number):
            await death()
        try:
            answer = await send()
            self.trap.succeeded(label)
            return answer
        finally:
            if self.trap.triggers(When.AFTER, Kind.WRITE, number):
                await death()


async def death() -> None:
    """Wait forever: nothing happens after the crash."""
    await asyncio.get_running_loop().create_future()


# ---- the network


class TrappedNetwork:
    """Counts only connections that this broker opens."""

    def __init__(self, network: Network, trap: Trap, trace: Trace) -> None:
        self.network = network
        self.trap = trap
        self.trace = trace

    def host_name(self) -> str:
        return self.network.host_name()

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver | None],
        tls: ServerTls | None = None,
    ) -> Listener:
        return await self.network.listen(host, port, accept, tls)

    async def connect(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver],
        tls: SSLContext | None = None,
    ) -> Stream:
        wrapped: list[TrappedStream] = []

        def accept_wrapped(stream: Stream) -> Receiver:
            trapped = TrappedStream(stream, port, self.trap, self.trace)
            wrapped.append(trapped)
            return RecordingReceiver(accept(trapped), trapped)

        await self.network.connect(host, port, accept_wrapped, tls)
        return wrapped[0]


class TrappedStream:
    def __init__(self, stream: Stream, port: int, trap: Trap, trace: Trace) -> None:
        self.stream = stream
        self.port = port
        self.trap = trap
        self.trace = trace
        self.awaited: set[int] = set()

    @property
    def peer(self) -> tuple[str, int]:
        return self.stream.peer

    @property
    def peer_certificate(self) -> bytes | None:
        return self.stream.peer_certificate

    def send(self, parts: Sequence[Part]) -> bool:
        (frame,) = parts if len(parts) == 1 else (b"",)
        if not isinstance(frame, bytes | bytearray) or len(frame) < SIZE_AND_KEY.size:
            return self.stream.send(parts)
        _, key = SIZE_AND_KEY.unpack_from(frame)
        if key not in CONTROL_REQUESTS:
            return self.stream.send(parts)
        number = self.trap.count(Kind.REQUEST, f"{CONTROL_REQUESTS[key]} to {self.port}")
        if self.trap.triggers(When.BEFORE, Kind.REQUEST, number):
            return True
        header, _ = decode_request_header(memoryview(frame)[SIZE.size :])
        self.awaited.add(header.correlation_id)
        self.trace.sent(self.port, bytes(frame))
        goes_on = self.stream.send(parts)
        self.trap.triggers(When.AFTER, Kind.REQUEST, number)
        return goes_on

    def on_response(self, frame: bytes) -> None:
        (correlation_id,) = SIZE.unpack_from(frame)
        if correlation_id in self.awaited:
            self.awaited.discard(correlation_id)
            self.trace.answered(self.port, frame)

    def pause(self) -> None:
        self.stream.pause()

    def resume(self) -> None:
        self.stream.resume()

    def close(self, reason: str) -> None:
        self.stream.close(reason)


class RecordingReceiver:
    """Passes everything on, and reads responses."""

    def __init__(self, receiver: Receiver, stream: TrappedStream) -> None:
        self.receiver = receiver
        self.stream = stream
        self.given = memoryview(b"")
        self.data = bytearray()

    def buffer(self) -> memoryview:
        self.given = self.receiver.buffer()
        return self.given

    def received(self, size: int) -> None:
        if self.stream.awaited:
            self.data += self.given[:size]
            while len(self.data) >= SIZE.size:
                end = SIZE.size + SIZE.unpack_from(self.data)[0]
                if len(self.data) < end:
                    break
                self.stream.on_response(bytes(self.data[SIZE.size : end]))
                del self.data[:end]
        self.receiver.received(size)

    def drained(self) -> None:
        self.receiver.drained()

    def closed(self, reason: str) -> None:
        self.receiver.closed(reason)
