"""The floor: what the kernel and the checksum alone cost on this machine for the loads of the prebuilt frames.

The server does the least that a broker must do. For each produce request it receives the frame, computes the checksum,
writes the frame to a file and sends an answer of fixed size. For each fetch it sends 1 MB of that file with sendfile.
It knows the size of every frame, and it neither parses nor validates. The clients are those of the frames.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.batch.checksum import crc32c
from benchmarks.broker import process_cpu_s, recycle_pages
from benchmarks.frames import FETCH_BYTES, FETCHED_SHARE, build_batches, send_all, skip_response
from benchmarks.loads import MB, Cost, Load
from support.process import ChildProcess

TIMEOUT_S = 30.0
ANSWER = bytes(60)
FETCH_REQUEST = bytes(100)
FETCH_HEADER = FETCH_BYTES.to_bytes(4, "big")


def measure(load: Load) -> tuple[Cost, Cost]:
    """Return the cost of produce and of fetch with one connection and one file."""
    _, batches = build_batches(load)
    stored = load.batches * load.batch_bytes // FETCH_BYTES
    fetches = FETCHED_SHARE * stored
    buffer = memoryview(bytearray(MB))
    with tempfile.TemporaryDirectory(prefix="barnabas-floor-") as directory:
        recycle_pages(Path(directory), load.total_bytes)
        with running_server(Path(directory), load, stored) as (pid, stream):

            def produce(count: int) -> None:
                send_all(stream, batches, count, load.in_flight, len(ANSWER), buffer)

            def fetch() -> None:
                for _ in range(fetches):
                    stream.sendall(FETCH_REQUEST)
                    skip_response(stream, buffer)

            produce(load.warm_up_batches)
            cpu_s, began = process_cpu_s(pid), time.perf_counter()
            produce(load.batches)
            middle_s, middle = process_cpu_s(pid), time.perf_counter()
            fetch()
            ended_s, ended = process_cpu_s(pid), time.perf_counter()
    return (
        Cost(
            data_bytes=load.batches * load.batch_bytes,
            wall_s=middle - began,
            cpu_s=middle_s - cpu_s,
        ),
        Cost(data_bytes=fetches * FETCH_BYTES, wall_s=ended - middle, cpu_s=ended_s - middle_s),
    )


@contextmanager
def running_server(directory: Path, load: Load, stored: int) -> Iterator[tuple[int, socket.socket]]:
    """Yield the process id of the server and a connection to it."""
    counts = (load.batch_bytes, load.warm_up_batches + load.batches, stored)
    server = ChildProcess(
        "the floor server",
        [sys.executable, "-m", "benchmarks.floor", str(directory / "log"), *map(str, counts)],
        log=directory / "stderr",
        is_piped=True,
    )
    try:
        port = int(server.read_line(TIMEOUT_S))
        with socket.create_connection(("127.0.0.1", port)) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield server.pid, stream
    finally:
        server.kill()


def serve(path: str, frame_bytes: int, frames: int, stored: int) -> None:
    """Serve one connection: `frames` produce requests, then fetches of `stored` MB in turns until it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        stream, _ = listener.accept()
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    frame = memoryview(bytearray(max(frame_bytes, len(FETCH_REQUEST))))[:frame_bytes]
    for number in range(frames):
        stream.recv_into(frame, frame_bytes, socket.MSG_WAITALL)
        crc32c(frame)
        os.pwrite(file, frame, number * frame_bytes)
        stream.send(ANSWER)
    for number in itertools.count():
        if not stream.recv_into(frame, len(FETCH_REQUEST), socket.MSG_WAITALL):
            break
        stream.send(FETCH_HEADER, socket.MSG_MORE)
        at = number % stored * FETCH_BYTES
        end = at + FETCH_BYTES
        while at < end:
            at += os.sendfile(stream.fileno(), file, at, end - at)


if __name__ == "__main__":
    serve(sys.argv[1], *map(int, sys.argv[2:5]))
