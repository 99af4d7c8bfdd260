"""Consumer groups of one broker: rebalance time after a member leaves, memory of a thousand groups, commits per second.

The rebalance time is from the moment a member starts to leave until every other member has its new assignment. Members
learn of a rebalance with their next heartbeat, so the heartbeat interval dominates. Clients send one every 3 s by
default.

Commits are one prebuilt frame on each of several connections. Each is sent again when its response arrives, so there is
one commit in flight per connection.
"""

from __future__ import annotations

import json
import os
import selectors
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event, Thread

from barnabas.client.blocking import BlockingConnection
from barnabas.client.cluster import Cluster
from barnabas.client.core import raise_if
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.group_consumer import GroupConsumer
from barnabas.client.group_coordinator import find_coordinator
from barnabas.client.group_offsets import offset_commit_request, raise_commit_error
from barnabas.model import TopicPartition
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE
from barnabas.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.wire.messages.offset_commit import OffsetCommitResponse
from barnabas.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from benchmarks.broker import BenchmarkBroker
from benchmarks.frames import require_data, use_kernel_timeouts
from benchmarks.loads import TOPIC
from benchmarks.report import format_value, machine, spread

MEMBERS = 10
PARTITIONS = 10
SESSION_MS = 30_000
WAIT_TIMEOUT_S = 60.0
POLL_S = 0.002
DEFAULT_HEARTBEAT_S = 3.0
MEMBER_BYTES = bytes(100)
"""Stands for a subscription or an assignment of ten partitions, and has about their size."""
TARGETS = {
    "rejoin": ("<=", 1.0),
    "memory": ("<=", 100.0),
    "commits": (">=", 2000.0),
}
UNITS = {"s": "s", "mb": "MB", "per_s": "per s", "cpu_us": "CPU-µs of the broker each"}
Found = dict[str, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    rounds: int
    heartbeats_s: tuple[float, ...]
    groups: int
    commit_s: float
    connections: int = 20


FULL = Extent(rounds=3, heartbeats_s=(0.5, DEFAULT_HEARTBEAT_S), groups=1000, commit_s=5.0)
QUICK = replace(FULL, rounds=1, heartbeats_s=(0.5,), commit_s=2.0)


def measure(extent: Extent) -> Found:
    found: Found = {}
    for _ in range(extent.rounds):
        for step in steps(extent):
            for name, value in step().items():
                found.setdefault(name, []).append(value)
    return found


def steps(extent: Extent) -> Iterator[Callable[[], dict[str, float]]]:
    for heartbeat_s in extent.heartbeats_s:
        for library, member in (("barnabas", BarnabasMember), ("librdkafka", LibrdkafkaMember)):
            yield partial(measure_rejoin, library, member, heartbeat_s)
    yield partial(measure_memory, extent)
    for partitions in (1, PARTITIONS):
        yield partial(measure_commits, extent, partitions)


def start_broker() -> BenchmarkBroker:
    return BenchmarkBroker({"group.initial.rebalance.delay.ms": "0"})


# ---- rebalance time


class Member:
    """Consumer in its own thread. `assigned_at` is the time of its last assignment."""

    def __init__(self, servers: str, heartbeat_s: float) -> None:
        self.servers = servers
        self.heartbeat_s = heartbeat_s
        self.partitions: tuple[int, ...] = ()
        self.assigned_at = 0.0
        self.stop = Event()
        self.left_at = 0.0
        self.thread = Thread(target=self.run, daemon=True)
        self.thread.start()

    def on_assigned(self, partitions: tuple[int, ...]) -> None:
        self.partitions, self.assigned_at = partitions, time.perf_counter()

    def leave(self) -> float:
        """Leave the group. Returns the time at which it started to."""
        self.stop.set()
        self.thread.join()
        return self.left_at

    def run(self) -> None:
        raise NotImplementedError


class BarnabasMember(Member):
    def run(self) -> None:
        with Cluster(self.servers) as cluster:
            consumer = GroupConsumer(
                cluster,
                TOPIC,
                [TOPIC],
                session_timeout_ms=SESSION_MS,
                heartbeat_s=self.heartbeat_s,
                on_assigned=lambda added: self.on_assigned(tuple(each.partition for each in added)),
                on_revoked=lambda _: self.on_assigned(()),
            )
            while not self.stop.is_set():
                consumer.poll(0.1)
            self.left_at = time.perf_counter()
            consumer.close()


class LibrdkafkaMember(Member):
    def run(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": TOPIC,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": int(self.heartbeat_s * 1000),
            }
        )
        consumer.subscribe(
            [TOPIC],
            on_assign=lambda _, added: self.on_assigned(tuple(each.partition for each in added)),
            on_revoke=lambda *_: self.on_assigned(()),
        )
        while not self.stop.is_set():
            consumer.poll(0.1)
        self.left_at = time.perf_counter()
        consumer.close()


def measure_rejoin(
    library: str, kind: Callable[[str, float], Member], heartbeat_s: float
) -> dict[str, float]:
    with start_broker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        members = [kind(broker.bootstrap_servers, heartbeat_s) for _ in range(MEMBERS)]
        wait_until_assigned(members)
        left_at = members.pop(0).leave()
        wait_until_assigned(members)
        took = max(member.assigned_at for member in members) - left_at
        for member in members:
            member.stop.set()
        for member in members:
            member.thread.join()
    return {f"rejoin/{library}, a heartbeat every {heartbeat_s:g} s/s": took}


def wait_until_assigned(members: list[Member]) -> None:
    """Wait until every member has partitions and all are assigned. The first member had all of them for a moment."""
    expected = list(range(PARTITIONS))
    wait_until(
        lambda: (
            all(one.partitions for one in members)
            and sorted(each for one in members for each in one.partitions) == expected
        )
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + WAIT_TIMEOUT_S
    while not condition():
        if time.perf_counter() > deadline:
            raise RuntimeError(f"timed out after {WAIT_TIMEOUT_S:g} s")
        time.sleep(POLL_S)


# ---- memory


def measure_memory(extent: Extent) -> dict[str, float]:
    """Measure the memory of groups with one member each and a committed offset for every partition."""
    with start_broker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        connection = connect(broker)
        join_and_commit(connection, "first")
        before = broker.resident_bytes()
        for number in range(extent.groups):
            join_and_commit(connection, f"group-{number}")
        after = broker.resident_bytes()
        connection.close()
        broker.stop()
        broker.start()
        with Cluster(broker.bootstrap_servers) as cluster:
            wait_until(lambda: len(GroupAdmin(cluster).list_groups()) > extent.groups)
        again = broker.resident_bytes()
    name = f"memory/{extent.groups:,} groups of {PARTITIONS} partitions"
    return {
        f"{name}/mb": (after - before) / 1e6,
        f"{name}, the whole broker/mb": after / 1e6,
        f"{name}, the whole broker after a restart/mb": again / 1e6,
    }


def connect(broker: BenchmarkBroker) -> BlockingConnection:
    """Connect to the coordinator, after __consumer_offsets was created and loaded."""
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.retry(lambda: find_coordinator(cluster, "first"), refresh=False)
    return BlockingConnection.open(*broker.address, client_id="benchmark")


def join_and_commit(connection: BlockingConnection, group_id: str) -> None:
    # The first response only assigns the member id.
    member_id = connection.exchange(join_request(group_id, ""), JoinGroupResponse).member_id
    joined = connection.exchange(join_request(group_id, member_id), JoinGroupResponse)
    raise_if(joined.error_code, f"joining {group_id}")
    synced = connection.exchange(
        SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name="range",
            assignments=(SyncGroupRequestAssignment(member_id, MEMBER_BYTES),),
        ),
        SyncGroupResponse,
    )
    raise_if(synced.error_code, f"the assignment of {group_id}")
    request = offset_commit_request(
        group_id, offsets_of(PARTITIONS), generation=joined.generation_id, member_id=member_id
    )
    raise_commit_error(connection.exchange(request, OffsetCommitResponse))


def join_request(group_id: str, member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_MS * 10,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=(JoinGroupRequestProtocol("range", MEMBER_BYTES),),
    )


def offsets_of(partitions: int) -> dict[TopicPartition, int]:
    return {TopicPartition(TOPIC, number): 1_000_000 + number for number in range(partitions)}


# ---- commits


def measure_commits(extent: Extent, partitions: int) -> dict[str, float]:
    """Measure commits of groups without members, as of consumers that assign partitions themselves."""
    with start_broker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        connect(broker).close()
        drivers = [
            CommitDriver(broker, f"group-{number}", partitions)
            for number in range(extent.connections)
        ]
        run_commits(drivers, extent.commit_s / 5)
        cpu_s, began = broker.cpu_s(), time.perf_counter()
        count = run_commits(drivers, extent.commit_s)
        took, cpu_s = time.perf_counter() - began, broker.cpu_s() - cpu_s
        for driver in drivers:
            driver.connection.close()
    name = f"commits/of {partitions} partition{'s'[: partitions > 1]}"
    return {f"{name}/per_s": count / took, f"{name}/cpu_us": cpu_s / count * 1e6}


class CommitDriver:
    """Connection with one commit in flight."""

    def __init__(self, broker: BenchmarkBroker, group_id: str, partitions: int) -> None:
        self.connection = BlockingConnection.open(*broker.address, client_id="benchmark")
        request = offset_commit_request(group_id, offsets_of(partitions))
        response = self.connection.exchange(request, OffsetCommitResponse)
        raise_commit_error(response)
        self.frame = self.connection.protocol.encode_request(request, OffsetCommitResponse).data
        self.socket = use_kernel_timeouts(self.connection.stream)
        self.socket.sendall(self.frame)
        self.expected = self.receive()

    def receive(self) -> bytes:
        """Return one complete response."""
        found = self.socket.recv(1 << 16)
        require_data(len(found))
        while len(found) < 4 + int.from_bytes(found[:4], "big"):
            found += self.socket.recv(1 << 16)
        return found


def run_commits(drivers: list[CommitDriver], seconds: float) -> int:
    """Commit on all connections for a time, and return the number of commits. All responses must be equal."""
    count = 0
    with selectors.DefaultSelector() as selector:
        for driver in drivers:
            selector.register(driver.socket, selectors.EVENT_READ, driver)
            driver.socket.sendall(driver.frame)
        deadline = time.perf_counter() + seconds
        in_flight = len(drivers)
        while in_flight:
            for key, _ in selector.select():
                driver = key.data
                if driver.receive() != driver.expected:
                    raise RuntimeError("a commit failed")
                count += 1
                if time.perf_counter() < deadline:
                    driver.socket.sendall(driver.frame)
                else:
                    in_flight -= 1
    return count


# ---- report


def table(found: Found) -> Iterator[str]:
    yield f"{'':62} {'median':>8}  {'spread':<15} target"
    for name, values in found.items():
        low, middle, high = (format_value(value) for value in spread(values))
        *parts, unit = name.split("/")
        label = f"{' '.join(parts)}, {UNITS[unit]}"
        yield f"{label:62} {middle:>8}  {low + '–' + high:<15} {target_text(name, values)}".rstrip()


def target_text(name: str, values: list[float]) -> str:
    kind, *_, unit = name.split("/")
    # No target for the default heartbeat interval: members cannot rejoin before their next heartbeat.
    if unit == "cpu_us" or "whole broker" in name or f"every {DEFAULT_HEARTBEAT_S:g} s" in name:
        return ""
    sign, limit = TARGETS[kind]
    middle = spread(values)[1]
    is_reached = middle <= limit if sign == "<=" else middle >= limit
    return f"{'≤' if sign == '<=' else '≥'}{limit:g} {'✓' if is_reached else '✗'}"


def write_json(path: Path, found: Found, *, quick: bool) -> None:
    measurements = {
        name: dict(zip(("min", "median", "max"), spread(values), strict=True))
        | {"values": values, "target": target_text(name, values) or None}
        for name, values in found.items()
    }
    content = {
        "machine": machine() | {"load_average": os.getloadavg()[0]},
        "quick": quick,
        "measurements": measurements,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
