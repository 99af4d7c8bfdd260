"""Consumer groups of one broker: how soon the others go on when a member leaves, what a thousand groups take, and how
many commits a coordinator answers.

Rejoining lasts from the moment a member begins to leave until each of the others was given its new share. Members hear
of a rebalance with their next heartbeat, so that is what decides; clients send one every 3 s unless told otherwise.

Commits are one prebuilt frame on each of some connections, sent again as soon as it is answered: the client costs
little, and every answer is one that a member waited for.
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
from barnabas.client.group_offsets import offset_commit_request, parse_commit_errors
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
from benchmarks.frames import plain, some
from benchmarks.loads import TOPIC
from benchmarks.report import digits, machine, spread

MEMBERS = 10
PARTITIONS = 10
SESSION_MS = 30_000
SETTLED_S = 60.0
LOOK_S = 0.002
DEFAULT_HEARTBEAT_S = 3.0
BLOB = bytes(100)
"""About as long as a subscription and an assignment of ten partitions are."""
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
        for library, member in (("barnabas", OurMember), ("librdkafka", LibrdkafkaMember)):
            yield partial(rejoin, library, member, heartbeat_s)
    yield partial(memory, extent)
    for partitions in (1, PARTITIONS):
        yield partial(commits, extent, partitions)


def broker_for_groups() -> BenchmarkBroker:
    return BenchmarkBroker({"group.initial.rebalance.delay.ms": "0"})


# ---- how soon the others go on


class Member:
    """A consumer in a thread of its own. `given` is when it was given its share last."""

    def __init__(self, servers: str, heartbeat_s: float) -> None:
        self.servers = servers
        self.heartbeat_s = heartbeat_s
        self.share: tuple[int, ...] = ()
        self.given = 0.0
        self.stop = Event()
        self.left = 0.0
        self.thread = Thread(target=self.run, daemon=True)
        self.thread.start()

    def assigned(self, partitions: tuple[int, ...]) -> None:
        self.share, self.given = partitions, time.perf_counter()

    def leave(self) -> float:
        """When it began to."""
        self.stop.set()
        self.thread.join()
        return self.left

    def run(self) -> None:
        raise NotImplementedError


class OurMember(Member):
    def run(self) -> None:
        with Cluster(self.servers) as cluster:
            consumer = GroupConsumer(
                cluster,
                TOPIC,
                [TOPIC],
                session_timeout_ms=SESSION_MS,
                heartbeat_s=self.heartbeat_s,
                on_assigned=lambda given: self.assigned(tuple(each.partition for each in given)),
                on_revoked=lambda _: self.assigned(()),
            )
            while not self.stop.is_set():
                consumer.poll(0.1)
            self.left = time.perf_counter()
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
            on_assign=lambda _, given: self.assigned(tuple(each.partition for each in given)),
            on_revoke=lambda *_: self.assigned(()),
        )
        while not self.stop.is_set():
            consumer.poll(0.1)
        self.left = time.perf_counter()
        consumer.close()


def rejoin(
    library: str, kind: Callable[[str, float], Member], heartbeat_s: float
) -> dict[str, float]:
    with broker_for_groups() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        members = [kind(broker.bootstrap_servers, heartbeat_s) for _ in range(MEMBERS)]
        wait_until_shared(members)
        left = members.pop(0).leave()
        wait_until_shared(members)
        took = max(member.given for member in members) - left
        for member in members:
            member.stop.set()
        for member in members:
            member.thread.join()
    return {f"rejoin/{library}, a heartbeat every {heartbeat_s:g} s/s": took}


def wait_until_shared(members: list[Member]) -> None:
    """Each has something: whoever came first had all of it for a moment."""
    wanted = list(range(PARTITIONS))
    wait_until(
        lambda: (
            all(one.share for one in members)
            and sorted(each for one in members for each in one.share) == wanted
        )
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + SETTLED_S
    while not condition():
        if time.perf_counter() > deadline:
            raise RuntimeError(f"it did not come to that within {SETTLED_S:g} s")
        time.sleep(LOOK_S)


# ---- what groups take


def memory(extent: Extent) -> dict[str, float]:
    """Each group has a member, and has committed an offset of each partition."""
    with broker_for_groups() as broker:
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
    """To the coordinator of all groups; the topic of their offsets exists, and was read."""
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.retry(lambda: find_coordinator(cluster, "first"), refresh=False)
    return BlockingConnection.open(*broker.address, client_id="benchmark")


def join_and_commit(connection: BlockingConnection, group_id: str) -> None:
    # The first answer only gives the member its id.
    member_id = connection.exchange(joining(group_id, ""), JoinGroupResponse).member_id
    joined = connection.exchange(joining(group_id, member_id), JoinGroupResponse)
    raise_if(joined.error_code, f"joining {group_id}")
    synced = connection.exchange(
        SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name="range",
            assignments=(SyncGroupRequestAssignment(member_id, BLOB),),
        ),
        SyncGroupResponse,
    )
    raise_if(synced.error_code, f"the assignment of {group_id}")
    request = offset_commit_request(
        group_id, offsets_of(PARTITIONS), generation=joined.generation_id, member_id=member_id
    )
    for error in parse_commit_errors(connection.exchange(request, OffsetCommitResponse)).values():
        raise error


def joining(group_id: str, member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_MS * 10,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=(JoinGroupRequestProtocol("range", BLOB),),
    )


def offsets_of(partitions: int) -> dict[TopicPartition, int]:
    return {TopicPartition(TOPIC, number): 1_000_000 + number for number in range(partitions)}


# ---- how many commits


def commits(extent: Extent, partitions: int) -> dict[str, float]:
    """Of groups without members, as those have that assign their partitions themselves."""
    with broker_for_groups() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        connect(broker).close()
        drivers = [
            CommitDriver(broker, f"group-{number}", partitions)
            for number in range(extent.connections)
        ]
        commit_for(drivers, extent.commit_s / 5)
        cpu_s, began = broker.cpu_s(), time.perf_counter()
        count = commit_for(drivers, extent.commit_s)
        took, cpu_s = time.perf_counter() - began, broker.cpu_s() - cpu_s
        for driver in drivers:
            driver.connection.close()
    name = f"commits/of {partitions} partition{'s'[: partitions > 1]}"
    return {f"{name}/per_s": count / took, f"{name}/cpu_us": cpu_s / count * 1e6}


class CommitDriver:
    """One connection with one commit under way."""

    def __init__(self, broker: BenchmarkBroker, group_id: str, partitions: int) -> None:
        self.connection = BlockingConnection.open(*broker.address, client_id="benchmark")
        request = offset_commit_request(group_id, offsets_of(partitions))
        answer = self.connection.exchange(request, OffsetCommitResponse)
        for error in parse_commit_errors(answer).values():
            raise error
        self.frame = self.connection.protocol.request(request, OffsetCommitResponse).data
        self.socket = plain(self.connection.stream)
        self.socket.sendall(self.frame)
        self.answer = self.receive()

    def receive(self) -> bytes:
        """All of it: answers are far shorter than what is received at once."""
        found = self.socket.recv(1 << 16)
        some(len(found))
        while len(found) < 4 + int.from_bytes(found[:4], "big"):
            found += self.socket.recv(1 << 16)
        return found


def commit_for(drivers: list[CommitDriver], seconds: float) -> int:
    """How many were answered. An answer that is not as the first was means that one was refused."""
    count = 0
    with selectors.DefaultSelector() as selector:
        for driver in drivers:
            selector.register(driver.socket, selectors.EVENT_READ, driver)
            driver.socket.sendall(driver.frame)
        deadline = time.perf_counter() + seconds
        under_way = len(drivers)
        while under_way:
            for key, _ in selector.select():
                driver = key.data
                if driver.receive() != driver.answer:
                    raise RuntimeError("a commit was refused")
                count += 1
                if time.perf_counter() < deadline:
                    driver.socket.sendall(driver.frame)
                else:
                    under_way -= 1
    return count


# ---- telling


def table(found: Found) -> Iterator[str]:
    yield f"{'':62} {'median':>8}  {'spread':<15} target"
    for name, values in found.items():
        low, middle, high = (digits(value) for value in spread(values))
        *parts, unit = name.split("/")
        label = f"{' '.join(parts)}, {UNITS[unit]}"
        yield f"{label:62} {middle:>8}  {low + '–' + high:<15} {wanted(name, values)}".rstrip()


def wanted(name: str, values: list[float]) -> str:
    kind, *_, unit = name.split("/")
    # Nobody can rejoin before its next heartbeat tells it to.
    if unit == "cpu_us" or "whole broker" in name or f"every {DEFAULT_HEARTBEAT_S:g} s" in name:
        return ""
    sign, limit = TARGETS[kind]
    middle = spread(values)[1]
    is_reached = middle <= limit if sign == "<=" else middle >= limit
    return f"{'≤' if sign == '<=' else '≥'}{limit:g} {'✓' if is_reached else '✗'}"


def write_json(path: Path, found: Found, *, quick: bool) -> None:
    measurements = {
        name: dict(zip(("min", "median", "max"), spread(values), strict=True))
        | {"values": values, "target": wanted(name, values) or None}
        for name, values in found.items()
    }
    content = {
        "machine": machine() | {"load_average": os.getloadavg()[0]},
        "quick": quick,
        "measurements": measurements,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
