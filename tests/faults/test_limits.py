"""Resource limits for one or many clients: the behaviour at each limit, and that other clients are not affected."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.broker import connection as broker_connection
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from support.broker import BrokerProcess
from support.waiting import eventually
from tests.faults.raw_client import RawClient, fetch_frame, produce_frame
from tests.raw_connection import frame, with_size

TOPIC = "orders"
MB = 1 << 20
BUDGET = {"socket_request_max_bytes": str(8 * MB), "queued_max_request_bytes": str(8 * MB)}
MANY = 20_000
WAIT_SECONDS_MAX = 1.0
API_VERSIONS = with_size(struct.pack(">hhih", 18, 0, 7, -1))


@contextmanager
def broker(tmp_path: Path, **settings: str) -> Iterator[BrokerProcess]:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    with BrokerProcess(tmp_path / "data", named) as process:
        yield process


def address(cluster: LocalCluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return host, int(port)


def cluster(**settings: str) -> LocalCluster:
    return LocalCluster(settings={key.replace("_", "."): value for key, value in settings.items()})


def is_served(client: RawClient) -> bool:
    try:
        client.send(API_VERSIONS)
        return client.receive()[:4] == struct.pack(">i", 7)
    except ConnectionError:
        return False


# ---- request size -------------------------------------------------------------------------------------------


def test_request_above_size_limit_closes_connection() -> None:
    with cluster(socket_request_max_bytes="5000") as running:
        with RawClient(address(running)) as client:
            assert client.create_topic(TOPIC) == 0
            overhead = len(produce_frame(TOPIC, 0, [b"x" * 4000])) - 4000 - 4
            fits = produce_frame(TOPIC, 0, [b"x" * (5000 - overhead)])
            assert len(fits) == 5004
            client.send(fits)
            assert client.produced().error_code == 0
            client.send(produce_frame(TOPIC, 0, [b"x" * (5001 - overhead)]))
            assert client.is_hung_up()
        with RawClient(address(running)) as client:
            assert client.end_offset(TOPIC, 0) == 1


def test_requests_before_bad_frame_are_answered() -> None:
    with cluster() as running, RawClient(address(running)) as client:
        client.send(API_VERSIONS + with_size(b"\xff" * 20))
        assert client.receive()[:4] == struct.pack(">i", 7)
        assert client.is_hung_up()


# ---- number of connections ----------------------------------------------------------------------------------


def test_connections_beyond_max_connections_are_closed() -> None:
    # One of them is the controller's: it connects to its own broker like to any other.
    with cluster(max_connections="4") as running, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(address(running))) for _ in range(3)]
        assert all(map(is_served, clients))
        with RawClient(address(running)) as late:
            assert late.is_hung_up()
        assert all(map(is_served, clients))
        clients[0].close()

        def has_room() -> bool:
            with RawClient(address(running)) as again:
                return is_served(again)

        eventually(has_room, "a closed connection makes room for a new one")


def test_max_connections_per_ip_and_overrides() -> None:
    # The controller connects from its broker's address and is counted there.
    settings = {
        "max_connections_per_ip": "2",
        "max_connections_per_ip_overrides": "127.0.0.1:3,127.0.0.3:4",
    }
    with cluster(**settings) as running, ExitStack() as stack:

        def connect(source: str) -> RawClient:
            return stack.enter_context(RawClient(address(running), source=source))

        for source, allowed in (("127.0.0.1", 2), ("127.0.0.2", 2), ("127.0.0.3", 4)):
            clients = [connect(source) for _ in range(allowed)]
            assert all(map(is_served, clients)), source
            assert connect(source).is_hung_up(), source


# ---- idle connections ---------------------------------------------------------------------------------------


def test_idle_connection_is_closed_and_active_one_stays() -> None:
    with (
        cluster(connections_max_idle_ms="2500") as running,
        RawClient(address(running)) as silent,
        RawClient(address(running)) as speaks,
    ):
        began = time.monotonic()
        assert is_served(silent)
        silent.socket.settimeout(0.1)
        while True:
            assert is_served(speaks)
            try:
                assert silent.is_hung_up()
                break
            except TimeoutError:
                assert time.monotonic() - began < 30.0
        assert time.monotonic() - began > 2.4
        assert is_served(speaks)


def test_partial_request_does_not_keep_idle_connection_open() -> None:
    with cluster(connections_max_idle_ms="500") as running, RawClient(address(running)) as half:
        half.send(API_VERSIONS[:7])
        assert half.is_hung_up()


def test_slow_requests_do_not_delay_other_clients(
    tmp_path: Path,
) -> None:
    with broker(tmp_path) as process, RawClient(process.address) as other, ExitStack() as stack:
        slow = [stack.enter_context(RawClient(process.address)) for _ in range(20)]
        for at in range(len(API_VERSIONS)):
            for client in slow:
                client.send(API_VERSIONS[at : at + 1])
            began = process.clocks()
            assert is_served(other)
            assert process.unstarved_seconds(began) < WAIT_SECONDS_MAX
        for client in slow:
            assert client.receive()[:4] == struct.pack(">i", 7)


# ---- memory -------------------------------------------------------------------------------------------------


def test_five_hundred_idle_connections_cost_little_memory(tmp_path: Path) -> None:
    with broker(tmp_path) as process, ExitStack() as stack:
        with RawClient(process.address) as client:
            assert is_served(client)
        before = process.rss_bytes()
        clients = [stack.enter_context(RawClient(process.address)) for _ in range(500)]
        assert all(map(is_served, clients))
        cost = process.rss_bytes() - before
        print(f"500 connections cost {cost / MB:.1f} MB")
        assert cost < 32 * MB
        descriptors = process.descriptors()
        for client in clients:
            client.close()
        eventually(lambda: process.descriptors() <= descriptors - 500, "descriptors come back")


def test_client_without_reads_is_throttled_and_uses_no_memory(
    tmp_path: Path,
) -> None:
    with broker(tmp_path) as process, RawClient(process.address) as other, ExitStack() as stack:
        assert other.create_topic(TOPIC) == 0
        for _ in range(20):
            assert other.produce(TOPIC, 0, b"x" * 500_000).error_code == 0
        before = process.rss_bytes()
        lazy = [stack.enter_context(RawClient(process.address)) for _ in range(20)]
        sent = 0
        request = fetch_frame(TOPIC, 0, 0, max_bytes=10 * MB)
        for client in lazy:
            client.socket.setblocking(False)
            # The broker must stop reading requests from a client that reads no responses. Then this blocks.
            with contextlib.suppress(BlockingIOError):
                for _ in range(100_000):
                    client.send(request)
                    sent += 1
        for number in range(50):
            began = process.clocks()
            assert other.produce(TOPIC, 0, b"more").base_offset == 20 + number
            assert len(other.fetch(TOPIC, 0, 20 + number)) == 1
            assert process.unstarved_seconds(began) < WAIT_SECONDS_MAX
        growth = process.rss_bytes() - before
        print(f"20 clients without reads, {sent} fetches sent: {growth / MB:.1f} MB")
        assert sent < 20 * 100_000
        assert growth < 32 * MB
        # When it finally reads, it gets all responses.
        lazy[0].socket.settimeout(30.0)
        assert len(lazy[0].fetched()) == 20


def test_announced_request_size_allocates_no_memory(tmp_path: Path) -> None:
    with broker(tmp_path) as process, ExitStack() as stack:
        with RawClient(process.address) as client:
            assert is_served(client)
        before = process.rss_bytes()
        announced = struct.pack(">ihhih", 100 * MB, 0, 9, 1, -1) + bytes(1000)
        for _ in range(100):
            stack.enter_context(RawClient(process.address)).send(announced)
        with RawClient(process.address) as client:
            assert is_served(client)
        growth = process.rss_bytes() - before
        print(f"100 announced requests of 100 MB cost {growth / MB:.1f} MB")
        assert growth < 32 * MB


def test_large_requests_wait_for_memory_and_small_ones_do_not(
    tmp_path: Path,
) -> None:
    settings = BUDGET | {"message_max_bytes": str(8 * MB)}
    with broker(tmp_path, **settings) as process, ExitStack() as stack:
        other = stack.enter_context(RawClient(process.address))
        assert other.create_topic(TOPIC) == 0
        assert other.produce(TOPIC, 0, b"x" * (3 * MB)).error_code == 0
        before = process.rss_bytes()
        large = produce_frame(TOPIC, 0, [b"x" * (3 * MB)])
        clients = [stack.enter_context(RawClient(process.address)) for _ in range(12)]
        for client in clients:
            client.socket.setblocking(False)
        unsent = {client: memoryview(large) for client in clients}
        deadline = time.monotonic() + 60
        peak = 0
        while any(unsent.values()):
            assert time.monotonic() < deadline, [len(rest) for rest in unsent.values()]
            for client, rest in unsent.items():
                if rest:
                    with contextlib.suppress(BlockingIOError):
                        unsent[client] = rest[client.socket.send(rest[: 256 * 1024]) :]
            assert is_served(other)
            peak = max(peak, process.rss_bytes() - before)
        for client in clients:
            client.socket.settimeout(30.0)
            assert client.produced().error_code == 0
        print(f"12 requests of 3 MB at once, budget 8 MB: {peak / MB:.1f} MB at most")
        assert other.end_offset(TOPIC, 0) == 13
        assert peak < 24 * MB


def test_idle_buffers_do_not_block_large_requests() -> None:
    settings = BUDGET | {"message_max_bytes": str(8 * MB)}
    with cluster(**settings) as running, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(address(running))) for _ in range(3)]
        assert clients[0].create_topic(TOPIC) == 0
        for size in (2 * MB, 7 * MB):
            for client in clients:
                assert client.produce(TOPIC, 0, b"x" * size).error_code == 0


def test_stalled_large_request_is_closed_when_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_connection, "ARRIVAL_SECONDS_MAX", 1.0)
    settings = BUDGET | {"connections_max_idle_ms": "3000"}
    with cluster(**settings) as running, RawClient(address(running)) as client:
        assert client.create_topic(TOPIC, max_message_bytes=str(4 * MB)) == 0
        with RawClient(address(running)) as hoarder:
            hoarder.send(struct.pack(">ihhih", 7 * MB, 0, 9, 1, -1))
            assert is_served(client)
            assert client.produce(TOPIC, 0, b"x" * (3 * MB)).error_code == 0
            assert hoarder.is_hung_up()


# ---- shared event loop --------------------------------------------------------------------------------------


def test_creating_many_partitions_does_not_delay_clients(tmp_path: Path) -> None:
    """Creating this topic takes many seconds of the event loop that serves all clients."""
    with broker(tmp_path) as running, RawClient(running.address) as client:
        assert client.create_topic(TOPIC) == 0
        with RawClient(running.address) as other:
            request = CreatableTopic(name="many", num_partitions=MANY, replication_factor=1)
            other.send(frame(CreateTopicsRequest(topics=(request,), timeout_ms=1), 5))
            waits: list[float] = []
            deadline = time.monotonic() + 240
            while client.produce("many", MANY - 1, b"last").error_code:
                began = running.clocks()
                assert client.produce(TOPIC, 0, b"value").error_code == 0
                assert client.fetch(TOPIC, 0, len(waits))
                waits.append(running.unstarved_seconds(began))
                assert waits[-1] < WAIT_SECONDS_MAX
                assert time.monotonic() < deadline
            assert len(waits) > 10
