"""Times of requests as the connection records them, the log of slow requests, and errors in responses."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest

from barnabas.broker.connection import Connection, EncodedResponse, PendingResponse, ServeResult
from barnabas.broker.metrics_page import times_by_name
from barnabas.broker.request_metrics import FOLLOWER_FETCH, TIME_PARTS, RequestMetrics
from barnabas.broker.router import error_codes
from barnabas.errors import ErrorCode
from barnabas.metrics.histogram import BUCKETS, total_count
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from barnabas.wire.messages.heartbeat import HeartbeatResponse
from tests.unit.broker.test_connection import EchoConnection, frames_of, run_loop

METADATA = struct.pack(">hhih", ApiKey.METADATA, 1, 7, 6) + b"client" + bytes(4)


class Clock:
    """Loop time that advances only when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds


Serve = Callable[[Connection], ServeResult]


def open_echo(api: int, serve: Serve) -> EchoConnection:
    echo = EchoConnection()

    def serve_frame(_: memoryview, connection: Connection) -> ServeResult:
        connection.api = api
        return serve(connection)

    echo.connection.serve = serve_frame
    return echo


def sums_ms(metrics: RequestMetrics, name: str) -> dict[str, int]:
    """Sums of the recorded times, without parts that have none."""
    times = times_by_name(metrics)[name]
    found = {
        part: round(each[BUCKETS] / 1000) for part, each in zip(TIME_PARTS, times, strict=True)
    }
    return {part: each for part, each in found.items() if each}


async def test_pipelined_requests_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def serve(_: Connection) -> ServeResult:
        clock.pass_time(0.010)
        return [b"answer"]

    echo = open_echo(ApiKey.METADATA, serve)
    echo.stream.deliver(frames_of(METADATA, METADATA, METADATA))
    await run_loop()
    # The second one waits for 10 ms and the third one for 20 ms.
    assert sums_ms(echo.metrics, "Metadata") == {"total": 60, "queue": 30, "local": 30}
    assert total_count(times_by_name(echo.metrics)["Metadata"][0]) == 3


async def test_fast_requests_are_counted_with_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def serve(_: Connection) -> ServeResult:
        clock.pass_time(0.0005)
        return [b"answer"]

    echo = open_echo(ApiKey.PRODUCE, serve)
    for _ in range(100):
        echo.stream.deliver(frames_of(METADATA))
    await run_loop()
    total, _, local, *_ = times_by_name(echo.metrics)["Produce"]
    assert total_count(total) == total_count(local) == 100
    assert 49 <= total[BUCKETS] / 1000 <= 51


async def test_awaited_request_has_local_and_remote_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def serve(connection: Connection) -> ServeResult:
        clock.pass_time(0.010)

        async def wait() -> EncodedResponse:
            clock.pass_time(0.200)
            connection.remote_s = 0.200
            return [b"answer"]

        return wait()

    echo = open_echo(FOLLOWER_FETCH, serve)
    echo.stream.deliver(frames_of(METADATA))
    await run_loop()
    expected = {"total": 210, "local": 10, "remote": 200}
    assert sums_ms(echo.metrics, "FetchFollower") == sums_ms(echo.metrics, "Fetch") == expected


async def test_pending_produce_waits_for_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    acknowledged: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    def serve(_: Connection) -> ServeResult:
        clock.pass_time(0.005)
        return PendingResponse(acknowledged, lambda answer: answer)

    echo = open_echo(ApiKey.PRODUCE, serve)
    echo.stream.deliver(frames_of(METADATA))
    clock.pass_time(0.030)
    acknowledged.set_result([b"answer"])
    await run_loop()
    assert sums_ms(echo.metrics, "Produce") == {"total": 35, "local": 5, "remote": 30}


async def test_throttle_is_recorded_and_delays_no_request_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(monkeypatch)

    def serve(connection: Connection) -> ServeResult:
        connection.throttle_seconds = 1.5
        return [b"answer"]

    echo = open_echo(ApiKey.METADATA, serve)
    echo.stream.deliver(frames_of(METADATA))
    assert sums_ms(echo.metrics, "Metadata") == {"throttle": 1500}
    assert "slow request api=Metadata client=client reason=throttle" in caplog.text
    clock.pass_time(1.5)
    echo.connection.closed("test")


async def test_slow_request_is_logged_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(monkeypatch)
    durations = [1.5, 0.1]

    def serve(_: Connection) -> ServeResult:
        clock.pass_time(durations.pop(0))
        return [b"answer"]

    echo = open_echo(ApiKey.METADATA, serve)
    echo.stream.deliver(frames_of(METADATA, METADATA))
    await run_loop()
    local, queue = caplog.messages
    assert local == (
        "slow request api=Metadata client=client reason=local total_ms=1500 queue_ms=0 local_ms=1500 "
        "remote_ms=0 throttle_ms=0"
    )
    assert "reason=queue total_ms=1600 queue_ms=1500 local_ms=100" in queue


@pytest.mark.parametrize(
    ("api", "is_logged"), [(ApiKey.METADATA, True), (ApiKey.FETCH, False), (ApiKey.PRODUCE, False)]
)
def test_wait_for_records_and_replicas_is_not_slow(
    api: ApiKey, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    frame = struct.pack(">hhihi", api, 4, 7, 0, 0)
    RequestMetrics(slow_ms=1000).log_slow(memoryview(frame), 0.1, 0.2, 5.0)
    assert bool(caplog.messages) == is_logged


def test_slow_request_log_can_be_turned_off() -> None:
    assert RequestMetrics(slow_ms=-1).slow_s == float("inf")


def test_error_codes_of_a_response_and_its_items_are_found() -> None:
    topics = tuple(
        CreatableTopicResult(name=str(code), error_code=code)
        for code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS)
    )
    assert list(error_codes(CreateTopicsResponse(topics=topics))) == [0, 0, 36, 37]
    assert list(error_codes(HeartbeatResponse(error_code=27))) == [27]
    assert list(error_codes(None)) == [0]
