"""Traces of the controllers' requests and their responses: written as they happen, read by the checkers.

A line survives the process that wrote it: the kernel has it before the request is sent.

    <ns> sent <port> <frame>          <ns> answered <port> <frame without its size>

Times are of the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from barnabas.wire.apis import APIS
from barnabas.wire.codec import decode
from barnabas.wire.headers import decode_request_header, decode_response_header
from barnabas.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

CONTROL_REQUESTS = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}
ControlRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
ControlResponse = LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse
SIZE_BYTES = 4


class Trace:
    """Trace of one broker process."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def sent(self, port: int, frame: bytes) -> None:
        self.write("sent", port, frame)

    def answered(self, port: int, frame: bytes) -> None:
        self.write("answered", port, frame)

    def write(self, what: str, port: int, frame: bytes) -> None:
        line = f"{time.monotonic_ns()} {what} {port} {frame.hex()}\n"
        os.write(self.descriptor, line.encode())

    def close(self) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A controller's request. Without a code, it got no response or its sender crashed before."""

    at_ns: int
    port: int
    frame: bytes
    request: ControlRequest
    error_code: int | None


class TraceReader:
    """Reads traces that are still being written."""

    def __init__(self) -> None:
        self.read_to: dict[Path, int] = {}

    def new_exchanges(self, paths: Iterable[Path]) -> list[Exchange]:
        """Exchanges since the last call, in the order sent. A request without a response by now never gets one."""
        found = [exchange for path in paths for exchange in self.new_in(path)]
        return sorted(found, key=lambda each: each.at_ns)

    def new_in(self, path: Path) -> list[Exchange]:
        with path.open("rb") as trace:
            trace.seek(self.read_to.get(path, 0))
            data = trace.read()
        whole = data.rfind(b"\n") + 1
        self.read_to[path] = self.read_to.get(path, 0) + whole
        return exchanges_in(data[:whole].decode().splitlines())


def exchanges_in(lines: Iterable[str]) -> list[Exchange]:
    sent: dict[tuple[int, int], tuple[int, bytes, ControlRequest, int]] = {}
    found: list[Exchange] = []
    for line in lines:
        at_ns, what, port, written = line.split()
        data = bytes.fromhex(written)
        if what == "sent":
            header, at = decode_request_header(memoryview(data)[SIZE_BYTES:])
            api = APIS[header.api_key]
            request = decode(api.request, header.api_version, memoryview(data)[SIZE_BYTES:], at)
            key = int(port), header.correlation_id
            if key in sent:  # its connection was lost, and it was resent on another
                found.append(exchange(int(port), sent.pop(key), None))
            sent[key] = int(at_ns), data, cast(ControlRequest, request), header.api_version
        else:
            correlation_id = int.from_bytes(data[:4], "big", signed=True)
            sent_request = sent.pop((int(port), correlation_id), None)
            if sent_request is not None:
                found.append(
                    exchange(
                        int(port), sent_request, error_of(sent_request[2], sent_request[3], data)
                    )
                )
    found += [exchange(port, sent_request, None) for (port, _), sent_request in sent.items()]
    return found


def exchange(
    port: int, sent_request: tuple[int, bytes, ControlRequest, int], error_code: int | None
) -> Exchange:
    at_ns, frame, request, _ = sent_request
    return Exchange(at_ns=at_ns, port=port, frame=frame, request=request, error_code=error_code)


def error_of(request: ControlRequest, version: int, answer: bytes) -> int:
    """The error code of the whole request: stale requests are rejected as a whole."""
    key = request.API_KEY
    _, at = decode_response_header(key, version, memoryview(answer))
    response = decode(APIS[key].response, version, memoryview(answer), at)
    return cast(ControlResponse, response).error_code
