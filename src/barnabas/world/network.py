"""Real sockets on the running asyncio loop, without asyncio's transports.

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
import errno
import logging
import os
import resource
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from barnabas.errors import AddressInUse, StorageError, reason
from barnabas.world.ports import FileSlice, Part, Receiver

logger = logging.getLogger("barnabas.network")

SENDFILE_BYTES_MIN = 16 * 1024  # below this, copying costs less than a second system call
TURN_BYTES = 4 * 1024 * 1024
GATHER_PARTS = 512  # per system call; the kernel accepts at most 1024
ACCEPTS_PER_TURN = 64
BACKLOG = 512
DESCRIPTORS_MAX = 1 << 20
OTHER_DESCRIPTORS = 32  # pipes, the registry's files, duplicates for threads
READS_PER_TURN = 8
READ_BYTES_PER_TURN = 512 * 1024
PROBE_TURNS = 8
CORKED_PARTS_MAX = 64
KERNEL_UNSENT_BYTES = 128 * 1024
"""The kernel accepts no more bytes of a stream than it can send soon. With more, fetches of several partitions take a
third more CPU time, because the queued packets do not fit into the caches. This does not limit bytes in flight."""
RESIDENT_SECONDS = 0.1  # data found in the page cache is assumed to stay there for this time

ONE_BYTE = bytearray(1)


class SocketStream:
    """One TCP connection. See `Stream` in ports.py for the contract."""

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
        network: SocketNetwork,
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
        self.sock.close()
        del self.network.streams[self]
        # Break the reference cycle of stream and receiver, so that both are freed without the garbage collector.
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            receiver.closed(reason)


class SocketListener:
    """A listening socket. `accept` returns the receiver of each new stream, or None to refuse it."""

    def __init__(
        self,
        network: SocketNetwork,
        sock: socket.socket,
        accept: Callable[[SocketStream], Receiver | None],
    ) -> None:
        self.network = network
        self.sock = sock
        self.accept = accept
        self.loop = asyncio.get_running_loop()
        host, port = sock.getsockname()[:2]
        self.address: tuple[str, int] = (host, port)
        self.network.listeners[self] = None
        self.loop.add_reader(sock.fileno(), self.on_acceptable)

    def on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, peer = self.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                # No descriptor or memory is left, and the connection stays in the backlog. Try again later, because
                # the socket stays readable and would keep the loop busy.
                self.loop.remove_reader(self.sock.fileno())
                self.loop.call_later(0.1, self.resume_accepting)
                return
            if self.network.is_full():
                sock.close()
                self.network.count_refused(peer[0])
                continue
            stream = self.network.add_stream(sock, (peer[0], peer[1]))
            receiver = self.accept(stream)
            if receiver is None:
                stream.close("refused")
            else:
                stream.start(receiver)

    def resume_accepting(self) -> None:
        if self.sock.fileno() >= 0:
            self.loop.add_reader(self.sock.fileno(), self.on_acceptable)

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        if self.sock.fileno() >= 0:
            self.loop.remove_reader(self.sock.fileno())
            self.sock.close()
            del self.network.listeners[self]


class SocketNetwork:
    """Real TCP sockets. A buffer size of -1 lets the kernel choose and adapt the size."""

    def __init__(self, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1) -> None:
        self.send_buffer_bytes = send_buffer_bytes
        self.receive_buffer_bytes = receive_buffer_bytes
        self.cold_readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="cold-read")
        self.descriptor_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.streams_max = max(self.descriptor_limit // 2 - OTHER_DESCRIPTORS, 1)
        if self.descriptor_limit == resource.RLIM_INFINITY:
            self.streams_max = sys.maxsize
        # Open listeners and streams, oldest first.
        self.listeners: dict[SocketListener, None] = {}
        self.streams: dict[SocketStream, None] = {}
        self.is_dropped = False
        self.streams_refused = 0
        self.refusal_logged_at = -1.0

    def host_name(self) -> str:
        return socket.getfqdn()

    def close(self) -> None:
        """Stop the threads. All streams must be closed."""
        self.cold_readers.shutdown()

    def drop(self) -> None:
        """Close every socket, as the kernel does for a crashed process.

        Queued parts are discarded. No new connections are possible, neither incoming nor outgoing.
        """
        self.is_dropped = True
        for listener in list(self.listeners):
            listener.close_now()
        for stream in list(self.streams):
            stream.close("this broker was killed")

    def require_not_dropped(self) -> None:
        if self.is_dropped:
            raise ConnectionError("this broker was killed")

    def add_stream(self, sock: socket.socket, peer: tuple[str, int]) -> SocketStream:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_UNSENT_BYTES)
        # Detects a peer that disappears without closing the connection.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.send_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        stream = SocketStream(asyncio.get_running_loop(), sock, peer, self)
        self.streams[stream] = None
        return stream

    def is_full(self) -> bool:
        """Return whether all descriptors for connections are in use: half of the limit; the rest is for files."""
        return len(self.streams) >= self.streams_max

    def count_refused(self, host: str) -> None:
        self.streams_refused += 1
        now = asyncio.get_running_loop().time()
        if now - self.refusal_logged_at >= 1.0:
            self.refusal_logged_at = now
            logger.warning(
                "refusing connection peer=%s descriptor_limit=%d (ulimit -n; half is for files) refused=%d",
                host,
                self.descriptor_limit,
                self.streams_refused,
            )

    async def listen(
        self, host: str, port: int, accept: Callable[[SocketStream], Receiver | None]
    ) -> SocketListener:
        # In a thread: the host may be a name, and the lookup may take seconds.
        sock = await asyncio.to_thread(
            bind, host, port, self.receive_buffer_bytes, is_listening=True
        )
        return SocketListener(self, sock, accept)

    async def connect(
        self, host: str, port: int, accept: Callable[[SocketStream], Receiver]
    ) -> SocketStream:
        self.require_not_dropped()
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise ConnectionError(f"{host}: {error.strerror}") from error
        family, kind, _, _, address = infos[0]
        sock = socket.socket(family, kind)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
            self.require_not_dropped()
        except OSError as error:
            sock.close()
            raise ConnectionError(f"{host}:{port}: {describe_error(error)}") from error
        except asyncio.CancelledError:
            sock.close()
            raise
        stream = self.add_stream(sock, (host, port))
        stream.start(accept(stream))
        return stream


class HeldPort:
    """A TCP port that stays reserved while its broker is not running, until `release()`.

    A killed broker restarts on the port that its clients know. Meanwhile the system could assign that port to an
    outgoing connection. A client that tries to reach the broker could even get the port and connect to itself. A bound
    socket that never listens reserves the port: connections to it are refused, but a broker can bind and listen on the
    same port.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        """Reserve a port. Port 0 lets the system choose one. Raises AddressInUse."""
        self.sock = bind(host, port)
        self.port: int = self.sock.getsockname()[1]

    def release(self) -> None:
        self.sock.close()


def bind(
    host: str, port: int, receive_buffer_bytes: int = -1, *, is_listening: bool = False
) -> socket.socket:
    """Return a bound socket. Raises AddressInUse, for every reason that prevents it."""
    sock: socket.socket | None = None
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.bind(address)
        if is_listening:
            sock.listen(BACKLOG)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise bind_error(host, port, error) from error
    return sock


def bind_error(host: str, port: int, error: OSError) -> AddressInUse:
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(
            f"{host or '0.0.0.0'}:{port} is in use: stop the process that listens there, or choose "
            "another port (listeners=…, or --port)"
        )
    return AddressInUse(f"cannot listen on {host}:{port}: {error.strerror}")


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files and sockets to the hard limit, at most DESCRIPTORS_MAX.

    The default soft limit (often 1024) exists for programs that use select().
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems reject their own hard limit. The soft limit then stays.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


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
