"""Reads the znodes of a real ZooKeeper with a minimal client of its wire protocol.

connect   int32 version, int64 last zxid, int32 timeout ms, int64 session, bytes password, bool read only
request   int32 xid, int32 operation, string path, bool watch          response   int32 xid, int64 zxid, int32 error, …
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Self

GET_DATA, GET_CHILDREN, CLOSE = 4, 8, -11
CONNECT = struct.Struct(">iqiqi16s?")
REPLY = struct.Struct(">iqi")
INT = struct.Struct(">i")
NO_NODE = -101
TIMEOUT_S = 10.0
VERSION_AT = 32  # in a stat, after two transaction ids and two times


class Znodes:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.incoming = self.socket.makefile("rb")
        self.xid = 0
        self.send(CONNECT.pack(0, 0, 10_000, 0, 16, bytes(16), False))
        self.receive()

    def tree(self, root: str) -> dict[str, tuple[bytes, int]]:
        """Every node below `root`, by relative path: its data and version. Raises LookupError if a node disappears
        while it is read."""
        found: dict[str, tuple[bytes, int]] = {}
        level = [""]
        while level:
            whole = [root + path for path in level]
            if level != [""]:
                found |= zip(level, map(read_data, self.ask_all(GET_DATA, whole)), strict=True)
            below = map(read_children, self.ask_all(GET_CHILDREN, whole))
            level = [
                f"{path}/{child}"
                for path, children in zip(level, below, strict=True)
                for child in children
            ]
        return found

    def data(self, path: str) -> tuple[bytes, int]:
        (answer,) = self.ask_all(GET_DATA, [path])
        return read_data(answer)

    def children(self, path: str) -> list[str]:
        (answer,) = self.ask_all(GET_CHILDREN, [path])
        return read_children(answer)

    def ask_all(self, operation: int, paths: Sequence[str]) -> list[bytes]:
        """Send all requests at once: waiting for each would take longer."""
        first = self.xid + 1
        frames = []
        for path in paths:
            self.xid += 1
            name = path.encode()
            payload = struct.pack(">iii", self.xid, operation, len(name)) + name + b"\0"
            frames.append(INT.pack(len(payload)) + payload)
        self.socket.sendall(b"".join(frames))
        answers = [self.receive() for _ in paths]
        for expected, (path, answer) in enumerate(zip(paths, answers, strict=True), first):
            xid, _, error = REPLY.unpack_from(answer)
            if error == NO_NODE:
                raise LookupError(path)
            assert (xid, error) == (expected, 0), f"ZooKeeper answers {error} for {path}"
        return [answer[REPLY.size :] for answer in answers]

    def send(self, payload: bytes) -> None:
        self.socket.sendall(INT.pack(len(payload)) + payload)

    def receive(self) -> bytes:
        return self.exactly(INT.unpack(self.exactly(4))[0])

    def exactly(self, size: int) -> bytes:
        found = self.incoming.read(size)
        if len(found) < size:
            raise ConnectionError("closed by ZooKeeper")
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.send(struct.pack(">ii", 0, CLOSE))
        self.incoming.close()
        self.socket.close()


def read_data(answer: bytes) -> tuple[bytes, int]:
    size = max(INT.unpack_from(answer)[0], 0)
    return answer[4 : 4 + size], INT.unpack_from(answer, 4 + size + VERSION_AT)[0]


def read_children(answer: bytes) -> list[str]:
    count, at = INT.unpack_from(answer)[0], 4
    names = []
    for _ in range(count):
        size = INT.unpack_from(answer, at)[0]
        names.append(answer[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return names
