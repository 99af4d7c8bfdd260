"""Members come, go and die, with every library: who is left reads on, nothing is skipped, and no more is repeated than
had not been committed. Every library has a group of its own, all at the same time."""

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


def test_a_group_grows_to_ten_shrinks_and_loses_a_member(
    servers: str, producer: Producer, hosts: Mapping[str, Host], new_host: NewHost
) -> None:
    def story(library: str) -> None:
        group = Group(servers, f"life-{library}")
        group.write(producer, 20)
        (first,) = group.join(hosts[library])
        group.wait_until_shared()
        group.wait_until_loaded()

        group.join(hosts[library], 2)
        group.wait_until_shared()
        group.write(producer, 20)
        group.wait_until_loaded()

        mortal = new_host(library)
        (victim,) = group.join(mortal, commits="never")
        group.join(hosts[library], 6)
        group.wait_until_shared()
        group.write(producer, 20)
        group.wait_until_loaded()

        group.leave(first)
        left = max(line["at"] for line in group.lines if line["event"] == "closed")
        print(f"{library}: nine have it {group.wait_until_shared() - left:.2f} s after one left")
        group.write(producer, 20)
        group.wait_until_loaded()

        killed = group.kill(mortal)
        group.write(producer, 20)
        took = group.wait_until_shared() - killed
        print(f"{library}: eight have it {took:.2f} s after one was killed")
        assert took < TAKEN_OVER_S
        group.wait_until_loaded()

        group.wait_until_committed()
        group.leave(*group.hosts)
        group.write(producer, 5)
        group.join(hosts[library])
        group.wait_until_loaded()
        group.wait_until_committed()
        group.leave(*group.hosts)
        group.check(may_repeat_after=[victim])
        again = [each for each in group.history().handovers if each.repeated]
        assert again, "what the victim had not committed is read again"
        with Cluster(servers) as cluster:
            view = GroupAdmin(cluster).describe_group(group.name)
            assert view.state == "Empty"

    together(story, LIBRARIES)


def test_what_the_library_commits_by_itself_is_where_the_next_member_begins(
    servers: str, producer: Producer, hosts: Mapping[str, Host]
) -> None:
    """close() of librdkafka waited 45 seconds for a coordinator where there was none."""

    def story(library: str) -> None:
        group = Group(servers, f"auto-{library}", partitions=3, commits="auto")
        group.write(producer, 20)
        group.join(hosts[library])
        group.wait_until_loaded()
        took = group.leave(*group.hosts)
        print(f"{library}: closed in {took:.2f} s")
        assert took < CLOSED_S
        group.wait_until_committed()
        group.write(producer, 20)
        group.join(hosts[library])
        group.wait_until_loaded()
        group.leave(*group.hosts)
        assert [each.begin for each in group.history().handovers] == [0, 0, 0, 20, 20, 20]

    together(story, LIBRARIES)
