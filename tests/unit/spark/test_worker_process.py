"""Garbage collection and acknowledgements in Spark's workers.

Each case of garbage collection has its own process, because an exemption is for ever.
"""

from __future__ import annotations

import fcntl
import pickle
import socket
import struct
import sys
import termios
from importlib.machinery import ModuleSpec

import pytest

from barnabas.spark.formats import CodecFactory
from barnabas.spark.options import parse_read, parse_write
from barnabas.spark.schema import source_schema
from barnabas.spark.source import BatchReader
from barnabas.spark.worker_process import DAEMON, TaskObject
from barnabas.spark.writer import BatchWriter
from support.python_process import run

PROGRAM = """
import gc
import sys
from importlib.machinery import ModuleSpec
from barnabas.spark.worker_process import exempt_modules_from_gc

sys.modules["__main__"].__spec__ = ModuleSpec(sys.argv[1], None) if sys.argv[1] else None

def count():
    exempt_modules_from_gc()
    return gc.get_freeze_count()

first = count()
kept = [[number] for number in range(100)]
second = count()
import wsgiref.validate
third = count()
print(first > 0, second - first, third - second > 100)
"""


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        pytest.param("pyspark.daemon", "True 0 True", id="worker"),
        pytest.param("", "False 0 False", id="script"),
        pytest.param("pytest", "False 0 False", id="module"),
    ],
)
def test_only_imports_in_workers_exempt_objects(main: str, expected: str) -> None:
    done = run(PROGRAM, main)
    assert done.stdout.strip() == expected, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has TCP_QUICKACK")
@pytest.mark.parametrize("kind", ["reader", "writer", "codec"])
def test_worker_acknowledges_command_when_it_unpickles(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled = pickle.dumps(task_object(kind))
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(DAEMON, None))
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as worker,
        listener.accept()[0] as spark,
    ):
        worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        spark.send(b"command")
        assert worker.recv(100) == b"command"
        pickle.loads(pickled)
        assert unacknowledged_bytes(spark) == 0


def task_object(kind: str) -> TaskObject:
    servers = {"kafka.bootstrap.servers": "localhost:9092"}
    if kind == "reader":
        options = parse_read({**servers, "subscribe": "t"}, streaming=False)
        return BatchReader(options, source_schema(include_headers=False))
    if kind == "codec":
        return CodecFactory(str)
    return BatchWriter(parse_write({**servers, "topic": "t"}), ["value"])


def unacknowledged_bytes(sock: socket.socket) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))
    return int(count)
