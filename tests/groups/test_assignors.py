"""Members that keep what they have through a rebalance, members that come back as who they were, and members of all
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
PATIENT_MS = 30_000
NewHost = Callable[[str], Host]


def test_cooperative_members_never_give_up_all_they_have(
    servers: str, producer: Producer, hosts: Mapping[str, Host], new_host: NewHost
) -> None:
    def story(name: str) -> None:
        one, two, three = COOPERATIVE if name == MIXED else (name, name, name)
        group = Group(servers, f"cooperative-{name}", partitions=9, assignor="cooperative-sticky")
        mortal = new_host(three)
        (first,) = group.join(hosts[one])
        group.wait_until_shared()
        group.write(producer, 10)
        group.wait_until_loaded()
        (second,) = group.join(hosts[two])
        (victim,) = group.join(mortal, commits="never")
        group.wait_until_shared()
        group.write(producer, 10)
        group.wait_until_loaded()
        group.leave(second)
        group.kill(mortal)
        group.wait_until_shared()
        group.wait_until_loaded()
        shares = [
            line["partitions"]
            for line in group.lines
            if line["event"] == "owns" and line["member"] == first
        ]
        assert all(shares), "it was never without any"
        assert set(shares[-1]) == set(range(9))
        group.leave(*group.hosts)
        group.check(may_repeat_after=[victim])

    together(story, [*COOPERATIVE, MIXED])


def test_a_static_member_comes_back_and_nobody_notices(
    servers: str, producer: Producer, hosts: Mapping[str, Host], new_host: NewHost
) -> None:
    def story(library: str) -> None:
        group = Group(servers, f"static-{library}", partitions=4, session_ms=PATIENT_MS)
        mortal, heir = new_host(library), new_host(library)
        (still,) = group.join(hosts[library], instance="a")
        (killed,) = group.join(mortal, instance="b")
        group.wait_until_shared()
        group.write(producer, 10)
        group.wait_until_loaded()
        group.wait_until_committed()
        share = group.owned()[killed]
        before = [line for line in group.lines if line["event"] == "owns"]

        group.kill(mortal)
        (back,) = group.join(heir, instance="b")
        group.write(producer, 10)
        group.wait_until_loaded()
        assert group.owned()[back] == share

        group.wait_until_committed()
        group.leave(back)  # static members do not tell the group
        (again,) = group.join(heir, instance="b")
        group.write(producer, 10)
        group.wait_until_loaded()
        assert group.owned()[again] == share

        now = [line for line in group.lines if line["event"] == "owns"]
        assert [line for line in now if line["member"] == still] == [
            line for line in before if line["member"] == still
        ]
        group.leave(*group.hosts)
        group.check()

    together(story, STATIC)


def test_all_libraries_share_one_group(
    servers: str, producer: Producer, hosts: Mapping[str, Host], new_host: NewHost
) -> None:
    group = Group(servers, "mixed", partitions=11, assignor="range")
    mortal = {library: new_host(library) for library in ("librdkafka", "aiokafka")}
    victims = []
    for library in LIBRARIES:
        (member,) = group.join(mortal.get(library, hosts[library]))
        victims += [member] if library in mortal else []
    group.wait_until_shared()
    group.write(producer, 20)
    group.wait_until_loaded()
    for library in LIBRARIES:
        group.join(hosts[library])
    group.wait_until_shared()
    group.write(producer, 20)
    group.wait_until_loaded()
    for host in mortal.values():
        group.kill(host)
    group.wait_until_shared()
    group.write(producer, 20)
    group.wait_until_loaded()
    # One after the other leaves, and leads no more: each library's way of sharing out is the group's once.
    while len(group.hosts) > 1:
        group.leave(next(iter(group.hosts)))
        group.wait_until_shared()
    group.write(producer, 20)
    group.wait_until_loaded()
    group.wait_until_committed()
    group.leave(*group.hosts)
    group.check(may_repeat_after=victims)
