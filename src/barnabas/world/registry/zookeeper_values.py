"""Conversion of values and errors between the interface in ports.py and kazoo. Sends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import (
    EXCEPTIONS,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.hosts import collect_hosts
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType
from kazoo.protocol.states import ZnodeStat as KazooStat

from barnabas.errors import (
    BadPath,
    BadVersion,
    ConfigError,
    MultiFailed,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    RegistryError,
    RegistrySessionExpired,
)
from barnabas.world.ports import CheckVersion, Create, Delete, Op, SetData, WatchKind, ZnodeStat
from barnabas.world.registry.tree import ROOT, check_path
from barnabas.world.registry.znode_acls import acl_of

# A server closes the connection on a longer request (jute.maxbuffer), and the session would resend it forever.
REQUEST_BYTES_MAX = 0xFFFFF
REQUEST_OVERHEAD_BYTES = 64  # per operation, in addition to its path and data

EPHEMERAL, SEQUENTIAL = 1, 2


class Unimplemented(RegistryError):
    """The server does not support this request."""


ERRORS: dict[type[KazooException], type[RegistryError]] = {
    NoNodeError: NoNode,
    NodeExistsError: NodeExists,
    BadVersionError: BadVersion,
    NotEmptyError: NotEmpty,
    NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    SessionExpiredError: RegistrySessionExpired,
    UnimplementedError: Unimplemented,
}
REASONS: dict[type[KazooException], tuple[type[RegistryError], str]] = {
    NoAuthError: (
        NoAuth,
        "the ACL of the znode does not permit this: log in to ZooKeeper with the identity of the brokers",
    ),
    InvalidACLError: (
        NoAuth,
        "ZooKeeper does not know this client, so the znode cannot get an ACL: log in to ZooKeeper, "
        "or set zookeeper.set.acl=false",
    ),
}
NO_WATCH = b"\x00"
WATCH_KINDS = {
    EventType.CREATED: WatchKind.CREATED,
    EventType.DELETED: WatchKind.DELETED,
    EventType.CHANGED: WatchKind.CHANGED,
    EventType.CHILD: WatchKind.CHILDREN,
}


def parse_connect_string(text: str) -> tuple[str, int, Chroot]:
    """Parse `h1:2181,h2:2181/kafka` into the hosts `h1:2181,h2:2181`, their number 2 and the chroot /kafka."""
    hosts, slash, rest = text.strip().partition("/")
    root = (slash + rest).rstrip("/")
    try:
        count = len(collect_hosts(hosts)[0])
        if root:
            check_path(root)
    except (ValueError, BadPath) as error:
        raise ConfigError(
            "zookeeper.connect", f"'{text}' is not host:port,…/chroot: {error}"
        ) from None
    return hosts, count, Chroot(root)


class MultiRead:
    """Request for the data of many nodes, without watches. ZooKeeper has it since 3.6; kazoo lacks it."""

    type = 22  # attribute name required by kazoo

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def serialize(self) -> bytes:
        header = serialization.multiheader_struct.pack(serialization.GetData.type, False, -1)
        parts: list[bytes] = []
        for path in self.paths:
            parts += (header, serialization.write_string(path), NO_WATCH)
        return b"".join([*parts, serialization.multiheader_struct.pack(-1, True, -1)])

    @staticmethod
    def deserialize(data: bytes, at: int) -> list[tuple[bytes, ZnodeStat] | int]:
        """Return per node its data and stat, or an error code."""
        header, stat = serialization.multiheader_struct, serialization.stat_struct
        number = serialization.int_struct
        found: list[tuple[bytes, ZnodeStat] | int] = []
        while True:
            kind, is_end, _ = header.unpack_from(data, at)
            at += header.size
            if is_end:
                return found
            if kind == serialization.GetData.type:
                content, at = serialization.read_buffer(data, at)
                found.append((content or b"", to_stat(KazooStat._make(stat.unpack_from(data, at)))))
                at += stat.size
            else:
                found.append(number.unpack_from(data, at)[0])
                at += number.size


class Chroot:
    """The path prefix of the tree in the ensemble; "" for none. With `is_secure`, new znodes get ACLs."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.is_secure = False

    def full(self, path: str) -> str:
        check_path(path)
        return self.root + path if path != ROOT else self.root or ROOT

    def strip(self, full: str) -> str:
        return full[len(self.root) :] or ROOT

    def request(self, op: Op) -> Any:
        """Return kazoo's request for an operation. Raises BadPath for a path that ZooKeeper's clients reject."""
        match op:
            case Create():
                # ZooKeeper appends digits to the name of a sequential node, so "/a/" is a valid path for one.
                check_path(op.path + "0" if op.sequential else op.path)
                full = self.root + op.path if op.sequential else self.full(op.path)
                flags = EPHEMERAL * op.ephemeral | SEQUENTIAL * op.sequential
                acl = acl_of(op.path, is_secure=self.is_secure)
                return serialization.Create(full, null_if_empty(op.data), acl, flags)
            case SetData():
                return serialization.SetData(self.full(op.path), null_if_empty(op.data), op.version)
            case Delete():
                if op.path == ROOT:
                    raise BadPath(ROOT, "the root cannot be deleted")
                return serialization.Delete(self.full(op.path), op.version)
            case CheckVersion():
                return serialization.CheckVersion(self.full(op.path), op.version)

    def results(self, ops: Sequence[Op], answers: Sequence[Any]) -> list[str | ZnodeStat | None]:
        """Return the results of a transaction. Raises MultiFailed if it failed."""
        for index, answer in enumerate(answers):
            # Only one operation has the real error. The others have one of these two: rolled back, or not tried.
            if isinstance(answer, Exception) and not isinstance(
                answer, RolledBackError | RuntimeInconsistency
            ):
                raise MultiFailed(index, to_registry_error(answer, ops[index].path))
        return [self.result(op, answer) for op, answer in zip(ops, answers, strict=True)]

    def result(self, op: Op, answer: Any) -> str | ZnodeStat | None:
        match op:
            case Create():
                return self.strip(answer)
            case SetData():
                return to_stat(answer)
            case _:
                return None


def check_request_size(ops: Sequence[Op]) -> None:
    """Raise RegistryError for a request that exceeds REQUEST_BYTES_MAX."""
    size = 0
    for op in ops:
        data = op.data if isinstance(op, Create | SetData) else b""
        size += len(op.path.encode()) + len(data) + REQUEST_OVERHEAD_BYTES
    if size > REQUEST_BYTES_MAX:
        raise RegistryError(
            ops[0].path,
            f"request has {size} bytes; ZooKeeper accepts at most {REQUEST_BYTES_MAX} (jute.maxbuffer)",
        )


def null_if_empty(data: bytes) -> bytes | None:
    """Return None for empty data: Kafka also writes null."""
    return bytes(data) or None


def to_stat(stat: Any) -> ZnodeStat:
    return ZnodeStat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=stat.pzxid,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        version=stat.version,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        num_children=stat.numChildren,
    )


def to_registry_error(error: Exception, path: str) -> RegistryError:
    for kazoo_error, registry_error in ERRORS.items():
        if isinstance(error, kazoo_error):
            return registry_error(path)
    for kazoo_error, (registry_error, why) in REASONS.items():
        if isinstance(error, kazoo_error):
            return registry_error(path, why)
    return RegistryError(path, f"ZooKeeper error {type(error).__name__} {error}".rstrip())


def read_result(path: str, found: tuple[bytes, ZnodeStat] | int) -> tuple[bytes, ZnodeStat] | None:
    """Return one result of a MultiRead; None for a missing node."""
    if not isinstance(found, int):
        return found
    if found == NoNodeError.code:
        return None
    raise to_registry_error(EXCEPTIONS[found](), path)
