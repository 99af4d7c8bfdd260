"""The znodes of a real ZooKeeper, read over its wire: as much of the protocol as takes to look, and no more.

connect   int32 version, int64 last zxid, int32 timeout ms, int64 session, bytes password, bool read only
request   int32 xid, int32 operation, string path, bool watch          answer   int32 xid, int64 zxid, int32 error, …
"""

from __future__ import annotations

import socket
import struct
from typing import Self

GET_DATA, GET_CHILDREN, CLOSE = 4, 8, -11
CONNECT = struct.Struct(">iqiqi16s?")
REPLY = struct.Struct(">iqi")
INT = struct.Struct(">i")
NO_NODE = -101
TIMEOUT_S = 10.0
VERSION_AT = 32  # in a stat, behind two transactions and two times


class Znodes:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.xid = 0
        self.send(CONNECT.pack(0, 0, 10_000, 0, 16, bytes(16), False))
        self.receive()

    def tree(self, root: str) -> dict[str, tuple[bytes, int]]:
        """Every node below `root`, by its path without it: its data, and how often that was changed. LookupError if
        one goes while it is read."""
        found: dict[str, tuple[bytes, int]] = {}
        left = [""]
        while left:
            path = left.pop()
            if path:
                found[path] = self.data(root + path)
            left += [f"{path}/{child}" for child in self.children(root + path)]
        return found

    def data(self, path: str) -> tuple[bytes, int]:
        answer = self.ask(GET_DATA, path)
        size = max(INT.unpack_from(answer)[0], 0)
        return answer[4 : 4 + size], INT.unpack_from(answer, 4 + size + VERSION_AT)[0]

    def children(self, path: str) -> list[str]:
        answer = self.ask(GET_CHILDREN, path)
        count, at = INT.unpack_from(answer)[0], 4
        names = []
        for _ in range(count):
            size = INT.unpack_from(answer, at)[0]
            names.append(answer[at + 4 : at + 4 + size].decode())
            at += 4 + size
        return names

    def ask(self, operation: int, path: str) -> bytes:
        self.xid += 1
        name = path.encode()
        head = struct.pack(">iii", self.xid, operation, len(name))
        self.send(head + name + b"\0")
        answer = self.receive()
        xid, _, error = REPLY.unpack_from(answer)
        if error == NO_NODE:
            raise LookupError(path)
        assert (xid, error) == (self.xid, 0), f"ZooKeeper answers {error} for {path}"
        return answer[REPLY.size :]

    def send(self, payload: bytes) -> None:
        self.socket.sendall(INT.pack(len(payload)) + payload)

    def receive(self) -> bytes:
        return self.exactly(INT.unpack(self.exactly(4))[0])

    def exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            chunk = self.socket.recv(size - len(found))
            if not chunk:
                raise ConnectionError("closed by ZooKeeper")
            found += chunk
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.send(struct.pack(">ii", 0, CLOSE))
        self.socket.close()
