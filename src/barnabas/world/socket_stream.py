"""One TCP connection on the running asyncio loop, without asyncio's transports.

Raw non-blocking sockets save copies. `recv_into` reads a produced batch into a buffer from which it is written to its
file. `sendfile` sends a fetched batch without reading it into this process.

Two rules protect the other connections. A turn of the loop sends only about `TURN_BYTES` for one stream. A thread
first reads file slices that are not in the page cache, because `sendfile` would otherwise block the loop.

Pipelined requests of a client are served in one turn of the loop. Their responses are sent together at its end, because
waking the client costs as much as serving a request. A stream reads again after a read that fills its buffer. After a
shorter read it reads again only in every eighth turn (PROBE_TURNS), and then in each turn until a read finds nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from barnabas.errors import StorageError, reason
from barnabas.world.ports import FileSlice, Part, Receiver

SENDFILE_BYTES_MIN = 16 * 1024  # below this, copying costs less than a second system call
TURN_BYTES = 4 * 1024 * 1024
GATHER_PARTS = 512  # per system call; the kernel accepts at most 1024
READS_PER_TURN = 8
READ_BYTES_PER_TURN = 512 * 1024
PROBE_TURNS = 8
CORKED_PARTS_MAX = 64
RESIDENT_SECONDS = 0.1  # data found in the page cache is assumed to stay there for this time

ONE_BYTE = bytearray(1)


class StreamOwner(Protocol):
    """The network of a stream."""

    cold_readers: ThreadPoolExecutor
    streams: dict[SocketStream, None]
    """Open streams, oldest first."""


class SocketStream:
    """One TCP connection. See `Stream` in ports.py for the contract."""

    peer_certificate: bytes | None = None

    __slots__ = (
        "cold_read",
        "descriptor",
        "expects_more",
        "is_closed",
        "is_corked",
        "is_reading",
        "is_writing",
        "loop",
        "must_report_drained",
        "network",
        "peer",
        "pending",
        "receiver",
        "resident_slice",
        "resident_until",
        "sock",
        "turns",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        peer: tuple[str, int],
        network: StreamOwner,
    ) -> None:
        self.loop = loop
        self.sock = sock
        self.descriptor = sock.fileno()
        self.peer = peer
        self.network = network
        self.receiver: Receiver | None = None
        self.pending: deque[Part] = deque()
        self.is_reading = False
        self.is_writing = False
        self.is_closed = False
        self.is_corked = False  # during on_readable: responses are queued until its end
        self.expects_more = False  # read again after a read that did not fill the buffer
        self.turns = 0
        self.must_report_drained = False  # a send has returned False
        self.cold_read: asyncio.Future[None] | None = None  # reads a slice into the page cache
        self.resident_slice: FileSlice | None = None
        """Unsent rest of a slice that was found in the page cache."""
        self.resident_until = 0.0
        """Loop time until which `resident_slice` is assumed to be in the page cache."""

    def start(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.resume()

    # ---- reading

    def resume(self) -> None:
        if not self.is_reading and not self.is_closed:
            self.is_reading = True
            self.loop.add_reader(self.descriptor, self.on_readable)

    def pause(self) -> None:
        if self.is_reading:
            self.is_reading = False
            self.loop.remove_reader(self.descriptor)

    def on_readable(self) -> None:
        receiver = self.receiver
        assert receiver is not None
        self.is_corked = True
        self.turns += 1
        if not self.turns % PROBE_TURNS:
            self.expects_more = True
        reads = taken = 0
        try:
            while True:
                buffer = receiver.buffer()
                size = self.sock.recv_into(buffer)
                if not size:
                    self.close("closed by peer")
                    return
                receiver.received(size)
                reads += 1
                taken += size
                if reads == READS_PER_TURN or taken >= READ_BYTES_PER_TURN or not self.is_reading:
                    break
                if size < len(buffer) and not self.expects_more:
                    break
        except (BlockingIOError, InterruptedError):
            self.expects_more = False
        except OSError as error:
            self.close(describe_error(error))
            return
        finally:
            self.is_corked = False
        if self.pending and not self.is_writing and self.cold_read is None:
            self.flush()

    # ---- writing

    def send(self, parts: Sequence[Part]) -> bool:
        if self.is_closed:
            return True
        pending = self.pending
        pending.extend(parts)
        if self.is_corked and len(pending) < CORKED_PARTS_MAX and FileSlice not in map(type, parts):
            return True
        if not self.is_writing and self.cold_read is None and self.flush():
            return True
        self.must_report_drained = True
        return False

    def flush(self) -> bool:
        """Send what the socket accepts now, about TURN_BYTES at most. Return True if nothing is left to send."""
        budget = TURN_BYTES
        pending = self.pending
        try:
            while pending and budget > 0:
                first = pending[0]
                if isinstance(first, FileSlice) and first.size >= SENDFILE_BYTES_MIN:
                    sent = self.send_slice(first)
                else:
                    sent = self.send_buffers()
                if sent == 0:
                    break
                budget -= sent
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, StorageError) as error:
            self.close(describe_error(error))
            return True
        if pending:
            if self.cold_read is None:
                self.wait_writable()
            return False
        if self.is_writing:
            self.is_writing = False
            self.loop.remove_writer(self.descriptor)
        return True

    def send_buffers(self) -> int:
        """Send the parts before the next large slice in one call. Return 0 if the socket accepts no more."""
        pending = self.pending
        gathered: list[bytes | bytearray | memoryview] = []
        more = 0
        for index, part in enumerate(pending):
            if isinstance(part, FileSlice):
                if part.size >= SENDFILE_BYTES_MIN:
                    more = socket.MSG_MORE  # the bytes of the file follow: do not send a packet yet
                    break
                part = pending[index] = read_whole(part)
            gathered.append(part)
            if len(gathered) == GATHER_PARTS:
                break
        sent = self.sock.sendmsg(gathered, (), more)
        remaining = sent
        for part in gathered:
            size = len(part)
            if remaining < size:
                if remaining:
                    pending[0] = memoryview(part)[remaining:]
                return 0
            remaining -= size
            pending.popleft()
        return max(sent, 1)  # not 0 if all parts were empty

    def send_slice(self, part: FileSlice) -> int:
        """Send up to TURN_BYTES. Return 0 if the socket accepts no more, or if a thread must read the file first."""
        file, position, size = part
        if position < 0:
            raise StorageError(file.path, "negative position", position)
        descriptor = file.fileno()
        amount = min(size, TURN_BYTES)
        if part is not self.resident_slice or self.loop.time() > self.resident_until:
            if not (
                is_resident(descriptor, position) and is_resident(descriptor, position + amount - 1)
            ):
                self.start_cold_read(descriptor, position, amount)
                return 0
            self.resident_until = self.loop.time() + RESIDENT_SECONDS
        sent = os.sendfile(self.descriptor, descriptor, position, amount)
        if sent == 0:
            raise StorageError(file.path, "file ends before the end of the slice", position)
        if sent == size:
            self.pending.popleft()
            self.resident_slice = None
            return sent
        rest = self.pending[0] = FileSlice(file, position + sent, size - sent)
        if sent == amount:
            return sent
        self.resident_slice = rest if amount == size else None
        return 0

    def start_cold_read(self, descriptor: int, position: int, size: int) -> None:
        """Read the slice into the page cache in a thread, through a duplicate: `descriptor` may be closed meanwhile."""
        duplicate = os.dup(descriptor)
        self.cold_read = self.loop.run_in_executor(
            self.network.cold_readers, read_into_cache, duplicate, position, size
        )
        self.cold_read.add_done_callback(self.on_cold_read_done)
        if self.is_writing:
            self.is_writing = False
            self.loop.remove_writer(self.descriptor)

    def on_cold_read_done(self, cold_read: asyncio.Future[None]) -> None:
        self.cold_read = None
        if self.is_closed:
            return
        if not cold_read.cancelled() and (error := cold_read.exception()) is not None:
            self.close(f"cannot read the log: {reason(error)}")
            return
        self.on_writable()

    def wait_writable(self) -> None:
        if not self.is_writing:
            self.is_writing = True
            self.loop.add_writer(self.descriptor, self.on_writable)

    def on_writable(self) -> None:
        if self.flush() and self.must_report_drained and not self.is_closed:
            assert self.receiver is not None
            self.must_report_drained = False
            self.receiver.drained()

    # ---- closing

    def close(self, reason: str) -> None:
        if self.is_corked and self.pending:
            self.is_corked = False
            self.flush()  # sends the responses queued so far; on an error it closes the stream itself
        if self.is_closed:
            return
        self.is_closed = True
        self.pause()
        if self.is_writing:
            self.loop.remove_writer(self.descriptor)
        self.pending.clear()
        self.finish()
        self.sock.close()
        del self.network.streams[self]
        # Break the reference cycle of stream and receiver, so that both are freed without the garbage collector.
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            receiver.closed(reason)

    def finish(self) -> None:
        """Send what the protocol requires before the socket is closed."""


def is_resident(descriptor: int, position: int) -> bool:
    """Return whether this byte can be read without waiting for the disk."""
    try:
        os.preadv(descriptor, [ONE_BYTE], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True  # the file system does not support RWF_NOWAIT: assume that the read is fast
    return True


def read_into_cache(descriptor: int, position: int, size: int) -> None:
    """Read a range of the file into the page cache, and close the descriptor."""
    scratch = bytearray(min(size, 256 * 1024))
    end = position + size
    try:
        while position < end and (got := os.preadv(descriptor, [scratch], position)):
            position += got
    finally:
        os.close(descriptor)


def read_whole(part: FileSlice) -> bytes:
    data = part.file.read(part.position, part.size)
    if len(data) != part.size:
        raise StorageError(part.file.path, "file ends before the end of the slice", part.position)
    return data


def describe_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return reason(error)
