"""The coordinator of groups of every library is killed and restarted, then the next one. All groups continue, and no
acknowledged commit is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Producer

from barnabas.client.cluster import Cluster
from barnabas.client.group_coordinator import find_coordinator
from barnabas.errors import ApiError
from support.cluster import ClusterProcesses, MemberProcess
from support.waiting import eventually
from tests.groups.conftest import LIBRARIES
from tests.groups.group import TIMEOUT_S, Group
from tests.groups.host import Host
from tests.groups.together import together

MEMBERS = 3
OFFSETS = "__consumer_offsets"


@pytest.fixture
def groups(
    servers: str, producer: Producer, hosts: Mapping[str, Host]
) -> Iterator[Mapping[str, Group]]:
    """Groups that have read everything."""
    made = {
        library: Group(servers, f"orphans-{library}", partitions=6, replicas=3)
        for library in LIBRARIES
    }
    for library, group in made.items():
        group.join(hosts[library], MEMBERS)
        group.write(producer, 10)

    def settle(library: str) -> None:
        made[library].wait_until_shared()
        made[library].wait_until_read()
        made[library].wait_until_committed()

    together(settle, LIBRARIES)
    yield made


def test_groups_survive_coordinator_failures(
    cluster: ClusterProcesses,
    servers: str,
    producer: Producer,
    hosts: Mapping[str, Host],
    groups: Mapping[str, Group],
) -> None:
    def read_on(library: str) -> None:
        group = groups[library]
        group.wait_until_shared()
        group.wait_until_read()
        group.wait_until_committed()

    wait_until_healthy(cluster)
    first = coordinator_of(cluster, servers)
    first.kill()
    for library, group in groups.items():
        # One more member joins, so that all members start with the next coordinator's state.
        group.join(hosts[library])
        group.write(producer, 10)
    together(read_on, LIBRARIES)

    first.start()
    wait_until_healthy(cluster)
    second = coordinator_of(cluster, servers)
    second.kill()
    for group in groups.values():
        group.write(producer, 10)
    together(read_on, LIBRARIES)
    second.start()

    def end(library: str) -> None:
        group = groups[library]
        members = list(group.hosts)
        group.leave(*members)
        # Members whose commit was in flight when the broker failed may repeat the uncommitted records.
        group.check(may_repeat_after=members)
        group.join(hosts[library])
        group.write(producer, 10)
        group.wait_until_read()
        group.leave(*group.hosts)
        assert [each.begin for each in group.history().handovers[-group.partitions :]] == (
            [30] * group.partitions
        )

    together(end, LIBRARIES)


def wait_until_healthy(cluster: ClusterProcesses) -> None:
    """Wait until every broker has a replica of the offsets topic in sync."""
    cluster.wait_until_ready()

    def all_in_sync() -> bool:
        with Cluster(cluster.bootstrap_servers) as client:
            try:
                (partition,) = client.refresh([OFFSETS]).topics[OFFSETS].partitions
            except (ApiError, KeyError):
                return False
            return len(partition.isr) == len(cluster.brokers)

    eventually(all_in_sync, f"{OFFSETS} has three in-sync replicas", TIMEOUT_S)


def coordinator_of(cluster: ClusterProcesses, servers: str) -> MemberProcess:
    with Cluster(servers) as client:
        _, port = find_coordinator(client, "any")
    (found,) = (broker for broker in cluster.brokers.values() if broker.port == port)
    return found
