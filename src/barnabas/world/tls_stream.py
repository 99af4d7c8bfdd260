"""Streams with TLS, on top of socket_stream.py. OpenSSL encrypts and decrypts in memory; this module moves the bytes.

    socket ─► incoming ─► OpenSSL ─► buffer of the receiver
    parts  ─► piece    ─► OpenSSL ─► outgoing ─► socket

A stream works on pieces of PIECE_BYTES, so file slices and large responses take little memory. A turn of the loop
encrypts or decrypts at most about a megabyte of one stream.

Handshakes take a millisecond of CPU time or more. `Handshakes` runs them one after another, for a few milliseconds per
turn, so many new connections do not delay the others. A connection has HANDSHAKE_SECONDS_MAX to complete its handshake.
It uses almost no memory before its first bytes arrive. The number of handshakes in progress is limited: a new one
replaces the oldest.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from barnabas.errors import StorageError
from barnabas.security.tls.errors import CLIENT_WITHOUT_TLS, CLOSED_EARLY, describe_tls_error
from barnabas.world.ports import FileSlice, Part
from barnabas.world.socket_stream import TURN_BYTES, SocketStream, describe_error

PIECE_BYTES = 64 * 1024  # four TLS records
READ_BYTES_MIN = 17 * 1024  # one TLS record
TURN_SENT_BYTES = 1024 * 1024
TURN_RECEIVED_BYTES = 512 * 1024
HANDSHAKES_MAX = 2000
HANDSHAKE_SECONDS_MAX = 10.0
HANDSHAKES_TURN_SECONDS = 0.002
LINGER_SECONDS = 1.0
HANDSHAKE_RECORD = 0x16  # first byte of a TLS connection

CLOSED_DURING_HANDSHAKE = (
    "the peer closed the connection during the handshake; it may not use TLS here"
)

OnHandshake = Callable[[str | None], None]
"""Called with None after a handshake, or with the reason why it failed."""


class Handshakes:
    """The handshakes in progress of one network."""

    def __init__(self) -> None:
        self.in_progress: dict[TlsStream, None] = {}  # oldest first
        self.clients: dict[str, int] = {}
        """Number of connections from an address whose handshake is in progress, or has failed and is not closed yet."""
        self.ready: deque[TlsStream] = deque()
        """Streams that have received bytes."""

    def add(self, stream: TlsStream) -> None:
        if len(self.in_progress) >= HANDSHAKES_MAX:
            oldest = next(iter(self.in_progress))
            oldest.close(f"more than {HANDSHAKES_MAX} handshakes are in progress")
        self.in_progress[stream] = None
        if stream.server_name is None:
            host = stream.peer[0]
            self.clients[host] = self.clients.get(host, 0) + 1
            stream.is_counted = True

    def stop_counting(self, stream: TlsStream) -> None:
        """Forget the client of a stream that is established or closed."""
        if stream.is_counted:
            stream.is_counted = False
            host = stream.peer[0]
            self.clients[host] -= 1
            if not self.clients[host]:
                del self.clients[host]

    def enqueue(self, stream: TlsStream) -> None:
        if not self.ready:
            stream.loop.call_soon(self.run)
        self.ready.append(stream)

    def run(self) -> None:
        """Continue handshakes for HANDSHAKES_TURN_SECONDS. The rest is done in the next turns of the loop."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HANDSHAKES_TURN_SECONDS
        try:
            while self.ready and loop.time() < deadline:
                self.ready.popleft().continue_handshake()
        finally:
            if self.ready:
                loop.call_soon(self.run)


class TlsOwner(Protocol):
    """The network of a stream with TLS."""

    cold_readers: ThreadPoolExecutor
    streams: dict[SocketStream, None]
    handshakes: Handshakes
    piece: memoryview
    """Scratch memory of PIECE_BYTES. It has no content between two turns of the loop."""


class TlsStream(SocketStream):
    """A TCP connection with TLS. `server_name` is None on the side of the server."""

    __slots__ = (
        "context",
        "encrypted",
        "failure",
        "has_more",
        "incoming",
        "is_counted",
        "is_established",
        "on_handshake",
        "outgoing",
        "owner",
        "peer_certificate",
        "server_name",
        "timer",
        "tls",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        peer: tuple[str, int],
        owner: TlsOwner,
        context: Callable[[], ssl.SSLContext],
        server_name: str | None,
    ) -> None:
        super().__init__(loop, sock, peer, owner)
        self.owner = owner
        self.context = context
        self.server_name = server_name
        self.peer_certificate: bytes | None = None
        self.tls: ssl.SSLObject | None = None
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.encrypted = memoryview(b"")  # encrypted bytes that the socket did not accept yet
        self.has_more = False  # a call of `continue_reading` is scheduled
        self.is_established = False
        self.is_counted = False  # in Handshakes.clients
        self.failure: str | None = None
        """Why the handshake failed."""
        self.on_handshake: OnHandshake | None = None
        self.timer: asyncio.TimerHandle | None = None

    # ---- handshake

    def start_handshake(self, on_handshake: OnHandshake) -> None:
        self.on_handshake = on_handshake
        self.timer = self.loop.call_later(HANDSHAKE_SECONDS_MAX, self.handshake_timed_out)
        self.owner.handshakes.add(self)
        if self.server_name is not None:
            self.owner.handshakes.enqueue(self)  # a client sends first
        else:
            self.resume()

    def handshake_timed_out(self) -> None:
        self.close(f"the handshake took longer than {HANDSHAKE_SECONDS_MAX:g} s")

    def continue_handshake(self) -> None:
        """Read what has arrived, and perform the next step."""
        if self.is_closed:
            return
        try:
            is_done = self.receive_handshake() and self.step_handshake()
        except ssl.SSLError as error:
            self.fail_handshake(describe_tls_error(error))
            return
        except (OSError, ValueError) as error:
            self.close(describe_error(error))
            return
        if is_done:
            self.finish_handshake()
        else:
            self.resume()

    def fail_handshake(self, reason: str) -> None:
        """Send the alert with the reason, and close when the peer has read it.

        If the socket were closed at once, a peer that is still sending would get a reset instead of the alert.
        """
        self.send_outgoing()
        self.failure = reason
        self.end_handshake(reason)
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        self.timer = self.loop.call_later(LINGER_SECONDS, self.close, reason)
        self.resume()

    def discard_received(self) -> None:
        """Read what the peer sends after a failed handshake, until it closes the connection."""
        with suppress(BlockingIOError, InterruptedError):
            size = 0
            with suppress(ConnectionError):
                size = self.sock.recv_into(self.owner.piece)
            if not size:
                self.close("closed by peer")

    def receive_handshake(self) -> bool:
        """Return whether to perform a step. A client does so before it has received anything."""
        if self.tls is None and self.server_name is not None:
            return True
        piece = self.owner.piece[:READ_BYTES_MIN]
        try:
            size = self.sock.recv_into(piece)
        except (BlockingIOError, InterruptedError):
            return False
        if not size:
            self.close(CLOSED_EARLY if self.tls is None else CLOSED_DURING_HANDSHAKE)
            return False
        if self.tls is None and piece[0] != HANDSHAKE_RECORD:
            self.close(CLIENT_WITHOUT_TLS)
            return False
        self.incoming.write(piece[:size])
        return True

    def step_handshake(self) -> bool:
        """Return whether the handshake is complete."""
        if self.tls is None:
            self.tls = self.context().wrap_bio(
                self.incoming,
                self.outgoing,
                server_side=self.server_name is None,
                server_hostname=self.server_name,
            )
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self.send_outgoing()
            return False
        self.send_outgoing()
        return True

    def finish_handshake(self) -> None:
        assert self.tls is not None
        if self.tls.session_reused and is_expired(self.tls):
            # OpenSSL does not verify the certificate of a resumed session again.
            self.close("the certificate of the peer is not valid: certificate has expired")
            return
        self.is_established = True
        self.peer_certificate = self.tls.getpeercert(binary_form=True)
        self.end_handshake(None)

    def end_handshake(self, failure: str | None) -> None:
        on_handshake, self.on_handshake = self.on_handshake, None
        if on_handshake is None:
            return
        self.cancel_timer()
        self.owner.handshakes.in_progress.pop(self, None)
        if failure is None:
            self.owner.handshakes.stop_counting(self)
        on_handshake(failure)

    # ---- reading

    def resume(self) -> None:
        super().resume()
        if self.is_established and self.has_received():
            self.schedule_reading()

    def has_received(self) -> bool:
        """Whether bytes from the socket are not decrypted yet. An incomplete record is not counted."""
        return bool(self.incoming.pending or (self.tls is not None and self.tls.pending()))

    def schedule_reading(self) -> None:
        if not self.has_more:
            self.has_more = True
            self.loop.call_soon(self.continue_reading)

    def continue_reading(self) -> None:
        self.has_more = False
        if self.is_reading:
            self.on_readable()

    def on_readable(self) -> None:
        if self.failure is not None:
            self.discard_received()
            return
        if not self.is_established:
            self.pause()
            self.owner.handshakes.enqueue(self)
            return
        try:
            is_open = self.read_turn()
        except ssl.SSLError as error:
            self.close(describe_tls_error(error))
            return
        except OSError as error:
            self.close(describe_error(error))
            return
        if (self.pending or self.outgoing.pending) and not self.is_writing and not self.cold_read:
            self.flush()
        if not is_open:
            self.close("closed by peer")
        elif self.is_reading and self.has_received():
            self.schedule_reading()

    def read_turn(self) -> bool:
        """Pass up to about TURN_RECEIVED_BYTES to the receiver. Return False at the end of the stream."""
        receiver = self.receiver
        assert receiver is not None
        taken = 0
        may_receive = True  # the last read from the socket did not empty it
        self.is_corked = True
        try:
            while self.is_reading and taken < TURN_RECEIVED_BYTES:
                buffer = receiver.buffer()
                size = self.decrypt(buffer)
                if size:
                    taken += size
                    receiver.received(size)
                elif size is None:
                    return False
                elif may_receive:
                    piece = self.owner.piece[: max(len(buffer), READ_BYTES_MIN)]
                    received = self.sock.recv_into(piece)
                    if not received:
                        return False
                    self.incoming.write(piece[:received])
                    may_receive = received == len(piece)
                else:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        finally:
            self.is_corked = False
        return True

    def decrypt(self, buffer: memoryview) -> int | None:
        """Fill the buffer with received bytes. Return their number, 0 if there are none, None at the end.

        Some clients send each part of a record as its own TLS record, so the loop must be short: it does not check
        what is left, but ends with SSLWantReadError.
        """
        tls = self.tls
        assert tls is not None
        if not self.has_received():
            return 0
        size, capacity = 0, len(buffer)
        try:
            while size < capacity:
                count = tls.read(capacity - size, buffer[size:])
                if not count:
                    return size or None
                size += count  # type: ignore[operator]
        except ssl.SSLWantReadError:
            pass
        return size

    # ---- writing

    def flush(self) -> bool:
        """Send what the socket accepts now, about TURN_SENT_BYTES at most. Return True if nothing is left to send."""
        budget = TURN_SENT_BYTES
        try:
            while budget > 0:
                if not self.encrypted:
                    budget -= self.encrypt_piece()
                    self.encrypted = memoryview(self.outgoing.read())
                    if not self.encrypted:
                        break
                self.encrypted = self.encrypted[self.sock.send(self.encrypted) :]
        except (BlockingIOError, InterruptedError):
            pass
        except ssl.SSLError as error:
            self.close(describe_tls_error(error))
            return True
        except (OSError, StorageError) as error:
            self.close(describe_error(error))
            return True
        if self.pending or self.encrypted:
            if self.cold_read is None:
                self.wait_writable()
            return False
        if self.is_writing:
            self.is_writing = False
            self.loop.remove_writer(self.descriptor)
        return True

    def encrypt_piece(self) -> int:
        """Encrypt the next parts, up to PIECE_BYTES. Return their size, or 0 if a thread must read a file first."""
        tls, pending, piece = self.tls, self.pending, self.owner.piece
        assert tls is not None
        size = 0
        while pending and size < PIECE_BYTES and self.cold_read is None:
            part = pending[0]
            rest: Part
            if isinstance(part, FileSlice):
                count = self.read_slice(part, piece[size:])
                rest = FileSlice(part.file, part.position + count, part.size - count)
                is_sent = not rest.size
            elif (
                not size and len(part) >= PIECE_BYTES
            ):  # large enough to be encrypted without a copy
                view = memoryview(part)
                tls.write(view[:PIECE_BYTES])
                self.advance(view[PIECE_BYTES:], len(part) == PIECE_BYTES)
                return PIECE_BYTES
            else:
                view = memoryview(part)
                count = min(len(part), PIECE_BYTES - size)
                piece[size : size + count] = view[:count]
                rest, is_sent = view[count:], count == len(part)
            size += count
            self.advance(rest, is_sent)
        if size:
            tls.write(piece[:size])
        return size

    def advance(self, rest: Part, is_sent: bool) -> None:
        """Replace the first part by the rest of it, or remove it."""
        if is_sent:
            self.pending.popleft()
        else:
            self.pending[0] = rest

    def read_slice(self, part: FileSlice, target: memoryview) -> int:
        """Read bytes that are in the page cache. Return 0 if a thread must read them first."""
        file, position, size = part
        if position < 0:
            raise StorageError(file.path, "negative position", position)
        if not size:
            return 0
        descriptor = file.fileno()
        count = read_cached(descriptor, target[:size], position)
        if count is None:
            self.start_cold_read(descriptor, position, min(size, TURN_BYTES))
            return 0
        if count == 0:
            raise StorageError(file.path, "file ends before the end of the slice", position)
        return count

    def send_outgoing(self) -> None:
        """Send the bytes of the handshake."""
        if self.outgoing.pending:
            self.encrypted = memoryview(bytes(self.encrypted) + self.outgoing.read())
        if self.encrypted:
            try:
                self.encrypted = self.encrypted[self.sock.send(self.encrypted) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                self.encrypted = memoryview(b"")  # the next read reports the error
            if self.encrypted:
                self.wait_writable()

    # ---- closing

    def finish(self) -> None:
        """Tell the peer that nothing follows, if the socket accepts it at once."""
        if self.is_established and self.tls is not None and not self.encrypted:
            with suppress(OSError):
                self.tls.unwrap()
            with suppress(OSError):
                self.sock.send(self.outgoing.read())

    def close(self, reason: str) -> None:
        super().close(reason)
        self.cancel_timer()
        self.end_handshake(reason)
        self.owner.handshakes.stop_counting(self)

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def read_cached(descriptor: int, target: memoryview, position: int) -> int | None:
    """Read bytes that are in the page cache. Return None if there are none."""
    try:
        return os.preadv(descriptor, [target], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return os.preadv(
            descriptor, [target], position
        )  # the file system does not support RWF_NOWAIT


def is_expired(tls: ssl.SSLObject) -> bool:
    certificate = tls.getpeercert()
    if not certificate:
        return False
    return ssl.cert_time_to_seconds(str(certificate["notAfter"])) < time.time()
