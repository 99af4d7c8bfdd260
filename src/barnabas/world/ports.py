"""The doors to the world: everything a broker knows of time, sockets, files and the registry.

A broker is built as `Broker(config, world)` and reaches outside through these protocols alone. The real
doors stand beside this file; a simulation passes its own, on virtual time, and runs the very same broker.

What is in: what the broker uses, with who owns what and which error means what.
What is deliberately not in: `sleep` and timers. Driven code takes those from the running asyncio loop, which a
simulation replaces as a whole. Foreign errors (OSError, KazooException, sqlite3.Error) end at the door: what
comes through is StorageError, RegistryError, or `closed()` on a stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from random import Random
from typing import NamedTuple, Protocol

from msgspec import Struct

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Wall-clock time. Durations come from the loop: `asyncio.get_running_loop().time()`."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, as record timestamps count them; may jump either way."""
        ...


# ---- disk -----------------------------------------------------------------------------------------------------


class File(Protocol):
    """One open file. The descriptor behind it may be closed and reopened at any time (thousands of files share a
    bounded number of descriptors), so nobody keeps `fileno()` across a turn of the loop."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def append(self, parts: Sequence[Buffer]) -> None:
        """Write all parts at the end, or nothing: a failed write is cut back before StorageError is raised.
        The bytes are in the page cache, not on the disk, when this returns."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes at `position`; fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def rename(self, path: str) -> None:
        """Move the file; this object follows it."""
        ...

    def fileno(self) -> int:
        """For sendfile, used at once. A simulated file has none."""
        ...

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Files and directories. Paths are absolute strings. Failures are StorageErrors, OutOfSpace for a full disk."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def read_bytes(self, path: str) -> bytes: ...

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Write `<path>.tmp`, sync it if asked, rename it over `path`: readers see the old or the new whole."""
        ...

    def replacement(self, path: str) -> Callable[[bytes], None]:
        """A `replace_bytes` without sync, to be called once, in a thread. It leaves alone what a `replace_bytes` or a
        `replacement` asked for later has written or will write."""
        ...

    def make_directory(self, path: str) -> None:
        """With its parents; fine if it exists."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """A file; fine if it is gone already."""
        ...

    def remove_tree(self, path: str) -> None:
        """For a thread: it takes as long as the files are large."""
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Hold this lock file until released or the process ends; StorageError if another process holds it."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds `path`."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def aside(self) -> Disk:
        """The same files through descriptors of its own, for work in a thread. One thread at a time may use it, and
        whoever opens a file there closes it."""
        ...

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """fsync here and now: for start-up, shutdown and roll, never on the produce path."""
        ...

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """fsync off the loop; returns when the bytes written before the call are durable."""
        ...


class FileSlice(NamedTuple):
    """A run of bytes in a file, to be sent without being read into this process."""

    file: File
    position: int
    size: int


# ---- network --------------------------------------------------------------------------------------------------

Part = bytes | bytearray | memoryview | FileSlice


class Receiver(Protocol):
    """Our side of a stream: the door fills its buffer and tells it so."""

    def buffer(self) -> memoryview:
        """Where the next bytes go. Never empty."""
        ...

    def received(self, size: int) -> None:
        """So many bytes now stand at the beginning of the last `buffer()`."""
        ...

    def drained(self) -> None:
        """Everything handed to `send` has left, after a `send` that returned False."""
        ...

    def closed(self, reason: str) -> None:
        """The stream is gone; called exactly once, whoever ended it."""
        ...


class Stream(Protocol):
    """One connection."""

    @property
    def peer(self) -> tuple[str, int]: ...

    def send(self, parts: Sequence[Part]) -> bool:
        """Queue these parts; they belong to the door from now on. True: go on. False: the peer takes them more slowly
        than we make them; `drained()` will follow."""
        ...

    def pause(self) -> None:
        """Stop filling our buffer, so that the peer feels us being slow."""
        ...

    def resume(self) -> None: ...

    def close(self, reason: str) -> None: ...


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]: ...

    async def close(self) -> None: ...


class Network(Protocol):
    def host_name(self) -> str:
        """By which other machines know this one."""
        ...

    async def listen(
        self, host: str, port: int, accept: Callable[[Stream], Receiver | None]
    ) -> Listener:
        """Port 0 lets the system choose. `accept` returns None to refuse: the stream is closed at once.
        Raises AddressInUse."""
        ...

    async def connect(self, host: str, port: int, accept: Callable[[Stream], Receiver]) -> Stream:
        """Raises ConnectionError."""
        ...


# ---- registry -------------------------------------------------------------------------------------------------


class ZnodeStat(NamedTuple):
    """What ZooKeeper tells of a node besides its data. `ephemeral_owner` is 0 for a persistent node."""

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


class Check(Struct, frozen=True, kw_only=True):
    path: str
    version: int


Op = Create | SetData | Delete | Check


class SessionState(StrEnum):
    """What the owner of a session may believe.

    CONNECTED: its ephemeral nodes stand.  SUSPENDED: they may be gone; act on nothing that depends on them.
    EXPIRED: they are gone, and so are its watches; the session is of no more use, connect again.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class RegistrySession(Protocol):
    """One client of the znode tree. Watches are one-shot and belong to the session; they fire on the loop, after
    the change they tell of can be read. Errors: NoNode, NodeExists, BadVersion, NotEmpty,
    NoChildrenForEphemerals, BadPath, RegistrySessionExpired."""

    @property
    def id(self) -> int: ...

    @property
    def state(self) -> SessionState: ...

    def on_state(self, listener: Callable[[SessionState], None]) -> None: ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]: ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        """In order; None for what is not there. One request where `get` would take as many as there are paths, and not
        necessarily all at one moment."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        """A watch set here fires on creation, too."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, sorted."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, ZnodeStat]:
        """The path as created (a sequential node gets ten digits behind it) and its stat."""
        ...

    async def set(self, path: str, data: bytes, version: int = -1) -> ZnodeStat: ...

    async def delete(self, path: str, version: int = -1) -> None: ...

    async def multi(self, ops: Sequence[Op]) -> list[str | ZnodeStat | None]:
        """All or none. Per op: the created path, the new stat of a set, None. A failure raises MultiFailed, which
        holds the index of the op that failed and its error."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes go at once."""
        ...

    async def abandon(self) -> None:
        """As if this client had died: it hears nothing more, says no goodbye, and its session expires in its time."""
        ...


class Registry(Protocol):
    def connect(self, session_timeout_ms: int) -> Awaitable[RegistrySession]: ...


# ---- watchdog -------------------------------------------------------------------------------------------------


class Watchdog(Protocol):
    """Watches the event loop of one broker and counts its stalls."""

    @property
    def stalls(self) -> int:
        """How often the loop has not turned for a second or longer."""
        ...

    @property
    def longest_stall_s(self) -> float: ...

    def start(self) -> None:
        """Watch the running loop."""
        ...

    def stop(self) -> None:
        """Idempotent. The counts stay."""
        ...


class NoWatchdog:
    """For a loop on virtual time, which never stalls."""

    stalls = 0
    longest_stall_s = 0.0

    def start(self) -> None: ...

    def stop(self) -> None: ...


# ---- all of them ----------------------------------------------------------------------------------------------


class World(Struct, frozen=True, kw_only=True):
    """All doors of one broker."""

    clock: Clock
    network: Network
    disk: Disk
    registry: Registry
    random: Random
    watchdog: Watchdog = NoWatchdog()
