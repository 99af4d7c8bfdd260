"""Real sockets on the running asyncio loop: listeners and connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ssl import SSLContext

from barnabas.errors import AddressInUse
from barnabas.world.ports import Receiver, ServerTls
from barnabas.world.socket_stream import SocketStream, describe_error
from barnabas.world.tls_stream import PIECE_BYTES, Handshakes, TlsStream

logger = logging.getLogger("barnabas.network")

ACCEPTS_PER_TURN = 64
BACKLOG = 512
HELD_MAX = 512  # connections that wait to be closed unserved
DESCRIPTORS_MAX = 1 << 20
OTHER_DESCRIPTORS = 32  # pipes, the registry's files, duplicates for threads
KERNEL_UNSENT_BYTES = 128 * 1024
"""The kernel accepts no more bytes of a stream than it can send soon. With more, fetches of several partitions take a
third more CPU time, because the queued packets do not fit into the caches. This does not limit bytes in flight."""


class SocketListener:
    """A listening socket. `accept` returns the receiver of each new stream, or None to refuse it."""

    def __init__(
        self,
        network: SocketNetwork,
        sock: socket.socket,
        accept: Callable[[SocketStream], Receiver | None],
        tls: ServerTls | None = None,
    ) -> None:
        self.network = network
        self.sock = sock
        self.accept = accept
        self.tls = tls
        self.loop = asyncio.get_running_loop()
        self.admit: Callable[[str], float] | None = None
        host, port = sock.getsockname()[:2]
        self.address: tuple[str, int] = (host, port)
        self.resuming: asyncio.TimerHandle | None = None
        """Set while no connections are accepted."""
        self.network.listeners[self] = None
        self.loop.add_reader(sock.fileno(), self.on_acceptable)

    def on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self.resuming is not None:
                return
            try:
                sock, peer = self.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                # No descriptor or memory is left, and the connection stays in the backlog. Try again later, because
                # the socket stays readable and would keep the loop busy.
                self.pause_accepting(0.1)
                return
            if self.network.is_full():
                sock.close()
                self.network.count_refused(peer[0])
                continue
            held_s = self.admit(peer[0]) if self.admit is not None else 0.0
            if held_s:
                self.network.hold(sock, held_s)
            elif self.tls is None:
                self.start(self.network.add_stream(sock, (peer[0], peer[1])))
            else:
                self.start_handshake(self.tls, sock, (peer[0], peer[1]))

    def start(self, stream: SocketStream) -> None:
        receiver = self.accept(stream)
        if receiver is None:
            stream.close("refused")
        else:
            stream.start(receiver)

    def start_handshake(self, tls: ServerTls, sock: socket.socket, peer: tuple[str, int]) -> None:
        stream = self.network.add_tls_stream(sock, peer, tls.current_context, None)

        def on_handshake(failure: str | None) -> None:
            if failure is not None:
                tls.handshake_failed(peer, failure)
            elif self.sock.fileno() < 0:
                stream.close("the listener was closed")
            else:
                self.start(stream)

        stream.start_handshake(on_handshake)

    def handshakes_of(self, host: str) -> int:
        return self.network.handshakes.clients.get(host, 0)

    def pause_accepting(self, seconds: float) -> None:
        if self.resuming is not None:
            self.resuming.cancel()
        self.loop.remove_reader(self.sock.fileno())
        self.resuming = self.loop.call_later(seconds, self.resume_accepting)

    def resume_accepting(self) -> None:
        self.resuming = None
        if self.sock.fileno() >= 0:
            self.loop.add_reader(self.sock.fileno(), self.on_acceptable)

    async def close(self) -> None:
        self.close_now()

    def close_now(self) -> None:
        if self.sock.fileno() >= 0:
            self.loop.remove_reader(self.sock.fileno())
            self.sock.close()
            del self.network.listeners[self]
            if self.resuming is not None:
                self.resuming.cancel()


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
        self.held_max = max(min(HELD_MAX, self.streams_max // 8), 1)
        # Open listeners and streams, oldest first.
        self.listeners: dict[SocketListener, None] = {}
        self.streams: dict[SocketStream, None] = {}
        self.handshakes = Handshakes()
        self.piece = memoryview(bytearray(PIECE_BYTES))
        self.held: dict[socket.socket, asyncio.TimerHandle] = {}
        """Connections that are closed unserved when their timers end."""
        self.is_dropped = False
        self.streams_refused = 0
        self.refusal_logged_at = -1.0

    def host_name(self) -> str:
        return socket.getfqdn()

    def close(self) -> None:
        """Stop the threads. All streams must be closed."""
        for sock in list(self.held):
            self.close_held(sock)
        self.cold_readers.shutdown()

    def drop(self) -> None:
        """Close every socket, as the kernel does for a crashed process.

        Queued parts are discarded. No new connections are possible, neither incoming nor outgoing.
        """
        self.is_dropped = True
        for sock in list(self.held):
            self.close_held(sock)
        for listener in list(self.listeners):
            listener.close_now()
        for stream in list(self.streams):
            stream.close("this broker was killed")

    def require_not_dropped(self) -> None:
        if self.is_dropped:
            raise ConnectionError("this broker was killed")

    def add_stream(self, sock: socket.socket, peer: tuple[str, int]) -> SocketStream:
        self.configure(sock)
        stream = SocketStream(asyncio.get_running_loop(), sock, peer, self)
        self.streams[stream] = None
        return stream

    def add_tls_stream(
        self,
        sock: socket.socket,
        peer: tuple[str, int],
        context: Callable[[], SSLContext],
        server_name: str | None,
    ) -> TlsStream:
        """Add a stream whose handshake is not started. `server_name` is None on the side of the server."""
        self.configure(sock)
        loop = asyncio.get_running_loop()
        stream = TlsStream(loop, sock, peer, self, context, server_name)
        self.streams[stream] = None
        return stream

    def configure(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_UNSENT_BYTES)
        # Detects a peer that disappears without closing the connection.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.send_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)

    def hold(self, sock: socket.socket, seconds: float) -> None:
        """Close a connection after this time without reading from it. If too many are held, the oldest is closed."""
        if len(self.held) >= self.held_max:
            self.close_held(next(iter(self.held)))
        loop = asyncio.get_running_loop()
        self.held[sock] = loop.call_later(seconds, self.close_held, sock)

    def close_held(self, sock: socket.socket) -> None:
        self.held.pop(sock).cancel()
        sock.close()

    def is_full(self) -> bool:
        """Return whether all descriptors for connections are in use: half of the limit; the rest is for files."""
        return len(self.streams) + len(self.held) >= self.streams_max

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
        self,
        host: str,
        port: int,
        accept: Callable[[SocketStream], Receiver | None],
        tls: ServerTls | None = None,
    ) -> SocketListener:
        # In a thread: the host may be a name, and the lookup may take seconds.
        sock = await asyncio.to_thread(
            bind, host, port, self.receive_buffer_bytes, is_listening=True
        )
        return SocketListener(self, sock, accept, tls)

    async def connect(
        self,
        host: str,
        port: int,
        accept: Callable[[SocketStream], Receiver],
        tls: SSLContext | None = None,
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
        stream = (
            self.add_stream(sock, (host, port))
            if tls is None
            else await self.open_tls_stream(sock, (host, port), tls)
        )
        stream.start(accept(stream))
        return stream

    async def open_tls_stream(
        self, sock: socket.socket, peer: tuple[str, int], context: SSLContext
    ) -> TlsStream:
        """Perform the handshake of a client. Raises ConnectionError."""
        stream = self.add_tls_stream(sock, peer, lambda: context, peer[0])
        done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def on_handshake(failure: str | None) -> None:
            if not done.done():
                done.set_result(failure)

        stream.start_handshake(on_handshake)
        try:
            failure = await done
        except asyncio.CancelledError:
            stream.close("cancelled")
            raise
        if failure is not None:
            raise ConnectionError(f"{peer[0]}:{peer[1]}: TLS handshake failed: {failure}")
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
