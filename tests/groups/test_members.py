"""Members of every library join, leave and crash: the others continue, no record is skipped, and only uncommitted
records are repeated. Every library has its own group, all at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import Producer

from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from tests.groups.conftest import LIBRARIES
from tests.groups.group import SESSION_MS, Group
from tests.groups.host import Host
from tests.groups.together import together

TAKEN_OVER_S = SESSION_MS / 1000 + 10
CLOSED_S = 5.0
NewHost = Callable[[str], Host]


def test_group_grows_to_ten_shrinks_and_loses_member(
    servers: str, producer: Producer, hosts: Mapping[str, Host], new_host: NewHost
) -> None:
    def scenario(library: str) -> None:
        group = Group(servers, f"life-{library}")
        group.write(producer, 20)
        (first,) = group.join(hosts[library])
        group.wait_until_shared()
        group.wait_until_read()

        group.join(hosts[library], 2)
        group.wait_until_shared()
        group.write(producer, 20)
        group.wait_until_read()

        killable = new_host(library)
        (victim,) = group.join(killable, commits="never")
        group.join(hosts[library], 6)
        group.wait_until_shared()
        group.write(producer, 20)
        group.wait_until_read()

        group.leave(first)
        left = max(line["at"] for line in group.lines if line["event"] == "closed")
        print(
            f"{library}: nine have all partitions {group.wait_until_shared() - left:.2f} s after one left"
        )
        group.write(producer, 20)
        group.wait_until_read()

        killed = group.kill(killable)
        group.write(producer, 20)
        took = group.wait_until_shared() - killed
        print(f"{library}: eight have all partitions {took:.2f} s after one was killed")
        assert took < TAKEN_OVER_S
        group.wait_until_read()

        group.wait_until_committed()
        group.leave(*group.hosts)
        group.write(producer, 5)
        group.join(hosts[library])
        group.wait_until_read()
        group.wait_until_committed()
        group.leave(*group.hosts)
        group.check(may_repeat_after=[victim])
        again = [each for each in group.history().handovers if each.repeated]
        assert again, "uncommitted records of the victim are read again"
        with Cluster(servers) as cluster:
            view = GroupAdmin(cluster).describe_group(group.name)
            assert view.state == "Empty"

    together(scenario, LIBRARIES)


def test_next_member_starts_at_auto_committed_offset(
    servers: str, producer: Producer, hosts: Mapping[str, Host]
) -> None:
    """close() of librdkafka once waited 45 seconds for a coordinator that did not exist."""

    def scenario(library: str) -> None:
        group = Group(servers, f"auto-{library}", partitions=3, commits="auto")
        group.write(producer, 20)
        group.join(hosts[library])
        group.wait_until_read()
        took = group.leave(*group.hosts)
        print(f"{library}: closed in {took:.2f} s")
        assert took < CLOSED_S
        group.wait_until_committed()
        group.write(producer, 20)
        group.join(hosts[library])
        group.wait_until_read()
        group.leave(*group.hosts)
        assert [each.begin for each in group.history().handovers] == [0, 0, 0, 20, 20, 20]

    together(scenario, LIBRARIES)
