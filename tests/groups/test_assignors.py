"""Cooperative members that keep partitions during a rebalance, static members that return, and members of all
libraries in one group."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import Producer

from tests.groups.conftest import LIBRARIES
from tests.groups.group import Group
from tests.groups.host import Host
from tests.groups.together import together

COOPERATIVE = ("librdkafka", "kafka_python", "barnabas")
STATIC = ("librdkafka", "kafka_python", "aiokafka")
MIXED = "mixed"
LONG_SESSION_MS = 30_000
NewHost = Callable[[str], Host]


def test_cooperative_members_never_lose_all_partitions(
    servers: str, producer: Producer, hosts: Mapping[str, Host], new_host: NewHost
) -> None:
    def scenario(name: str) -> None:
        one, two, three = COOPERATIVE if name == MIXED else (name, name, name)
        group = Group(servers, f"cooperative-{name}", partitions=9, assignor="cooperative-sticky")
        killable = new_host(three)
        (first,) = group.join(hosts[one])
        group.wait_until_shared()
        group.write(producer, 10)
        group.wait_until_read()
        (second,) = group.join(hosts[two])
        (victim,) = group.join(killable, commits="never")
        group.wait_until_shared()
        group.write(producer, 10)
        group.wait_until_read()
        group.leave(second)
        group.kill(killable)
        group.wait_until_shared()
        group.wait_until_read()
        shares = [
            line["partitions"]
            for line in group.lines
            if line["event"] == "owns" and line["member"] == first
        ]
        assert all(shares), "it always had a partition"
        assert set(shares[-1]) == set(range(9))
        group.leave(*group.hosts)
        group.check(may_repeat_after=[victim])

    together(scenario, [*COOPERATIVE, MIXED])


def test_static_member_returns_without_rebalance(
    servers: str, producer: Producer, hosts: Mapping[str, Host], new_host: NewHost
) -> None:
    def scenario(library: str) -> None:
        group = Group(servers, f"static-{library}", partitions=4, session_ms=LONG_SESSION_MS)
        killable, successor = new_host(library), new_host(library)
        (still,) = group.join(hosts[library], instance="a")
        (killed,) = group.join(killable, instance="b")
        group.wait_until_shared()
        group.write(producer, 10)
        group.wait_until_read()
        group.wait_until_committed()
        share = group.owned()[killed]
        before = [line for line in group.lines if line["event"] == "owns"]

        group.kill(killable)
        (back,) = group.join(successor, instance="b")
        group.write(producer, 10)
        group.wait_until_read()
        assert group.owned()[back] == share

        group.wait_until_committed()
        group.leave(back)  # static members do not leave the group
        (again,) = group.join(successor, instance="b")
        group.write(producer, 10)
        group.wait_until_read()
        assert group.owned()[again] == share

        now = [line for line in group.lines if line["event"] == "owns"]
        assert [line for line in now if line["member"] == still] == [
            line for line in before if line["member"] == still
        ]
        group.leave(*group.hosts)
        group.check()

    together(scenario, STATIC)


def test_all_libraries_share_one_group(
    servers: str, producer: Producer, hosts: Mapping[str, Host], new_host: NewHost
) -> None:
    group = Group(servers, "mixed", partitions=11, assignor="range")
    killable = {library: new_host(library) for library in ("librdkafka", "aiokafka")}
    victims = []
    for library in LIBRARIES:
        (member,) = group.join(killable.get(library, hosts[library]))
        victims += [member] if library in killable else []
    group.wait_until_shared()
    group.write(producer, 20)
    group.wait_until_read()
    for library in LIBRARIES:
        group.join(hosts[library])
    group.wait_until_shared()
    group.write(producer, 20)
    group.wait_until_read()
    for host in killable.values():
        group.kill(host)
    group.wait_until_shared()
    group.write(producer, 20)
    group.wait_until_read()
    # Members leave one after the other, so that each library's assignor is used once.
    while len(group.hosts) > 1:
        group.leave(next(iter(group.hosts)))
        group.wait_until_shared()
    group.write(producer, 20)
    group.wait_until_read()
    group.wait_until_committed()
    group.leave(*group.hosts)
    group.check(may_repeat_after=victims)
