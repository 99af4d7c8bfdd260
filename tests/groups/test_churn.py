"""Members of all libraries join, leave and are killed at random, while brokers, coordinators among them, are killed and
restarted.

The short run ends after one broker restart and has a fixed seed. `make faults` runs for BARNABAS_FAULT_SECONDS with a
new seed each time, which is printed; BARNABAS_SEED repeats it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from random import Random
from threading import Event

import pytest
from confluent_kafka import Producer

from support.cluster import ClusterProcesses
from support.seed import choose_seed
from tests.groups.conftest import LIBRARIES
from tests.groups.group import Group
from tests.groups.host import Host
from tests.groups.test_coordinator_failure import wait_until_healthy
from tests.groups.together import together

SECONDS = float(os.environ.get("BARNABAS_FAULT_SECONDS") or 0)
MEMBERS_MAX = 5
PAUSE_S_MAX = 2.0
BROKERS, MIXED, COOPERATIVE = "brokers", "mixed", "cooperative"
LIBRARIES_OF = {
    **{library: (library,) for library in LIBRARIES},
    MIXED: LIBRARIES,
    # librdkafka only in the long run: during leader changes, a cooperative member once read from an old position and
    # then continued from the right one.
    COOPERATIVE: ("kafka_python", "barnabas", *(["librdkafka"] if SECONDS else [])),
}
OPTIONS_OF = {MIXED: {"assignor": "range"}, COOPERATIVE: {"assignor": "cooperative-sticky"}}
NewHost = Callable[[str], Host]


class Churn:
    """One group with random membership changes."""

    def __init__(
        self, name: str, group: Group, random: Random, hosts: Mapping[str, Host], new_host: NewHost
    ) -> None:
        self.libraries = LIBRARIES_OF[name]
        self.group = group
        self.random = random
        self.hosts = hosts
        self.new_host = new_host
        self.mortals: list[Host] = []

    def step(self) -> None:
        random, group = self.random, self.group
        library = random.choice(self.libraries)
        steady = [name for name, host in group.hosts.items() if host not in self.mortals]
        action = random.choice(["join", "join", "join mortal", "leave", "kill", "settle"])
        if action == "join" and len(group.hosts) < MEMBERS_MAX:
            group.join(self.hosts[library])
        elif action == "join mortal" and not self.mortals:
            self.mortals.append(self.new_host(library))
            group.join(self.mortals[-1], commits=random.choice(["each", "never"]))
        elif action == "leave" and steady:
            group.leave(random.choice(steady))
        elif action == "kill" and self.mortals:
            group.kill(self.mortals.pop())
        elif action == "settle" and group.hosts:
            group.wait_until_read()

    def end(self) -> None:
        """Wait until the remaining members and one more have read and committed everything."""
        group = self.group
        for host in self.mortals:
            group.kill(host)
        group.join(self.hosts[self.libraries[0]])
        group.wait_until_shared()
        group.wait_until_read()
        group.wait_until_committed()
        group.leave(*group.hosts)
        history = group.history()
        assert not history.violations, f"{history.violations}\n{group.state()}"
        repeated = sum(each.repeated for each in history.handovers)
        print(
            f"{group.name}: {sum(history.read.values())} read, {repeated} of them again, "
            f"{len(history.handovers)} handovers, {next(group.numbers) - 1} members"
        )


@pytest.mark.timeout(SECONDS + 300)
def test_churn_skips_nothing_and_repeats_no_committed_record(
    cluster: ClusterProcesses,
    servers: str,
    producer: Producer,
    hosts: Mapping[str, Host],
    new_host: NewHost,
) -> None:
    seed = choose_seed() if SECONDS else 0
    over = Event()
    churns: dict[str, Churn] = {}

    def begin(name: str) -> None:
        options = OPTIONS_OF.get(name, {})
        group = Group(servers, f"churn-{name}", partitions=4, replicas=3, **options)
        churns[name] = Churn(name, group, Random(f"{seed} {name}"), hosts, new_host)
        group.join(hosts[churns[name].libraries[0]])
        group.wait_until_shared()

    def run_steps(name: str) -> None:
        if name == BROKERS:
            inject(cluster, Random(f"{seed} {name}"), over)
            return
        churn = churns[name]
        while not over.is_set():
            churn.group.write(producer, churn.random.randrange(1, 20))
            churn.step()
            over.wait(churn.random.uniform(0, PAUSE_S_MAX))
        churn.end()

    together(begin, LIBRARIES_OF)
    together(run_steps, [BROKERS, *LIBRARIES_OF])


def inject(cluster: ClusterProcesses, random: Random, over: Event) -> None:
    """Kill and restart a broker, and wait until all replicas of the offsets topic are in sync; until the run ends."""
    ends = time.monotonic() + SECONDS
    try:
        while True:
            over.wait(random.uniform(0, PAUSE_S_MAX))
            broker = random.choice(list(cluster.brokers.values()))
            broker.kill()
            over.wait(random.uniform(0, 2 * PAUSE_S_MAX))
            broker.start()
            wait_until_healthy(cluster)
            if time.monotonic() >= ends:
                return
    finally:
        over.set()
