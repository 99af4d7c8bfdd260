"""Routes of the APIs that a broker serves: decode the request, call its handler, encode and frame the response.

    frame ─► header ─► ROUTES[api key] ─► decode ─► handler ─► encode ─► size | header | body

A handler takes (context, request, header, connection). It returns the response or an awaitable of it, or a generator
that works in bounded turns (bounded_work.py). None means that no response is sent. An error of one item of a request
goes into the response. An unexpected exception closes the connection (connection.py).

Large requests are decoded, and large responses encoded, in a thread. A response over RESPONSE_BYTES_MAX is not sent:
the connection is closed, and the reason is logged.

Handlers that every broker needs before its first record are imported here. The others are imported at their first
request, which makes the start of a broker faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from itertools import islice
from struct import Struct
from typing import Any, NamedTuple

from msgspec.structs import astuple

from barnabas.broker.bounded_work import (
    NOT_STARTED,
    Background,
    RequestLane,
    TurnResult,
    Work,
    release,
    run_in_turns,
)
from barnabas.broker.broker_requests import BROKER_REQUESTS, CONTROLLER_REQUESTS, WITHOUT_QUOTA
from barnabas.broker.connection import (
    CloseConnection,
    Connection,
    EncodedResponse,
    PendingResponse,
    ServeResult,
)
from barnabas.broker.context import BrokerContext
from barnabas.broker.handlers import (
    alter_partition,
    api_versions,
    controlled_shutdown,
    create_topics,
    delete_topics,
    fetch,
    leader_and_isr,
    metadata,
    produce,
    stop_replica,
    update_metadata,
)
from barnabas.broker.handlers.fetch import FetchResult
from barnabas.broker.produce_appends import Produce, ProduceResult
from barnabas.broker.repeated_requests import learn_request, serve_repeated
from barnabas.broker.throttle_times import set_throttle_time
from barnabas.broker.work_meter import MeteredWork, WorkMeter
from barnabas.errors import ErrorCode
from barnabas.tasks import in_thread
from barnabas.wire import codec
from barnabas.wire.apis import APIS, ApiKey, api_name
from barnabas.wire.fast import (
    ManyPartitions,
    RepeatedFetches,
    RepeatedProduces,
    decode_fetch,
    decode_produce,
    decode_small_produce,
    encode_fetch_response,
    encode_produce_response,
)
from barnabas.wire.headers import RequestHeader, decode_request_header, encode_response_header
from barnabas.world.ports import Part

SIZE = CORRELATION_ID = Struct(">i")
STOP_SECONDS = 2.0
PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
SMALL_BYTES = 16 * 1024
"""A larger frame is decoded in a thread, except Produce, whose bytes are mostly batches."""
SMALL_ELEMENTS = 1000
"""A response with more array elements is encoded in a thread."""
RESPONSE_BYTES_MAX = 32 << 20
"""Maximum size of a response, without the records of a Fetch response, which are sent from their files."""

COUNTED_MESSAGES = 200
"""Number of items of a response in which errors are counted. Counting must not take long."""
FINISHED = (ProduceResult, FetchResult, bytes)
"""Responses of frequent requests. This check is faster than those of abstract classes."""

Decode = Callable[[int, memoryview, int], Any]
Handle = Callable[[BrokerContext, Any, RequestHeader, Connection], Any]
Encode = Callable[[int, Any], tuple[list[Part], int]]


def has_many_elements(response: Any) -> bool:
    return codec.has_more_elements(response, SMALL_ELEMENTS)


def has_many_produced(response: ProduceResult | None) -> bool:
    """Like has_many_elements, but adds up the lengths of the topics instead of visiting every partition."""
    count = 0
    if response is not None:
        for topic in response.topics:
            count += len(topic.partition_responses)
    return count > SMALL_ELEMENTS


def has_many_fetched(response: FetchResult) -> bool:
    count = 0
    for topic in response.topics:
        count += len(topic.partitions)
    return count > SMALL_ELEMENTS


def is_never_large(_: bytes) -> bool:
    return False


class Route(NamedTuple):
    decode: Decode
    """Raises ManyPartitions if the request must be decoded in a thread."""
    handle: Handle
    encode: Encode
    decode_in_thread: Decode | None = None
    """Used in a thread instead of `decode`, if set."""
    is_large: Callable[[Any], bool] = has_many_elements
    """Whether the response is encoded in a thread."""


def encode_message(version: int, response: Any) -> tuple[list[Part], int]:
    body = codec.encode(response, version, bytes_max=RESPONSE_BYTES_MAX)
    return [body], len(body)


def encode_produce(version: int, response: ProduceResult) -> tuple[list[Part], int]:
    body = encode_produce_response(
        version,
        response.topics,
        throttle_time_ms=response.throttle_time_ms,
        node_endpoints=response.node_endpoints,
    )
    return [body], len(body)


def encode_fetch(version: int, response: FetchResult) -> tuple[list[Part], int]:
    return encode_fetch_response(
        version,
        response.topics,
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        session_id=response.session_id,
        node_endpoints=response.node_endpoints,
    )


def pass_encoded(_: int, body: bytes) -> tuple[list[Part], int]:
    return [body], len(body)


def compiled_route(
    key: int,
    handle: Handle,
    encode: Encode = encode_message,
    is_large: Callable[[Any], bool] = has_many_elements,
) -> Route:
    """Return a route whose request is decoded by the schema compiler."""
    request = APIS[key].request

    def decode(version: int, data: memoryview, at: int) -> Any:
        return codec.decode(request, version, data, at)

    return Route(decode, handle, encode, is_large=is_large)


def on_demand_route(key: int) -> Route:
    """Return a compiled route whose handler and messages are imported at its first request."""

    @cache
    def route() -> Route:
        handler = import_module(f"barnabas.broker.handlers.{APIS[key].module}")
        return compiled_route(key, handler.handle)

    def decode(version: int, data: memoryview, at: int) -> Any:
        return route().decode(version, data, at)

    def handle(
        context: BrokerContext, request: Any, header: RequestHeader, connection: Connection
    ) -> Any:
        return route().handle(context, request, header, connection)

    return Route(decode, handle, encode_message)


HANDLERS: dict[ApiKey, Handle] = {
    ApiKey.LEADER_AND_ISR: leader_and_isr.handle,
    ApiKey.STOP_REPLICA: stop_replica.handle,
    ApiKey.UPDATE_METADATA: update_metadata.handle,
    ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown.handle,
    ApiKey.API_VERSIONS: api_versions.handle,
    ApiKey.CREATE_TOPICS: create_topics.handle,
    ApiKey.DELETE_TOPICS: delete_topics.handle,
    ApiKey.ALTER_PARTITION: alter_partition.handle,
}
"""Handlers that are imported at the start of the broker."""

ROUTES: dict[int, Route] = {
    ApiKey.PRODUCE: Route(
        decode_small_produce, produce.handle, encode_produce, decode_produce, has_many_produced
    ),
    ApiKey.FETCH: Route(decode_fetch, fetch.handle, encode_fetch, is_large=has_many_fetched),
    ApiKey.METADATA: compiled_route(ApiKey.METADATA, metadata.handle, pass_encoded, is_never_large),
    **{key: compiled_route(key, handler) for key, handler in HANDLERS.items()},
}
ROUTES |= {key: on_demand_route(key) for key in APIS if key not in ROUTES}
"""The route of every API in APIS, by its key."""


class Router:
    """Serves the requests of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.quotas = context.client_quotas
        self.background = Background()
        self.running: dict[asyncio.Task[Any], None] = {}

    def serve(self, frame: memoryview, connection: Connection) -> ServeResult:
        """Serve one frame. Requests like an earlier one take a faster path, unless a quota applies to the client."""
        version = self.quotas.stored.version
        if connection.quota_version != version:
            connection.quota_version = version
            connection.produces, connection.fetches = RepeatedProduces(), RepeatedFetches()
        served = serve_repeated(self.context, frame, connection)
        if isinstance(served, Produce):
            header, _ = decode_request_header(frame)
            encode = partial(frame_response, ROUTES[PRODUCE], header)
            return PendingResponse(produce.wait_for_acks(served), encode)
        if served is not None:
            return served
        return self.serve_general(frame, connection)

    def serve_general(self, frame: memoryview, connection: Connection) -> ServeResult:
        header, at = decode_request_header(frame)
        if not header.is_served:
            return self.respond_unsupported(header, connection)
        connection.api = header.api_key
        if self.quotas.is_active:
            meter = self.quotas.select_meter(connection, header.client_id)
            if meter is not None:
                return self.serve_metered(frame, header, at, connection, meter)
        return self.serve_decoded(frame, header, at, connection)

    def serve_metered(
        self,
        frame: memoryview,
        header: RequestHeader,
        at: int,
        connection: Connection,
        meter: WorkMeter,
    ) -> ServeResult:
        meter.resume()
        try:
            response = self.serve_decoded(frame, header, at, connection)
        finally:
            meter.pause()
        return MeteredWork(response, meter) if isinstance(response, Coroutine) else response

    def serve_decoded(
        self, frame: memoryview, header: RequestHeader, at: int, connection: Connection
    ) -> ServeResult:
        route = ROUTES[header.api_key]
        if len(frame) > SMALL_BYTES and header.api_key != PRODUCE:
            return self.serve_large(route, header, frame, at, connection)
        try:
            request = route.decode(header.api_version, frame, at)
        except ManyPartitions:
            return self.serve_large(route, header, frame, at, connection)
        may_repeat = header.api_key in (PRODUCE, FETCH)
        if may_repeat and not self.quotas.has_quota(connection, header.client_id):
            learn_request(frame, at, header, request, connection)
        response = route.handle(self.context, request, header, connection)
        if not isinstance(response, FINISHED) and isinstance(response, Generator):
            turn = self.background.start(response)
            if not turn.is_done:
                return self.serve_in_turns(route, header, response, turn, connection)
            response = turn.value
        return self.respond(route, header, response, connection)

    def respond(
        self, route: Route, header: RequestHeader, response: Any, connection: Connection
    ) -> ServeResult:
        if not isinstance(response, FINISHED) and isinstance(response, (asyncio.Future, Coroutine)):
            if header.api_key == PRODUCE:
                # The batches are in their logs and wait for replicas.
                return PendingResponse(response, partial(frame_response, route, header))
            if isinstance(response, Coroutine):
                response = self.run(response, connection)
            return self.await_response(route, header, response, connection)
        if connection.meter is not None:
            response = self.throttle(header, response, connection)
        if route.is_large(response):
            return self.encode_in_thread(route, header, response)
        return self.frame_counted(route, header, response)

    def frame_counted(self, route: Route, header: RequestHeader, response: Any) -> EncodedResponse:
        """Count the errors in a response, and frame it. Produce and Fetch count theirs by partition."""
        if not isinstance(response, FINISHED):
            for code in islice(error_codes(response), COUNTED_MESSAGES):
                if code:
                    self.context.metrics.count_error(header.api_key, code)
        return frame_response(route, header, response)

    async def serve_large(
        self,
        route: Route,
        header: RequestHeader,
        frame: memoryview,
        at: int,
        connection: Connection,
    ) -> EncodedResponse | PendingResponse:
        """Decode a large request in a thread, then serve it. Only LARGE_AT_ONCE such requests are served at a time."""
        decode = route.decode_in_thread or route.decode
        lane = self.find_lane(header)
        async with lane.large:
            async with lane.thread:
                request = await in_thread(decode, header.api_version, frame, at)
            response = route.handle(self.context, request, header, connection)
            if isinstance(response, Generator):
                response = await self.background.finish(response, NOT_STARTED)
        encoded = await self.await_response(route, header, response, connection)
        if header.api_key in CONTROLLER_REQUESTS:
            items = list(astuple(request))
            del request
            await run_in_turns(release(items))
        return encoded

    def find_lane(self, header: RequestHeader) -> RequestLane:
        is_of_broker = header.api_key == FETCH or header.api_key in BROKER_REQUESTS
        return self.background.brokers if is_of_broker else self.background.clients

    async def serve_in_turns(
        self,
        route: Route,
        header: RequestHeader,
        work: Work[Any],
        turn: TurnResult,
        connection: Connection,
    ) -> EncodedResponse | PendingResponse:
        """Run the remaining turns of a handler. Cancelled between two turns when the client disconnects."""
        response = await self.background.finish(work, turn)
        return await self.await_response(route, header, response, connection)

    async def await_response(
        self, route: Route, header: RequestHeader, response: Any, connection: Connection
    ) -> EncodedResponse | PendingResponse:
        if isinstance(response, Coroutine):
            if header.api_key == PRODUCE:
                return PendingResponse(response, partial(frame_response, route, header))
            response = self.run(response, connection)
        if isinstance(response, asyncio.Task):
            response = asyncio.shield(response)
        if isinstance(response, asyncio.Future):
            loop = asyncio.get_running_loop()
            began = loop.time()
            response = await response
            connection.remote_s = loop.time() - began
        if connection.meter is not None:
            response = self.throttle(header, response, connection)
        if route.is_large(response):
            return await self.encode_in_thread(route, header, response)
        return self.frame_counted(route, header, response)

    async def encode_in_thread(
        self, route: Route, header: RequestHeader, response: Any
    ) -> EncodedResponse:
        lane = self.find_lane(header)
        async with lane.large, lane.thread:
            return await in_thread(self.frame_counted, route, header, response)

    def throttle(self, header: RequestHeader, response: Any, connection: Connection) -> Any:
        """Count the time of a request against the quota of its client. Returns the response with the throttle time.

        Handlers of Produce and Fetch do this themselves.
        """
        if header.api_key in (PRODUCE, FETCH) or header.api_key in WITHOUT_QUOTA:
            return response
        throttle_ms = self.quotas.charge_work(connection, header.client_id)
        return set_throttle_time(header, response, throttle_ms) if throttle_ms else response

    def run(self, work: Coroutine[Any, Any, Any], connection: Connection) -> asyncio.Task[Any]:
        """Run a handler to its end even if the client disconnects: a topic must not be half created."""
        if connection.meter is not None:
            work = MeteredWork(work, connection.meter)
        task = asyncio.get_running_loop().create_task(work)
        self.running[task] = None
        task.add_done_callback(self.handler_finished)
        return task

    def handler_finished(self, task: asyncio.Task[Any]) -> None:
        del self.running[task]
        if not task.cancelled():
            task.exception()  # retrieved here too, since the client may have disconnected

    async def stop(self) -> None:
        """Wait up to STOP_SECONDS for the running handlers to finish."""
        deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        for task in list(self.running):
            with suppress(Exception):
                async with asyncio.timeout_at(deadline):
                    await task

    def respond_unsupported(self, header: RequestHeader, connection: Connection) -> EncodedResponse:
        """Answer an unsupported ApiVersions request with version 0. Raise CloseConnection for other requests."""
        if header.api_key == ApiKey.API_VERSIONS:
            connection.api = header.api_key
            self.context.metrics.count_error(header.api_key, ErrorCode.UNSUPPORTED_VERSION)
            body = codec.encode(api_versions.UNSUPPORTED, 0)
            return [SIZE.pack(4 + len(body)) + CORRELATION_ID.pack(header.correlation_id) + body]
        raise CloseConnection(
            f"{api_name(header.api_key)} v{header.api_version} is not supported "
            "(UNSUPPORTED_VERSION)"
        )


def error_codes(message: Any) -> Iterator[int]:
    """Yield the error codes of a message and of its items, 0 for each that has no error."""
    yield getattr(message, "error_code", 0)
    fields: tuple[str, ...] = getattr(message, "__struct_fields__", ())
    for name in fields or getattr(message, "_fields", ()):
        items = getattr(message, name)
        if isinstance(items, (tuple, list)) and items and has_fields(items[0]):
            for item in items:
                yield from error_codes(item)


def has_fields(item: Any) -> bool:
    return hasattr(item, "__struct_fields__") or hasattr(item, "_fields")


def frame_response(route: Route, header: RequestHeader, response: Any) -> EncodedResponse:
    if response is None:
        return None
    key, version, correlation_id, _ = header
    try:
        parts, size = route.encode(version, response)
    except codec.MessageTooLarge as error:
        raise CloseConnection(
            f"{api_name(key)} response of {error}; request fewer items at a time"
        ) from None
    head = encode_response_header(key, version, correlation_id)
    prefix = SIZE.pack(len(head) + size) + head
    first = parts[0]
    if isinstance(first, bytes):
        parts[0] = prefix + first
    else:
        parts.insert(0, prefix)
    return parts
