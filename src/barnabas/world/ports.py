"""Interfaces through which a broker reaches the outside: clock, disk, network, registry, watchdog, and threads for
foreign code.

A broker is built as `Broker(config, world)` and uses these protocols only. The real implementations are in this
package. A simulation passes its own implementations on virtual time and runs the same broker.

Sleeps and timers are not included: code takes them from the running asyncio loop, which a simulation replaces as a
whole. Implementations translate OSError, KazooException and sqlite3.Error. They raise StorageError, RegistryError,
AddressInUse or ConnectionError, or call `closed()` on the receiver of a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from random import Random
from ssl import SSLContext
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Wall-clock time. Durations come from the loop: `asyncio.get_running_loop().time()`."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970, as in record timestamps. May jump forward and backward."""


# ---- disk -----------------------------------------------------------------------------------------------------


class File(Protocol):
    """One open file.

    Its descriptor may be closed and reopened at any time, since thousands of files share a limited number of
    descriptors. So the result of `fileno()` is valid only until the end of the current turn of the loop.
    """

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def append(self, parts: Sequence[Buffer]) -> None:
        """Write all parts at the end, or nothing: a failed write is truncated before StorageError is raised.

        When this returns, the bytes are in the page cache but not yet on the disk.
        """

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes at `position`, or fewer at the end of the file."""

    def truncate(self, size: int) -> None: ...

    def rename(self, path: str) -> None:
        """Rename the file. This object keeps referring to it."""

    def moved(self, path: str) -> None:
        """Record the new path of the file after its directory was renamed."""

    def fileno(self) -> int:
        """Return the descriptor for immediate use by sendfile. A simulated file has none."""

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Files and directories. Paths are absolute strings. Raises StorageError, and OutOfSpace for a full disk."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file. With `create`, create it if it does not exist."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def read_bytes(self, path: str) -> bytes: ...

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace a file atomically: write `<path>.tmp`, fsync it if `sync`, rename it to `path`."""

    def prepare_replace(self, path: str) -> Callable[[bytes], None]:
        """Return a function that replaces the file without fsync. It must be called once, in a thread.

        It does nothing if `replace_bytes` or `prepare_replace` has been called again for this path.
        """

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents. Does nothing if it exists."""

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file. Does nothing if it does not exist."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything in it. Blocks for long if the files are large: call it in a thread."""

    def lock(self, path: str) -> DirectoryLock:
        """Lock a file until release or the end of the process. Raises DirectoryLocked if it is locked already."""

    def space(self, path: str) -> tuple[int, int]:
        """Return the (total, usable) bytes of the volume that holds `path`."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def for_thread(self) -> Disk:
        """Return a disk with the same files and its own descriptors, for work in a thread.

        Only one thread at a time may use it. The caller must close the files that it opens.
        """

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """Call fsync in this thread: at start-up, shutdown and segment roll, never on the produce path."""

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """Call fsync in another thread. Returns when all bytes written before the call are durable."""


class FileSlice(NamedTuple):
    """A range of bytes in a file, to be sent without reading it into this process."""

    file: File
    position: int
    size: int


# ---- network --------------------------------------------------------------------------------------------------

Part = bytes | bytearray | memoryview | FileSlice


class Receiver(Protocol):
    """The owner of a stream. The network writes received bytes into its buffer and calls it back."""

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes. It must not be empty."""

    def received(self, size: int) -> None:
        """Called when `size` bytes have been written to the beginning of the last `buffer()`."""

    def drained(self) -> None:
        """Called when all queued parts have been sent, after a `send` that returned False."""

    def closed(self, reason: str) -> None:
        """Called exactly once when the stream is closed, by either side."""


class Stream(Protocol):
    @property
    def peer(self) -> tuple[str, int]: ...

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the peer in DER. None without TLS, or if the peer has none."""

    def send(self, parts: Sequence[Part]) -> bool:
        """Queue these parts. The caller must not change them any more.

        Returns False if the peer reads too slowly; the sender should then wait for `drained()`.
        """

    def pause(self) -> None:
        """Stop reading from the peer, so that TCP flow control slows it down."""

    def resume(self) -> None: ...

    def close(self, reason: str) -> None: ...


class Listener(Protocol):
    admit: Callable[[str], float] | None
    """Called with the address of the peer of each new connection, before TLS. A result above 0 is the time in seconds
    after which the connection is closed unserved."""

    @property
    def address(self) -> tuple[str, int]: ...

    def handshakes_of(self, host: str) -> int:
        """Return the number of connections of a host whose TLS handshake is in progress."""

    def pause_accepting(self, seconds: float) -> None:
        """Accept no connection for this time. New connections wait in the backlog."""

    async def close(self) -> None: ...


class ServerTls(Protocol):
    """TLS of a listener."""

    def current_context(self) -> SSLContext:
        """Return the context for a new connection."""

    def handshake_failed(self, peer: tuple[str, int], reason: str) -> None:
        """Called when a connection is closed because its handshake failed."""


class Network(Protocol):
    def host_name(self) -> str:
        """Return the name by which other machines reach this one."""

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver | None],
        tls: ServerTls | None = None,
    ) -> Listener:
        """Listen on an address. Port 0 lets the system choose a port. Raises AddressInUse.

        `accept` is called for each connection, with TLS after the handshake. If it returns None, the connection is
        closed.
        """

    async def connect(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver],
        tls: SSLContext | None = None,
    ) -> Stream:
        """Open a connection, with TLS if there is a context. Raises ConnectionError."""


# ---- registry -------------------------------------------------------------------------------------------------


class ZnodeStat(NamedTuple):
    """Metadata of a znode, as in ZooKeeper. `ephemeral_owner` is 0 for a persistent node."""

    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int


class WatchKind(StrEnum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    kind: WatchKind
    path: str


Watch = Callable[[WatchEvent], None]


class Create(Struct, frozen=True, kw_only=True):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(Struct, frozen=True, kw_only=True):
    path: str
    data: bytes
    version: int = -1


class Delete(Struct, frozen=True, kw_only=True):
    path: str
    version: int = -1


class CheckVersion(Struct, frozen=True, kw_only=True):
    path: str
    version: int


Op = Create | SetData | Delete | CheckVersion


class SessionState(StrEnum):
    """State of a registry session.

    CONNECTED: the ephemeral nodes exist. SUSPENDED: they may be deleted; do nothing that depends on them. EXPIRED: they
    and the watches are deleted; open a new session.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class RegistrySession(Protocol):
    """One client of the znode tree.

    Watches are one-shot and belong to the session. They are called on the loop, before the session can read the change.
    Version -1 matches every version. Methods raise NoNode, NodeExists, BadVersion, NotEmpty, NoChildrenForEphemerals,
    BadPath and RegistrySessionExpired.
    """

    @property
    def id(self) -> int: ...

    @property
    def state(self) -> SessionState: ...

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` on the loop after each change of the state."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]: ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        """Return data and stat of each path, in order; None for a missing node.

        Sends one request instead of one per path. The result is not necessarily a consistent snapshot.
        """

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        """Return the stat, or None for a missing node. The watch also fires when the node is created."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of the children, sorted."""

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, ZnodeStat]:
        """Return the path of the new node and its stat. A sequential node gets ten digits appended to its path."""

    async def set(self, path: str, data: bytes, version: int = -1) -> ZnodeStat: ...

    async def delete(self, path: str, version: int = -1) -> None: ...

    async def multi(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        """Perform all operations atomically.

        Returns per operation the path of a create, the new stat of a set, or None. Raises MultiFailed with the index of
        the operation that failed and its error.
        """

    async def close(self) -> None:
        """End the session. Its ephemeral nodes are deleted immediately."""

    async def abandon(self) -> None:
        """Drop the session as if the client had crashed. It gets no more events and expires after its timeout."""


class Registry(Protocol):
    def connect(self, session_timeout_ms: int) -> Awaitable[RegistrySession]: ...


# ---- watchdog -------------------------------------------------------------------------------------------------


class Watchdog(Protocol):
    """Watches the event loop of one broker and counts its stalls."""

    @property
    def stalls(self) -> int:
        """Number of times that the loop was blocked for a second or longer."""

    @property
    def longest_stall_s(self) -> float: ...

    def start(self) -> None:
        """Watch the running loop."""

    def stop(self) -> None:
        """Stop watching. Idempotent. Keeps the counts."""


class NoWatchdog:
    """For a loop on virtual time, which never stalls."""

    stalls = 0
    longest_stall_s = 0.0

    def start(self) -> None: ...

    def stop(self) -> None: ...


# ---- foreign code -----------------------------------------------------------------------------------------------


class ThreadCaller(Protocol):
    """Calls functions that may block forever, such as the policies of an operator."""

    def start(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Call `call` in a new thread that does not delay the end of the process. `call` must not raise."""


class DirectCaller:
    """Calls functions at once, on the loop."""

    def start(self, call: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        future.set_result(call())
        return future


class DownloadRefused(ConnectionError):
    """A server has refused a request. It would refuse the same request again."""


class Downloader(Protocol):
    """Reads documents of other servers, such as the keys that verify tokens."""

    def get(self, url: str, *, timeout_s: float, bytes_max: int) -> bytes:
        """Return a document. Blocks: call it in a thread. Raises ConnectionError."""

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, bytes_max: int
    ) -> bytes:
        """Send a form and return the response. Raises ConnectionError, such as DownloadRefused. Blocks like `get`."""


class NoDownloader:
    """For a world without other servers."""

    def get(self, url: str, *, timeout_s: float, bytes_max: int) -> bytes:
        raise ConnectionError("downloads are not available")

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, bytes_max: int
    ) -> bytes:
        raise ConnectionError("downloads are not available")


# ---- world ----------------------------------------------------------------------------------------------------


class World(Struct, frozen=True, kw_only=True):
    """The implementations that one broker uses."""

    clock: Clock
    network: Network
    disk: Disk
    registry: Registry
    random: Random
    watchdog: Watchdog = NoWatchdog()
    caller: ThreadCaller = DirectCaller()
    downloader: Downloader = NoDownloader()
