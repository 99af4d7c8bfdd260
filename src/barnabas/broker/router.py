"""Every API this broker serves, by name: decode the request, call its handler, frame the answer.

    frame ─► header ─► ROUTES[api key] ─► decode ─► handler ─► encode ─► size | header | body

A handler takes (parts, request, header, connection) and returns the response, or something to await for it, or None
where nothing is sent back. It raises ApiError for nothing that concerns one item of a request only: that goes into the
answer. What it does not expect closes the connection, in connection.py.

What every broker needs to serve its first record is imported here; the rest with its first request (`on_demand`), so
that a start does not wait for what it may never use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from struct import Struct
from types import CoroutineType
from typing import Any, NamedTuple

from barnabas.broker.connection import Answer, CloseConnection, Connection, Promise
from barnabas.broker.handlers import (
    api_versions,
    control,
    controller,
    fetch,
    metadata,
    produce,
    topics,
)
from barnabas.broker.handlers.fetch import FetchAnswer
from barnabas.broker.handlers.produce import ProduceAnswer, handle_repeated, may_be_repeated
from barnabas.broker.parts import BrokerParts
from barnabas.errors import ApiError
from barnabas.wire import codec
from barnabas.wire.apis import APIS, api_name
from barnabas.wire.fast import (
    decode_fetch,
    decode_produce,
    encode_fetch_response,
    encode_produce_response,
)
from barnabas.wire.headers import RequestHeader, decode_request_header, encode_response_header
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.world.ports import Part

SIZE = Struct(">i")
STOP_SECONDS = 2.0
PRODUCE, FETCH = 0, 1
CARRY_BATCHES = (PRODUCE, FETCH)
SMALL_BYTES = 64 * 1024

Decode = Callable[[int, memoryview, int], Any]
Handle = Callable[[BrokerParts, Any, RequestHeader, Connection], Any]
Encode = Callable[[int, Any], tuple[list[Part], int]]


class Route(NamedTuple):
    decode: Decode
    handle: Handle
    encode: Encode


def encode_message(version: int, response: Any) -> tuple[list[Part], int]:
    body = codec.encode(response, version)
    return [body], len(body)


def encode_produce(version: int, answer: ProduceAnswer) -> tuple[list[Part], int]:
    body = encode_produce_response(version, answer.topics, node_endpoints=answer.node_endpoints)
    return [body], len(body)


def encode_fetch(version: int, answer: FetchAnswer) -> tuple[list[Part], int]:
    return encode_fetch_response(
        version,
        answer.topics,
        error_code=answer.error_code,
        session_id=answer.session_id,
        node_endpoints=answer.node_endpoints,
    )


def already_encoded(_: int, body: bytes) -> tuple[list[Part], int]:
    return [body], len(body)


def compiled(key: int, handle: Handle, encode: Encode = encode_message) -> Route:
    """A route whose request is read by the schema compiler."""
    request = APIS[key].request

    def decode(version: int, data: memoryview, at: int) -> Any:
        return codec.decode(request, version, data, at)

    return Route(decode, handle, encode)


def on_demand(key: int, family: str, name: str) -> Route:
    """A compiled route whose handler, in handlers/<family>.py, and messages are imported with its first request."""

    @cache
    def route() -> Route:
        module = import_module(f"barnabas.broker.handlers.{family}")
        return compiled(key, getattr(module, name))

    def decode(version: int, data: memoryview, at: int) -> Any:
        return route().decode(version, data, at)

    def handle(
        parts: BrokerParts, request: Any, header: RequestHeader, connection: Connection
    ) -> Any:
        return route().handle(parts, request, header, connection)

    return Route(decode, handle, encode_message)


ROUTES: dict[int, Route] = {
    0: Route(decode_produce, produce.handle, encode_produce),
    1: Route(decode_fetch, fetch.handle, encode_fetch),
    2: on_demand(2, "offsets", "list_offsets"),
    3: compiled(3, metadata.handle, already_encoded),
    4: compiled(4, control.leader_and_isr),
    5: compiled(5, control.stop_replica),
    6: compiled(6, control.update_metadata),
    7: compiled(7, controller.controlled_shutdown),
    8: on_demand(8, "group_offsets", "offset_commit"),
    9: on_demand(9, "group_offsets", "offset_fetch"),
    10: on_demand(10, "coordinators", "find_coordinator"),
    11: on_demand(11, "groups", "join"),
    12: on_demand(12, "groups", "heartbeat"),
    13: on_demand(13, "groups", "leave"),
    14: on_demand(14, "groups", "sync"),
    15: on_demand(15, "groups", "describe"),
    16: on_demand(16, "groups", "list_all"),
    18: compiled(18, api_versions.handle),
    19: compiled(19, topics.create),
    20: compiled(20, topics.delete),
    21: on_demand(21, "delete_records", "handle"),
    22: on_demand(22, "coordinators", "init_producer_id"),
    23: on_demand(23, "offsets", "offset_for_leader_epoch"),
    32: on_demand(32, "configs", "describe"),
    35: on_demand(35, "cluster", "describe_log_dirs"),
    37: on_demand(37, "partitions", "create"),
    42: on_demand(42, "groups", "delete"),
    43: on_demand(43, "elections", "elect"),
    47: on_demand(47, "group_offsets", "offset_delete"),
    56: compiled(56, controller.alter_partition),
    60: on_demand(60, "cluster", "describe_cluster"),
}


class Router:
    """Serves frames with the parts of one broker."""

    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        # Insertion-ordered: a set would be walked in address order.
        self.running: dict[asyncio.Task[Any], None] = {}

    def serve(
        self, frame: memoryview, connection: Connection
    ) -> Answer | Awaitable[Answer] | Promise:
        repeated = connection.produces.find(frame)
        if repeated is not None:
            batch = connection.produces.batch(frame, repeated.is_flexible)
            if batch is not None:
                number: int = SIZE.unpack_from(frame, 4)[0]
                try:
                    answer = handle_repeated(self.parts, repeated, batch, number, connection)
                except ApiError:
                    pass  # answered below, where every error is
                else:
                    if answer is None or isinstance(answer, list):
                        return answer
                    header = repeated.header._replace(correlation_id=number)
                    return Promise(answer, partial(framed, ROUTES[PRODUCE], header))
        fetch_again = connection.fetches.find(frame)
        if fetch_again is not None:
            parts = fetch.handle_repeated(self.parts, fetch_again, frame)
            if parts is not None:
                return parts
        header, at = decode_request_header(frame)
        if not header.known:
            return self.unknown(header)
        route = ROUTES[header.api_key]
        if len(frame) > SMALL_BYTES and header.api_key not in CARRY_BATCHES:
            return self.later(
                route, header, self.handle_large(route, header, frame, at, connection)
            )
        request = route.decode(header.api_version, frame, at)
        if header.api_key == PRODUCE and may_be_repeated(request):
            connection.produces.learn(frame, header, request)
        elif header.api_key == FETCH and fetch_again is None:
            connection.fetches.learn(frame, at, header, request)
        response = route.handle(self.parts, request, header, connection)
        if isinstance(response, (asyncio.Future, CoroutineType)):
            if header.api_key == PRODUCE:
                # Its batches are in their logs: what is left is to wait.
                return Promise(response, partial(framed, route, header))
            return self.later(route, header, response)
        return framed(route, header, response)

    async def handle_large(
        self,
        route: Route,
        header: RequestHeader,
        frame: memoryview,
        at: int,
        connection: Connection,
    ) -> Any:
        """What a controller says of fifty thousand partitions takes long to read, and others want to be served."""
        request = await asyncio.to_thread(route.decode, header.api_version, frame, at)
        response = route.handle(self.parts, request, header, connection)
        if isinstance(response, (asyncio.Future, CoroutineType)):
            return await response
        return response

    def later(
        self, route: Route, header: RequestHeader, response: Awaitable[Any]
    ) -> Awaitable[Answer]:
        if isinstance(response, CoroutineType):
            response = asyncio.shield(self.run(response))
        return self.answer(route, header, response)

    async def answer(self, route: Route, header: RequestHeader, response: Awaitable[Any]) -> Answer:
        return framed(route, header, await response)

    def run(self, work: CoroutineType[Any, Any, Any]) -> asyncio.Task[Any]:
        """Work goes on when its client hangs up: half a topic would be left otherwise."""
        task = asyncio.get_running_loop().create_task(work)
        self.running[task] = None
        task.add_done_callback(self.finished)
        return task

    def finished(self, task: asyncio.Task[Any]) -> None:
        del self.running[task]
        if not task.cancelled():
            task.exception()  # told to the client, if it is still there

    async def stop(self) -> None:
        """Let what was begun come to its end; what waits for something is given a moment."""
        deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        for task in list(self.running):
            with suppress(Exception):
                async with asyncio.timeout_at(deadline):
                    await task

    def unknown(self, header: RequestHeader) -> Answer:
        """A client that speaks a newer ApiVersions is told so in the oldest one; others cannot be answered at all."""
        if header.api_key == ApiVersionsRequest.API_KEY:
            body = codec.encode(api_versions.UNSUPPORTED, 0)
            return [SIZE.pack(4 + len(body)) + SIZE.pack(header.correlation_id) + body]
        raise CloseConnection(
            f"{api_name(header.api_key)} v{header.api_version} is not served here "
            "(UNSUPPORTED_VERSION)"
        )


def framed(route: Route, header: RequestHeader, response: Any) -> Answer:
    if response is None:
        return None
    key, version, correlation_id, _ = header
    parts, size = route.encode(version, response)
    head = encode_response_header(key, version, correlation_id)
    prefix = SIZE.pack(len(head) + size) + head
    first = parts[0]
    if isinstance(first, bytes):
        parts[0] = prefix + first
    else:
        parts.insert(0, prefix)
    return parts
