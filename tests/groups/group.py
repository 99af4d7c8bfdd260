"""A group under test: its topic, its members in any processes, and all their events."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from itertools import count
from typing import Any

from confluent_kafka import Producer

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.errors import ApiError
from support.waiting import eventually
from tests.compatibility.raw import wait_until_known
from tests.groups.history import History, history_of
from tests.groups.host import KAFKAJS_NAME, Host, Line

TIMEOUT_S = 60.0
SESSION_MS = 6000
HEARTBEAT_MS = 500


class Group:
    """A group. Its topic has the same name, with `written` records in each partition."""

    def __init__(
        self,
        servers: str,
        name: str,
        *,
        partitions: int = 10,
        replicas: int = 1,
        **options: Any,
    ) -> None:
        """`options` are those of clients.script.MemberOptions, for all members."""
        self.servers = servers
        self.name = name
        self.partitions = partitions
        self.options = options
        self.lines: list[Line] = []
        self.hosts: dict[str, Host] = {}
        """The hosts of running members."""
        self.numbers = count(1)
        self.written = 0
        with Cluster(servers) as cluster:
            topic = NewTopic(name=name, partitions=partitions, replication_factor=replicas)
            (made,) = Admin(cluster).create_topics([topic])
            assert made.error is None, made.error
        # Clients of a broker that does not know the topic yet fail (kafkajs) or read nothing for a while.
        wait_until_known(servers.split(","), name)

    # ---- members

    def join(self, host: Host, members: int = 1, **options: Any) -> list[str]:
        names = [f"{host.library}-{next(self.numbers)}" for _ in range(members)]
        for name in names:
            self.hosts[name] = host
            # A host may run members of several groups.
            member = f"{self.name}.{name}"
            host.handlers[member] = partial(self.on_line, name)
            defaults = {
                "session_ms": SESSION_MS,
                "heartbeat_ms": HEARTBEAT_MS,
                "commits": "each",
                "assignor": "its own" if host.library == KAFKAJS_NAME else "range",
            }
            common = {"servers": self.servers, "group": self.name, "topic": self.name}
            host.send(
                {"do": "join", "member": member, **common, **defaults, **self.options, **options}
            )
        return names

    def on_line(self, name: str, line: Line) -> None:
        self.lines.append({**line, "member": name})

    def leave(self, *members: str) -> float:
        """Close the members; returns the longest time that any of them took."""
        for member in members:
            self.hosts.pop(member).send({"do": "close", "member": f"{self.name}.{member}"})
        self.wait(lambda: set(members) <= self.closed.keys(), f"{members} close")
        return max(self.closed[member] for member in members)

    @property
    def closed(self) -> dict[str, float]:
        return {
            line["member"]: line["seconds"]
            for line in list(self.lines)
            if line["event"] == "closed"
        }

    def kill(self, host: Host) -> float:
        """Kill a host and all its members; returns the time."""
        self.hosts = {name: one for name, one in self.hosts.items() if one is not host}
        at = time.monotonic()
        host.kill()
        return at

    # ---- assignments

    def owned(self, since: float = 0.0) -> dict[str, list[int]]:
        """Partitions by running member that has got an assignment, possibly an empty one."""
        found: dict[str, list[int]] = {}
        for line in list(self.lines):
            if line["event"] == "owns" and line["member"] in self.hosts and line["at"] >= since:
                found[line["member"]] = line["partitions"]
        return found

    def is_shared(self) -> bool:
        """Whether each partition has one owner, and shares differ by one partition at most. With more members than
        partitions, members without a partition may not have reported."""
        owned = self.owned()
        sizes = [len(owned.get(member, ())) for member in self.hosts]
        return (
            sorted(each for partitions in owned.values() for each in partitions)
            == list(range(self.partitions))
            and max(sizes) - min(sizes) <= 1
        )

    def wait_until_shared(self) -> float:
        """Wait until the partitions are shared; returns the time of the last assignment."""
        self.wait(self.is_shared, f"{len(self.hosts)} members share {self.partitions} partitions")
        return max(
            float(line["at"])
            for line in list(self.lines)
            if line["event"] == "owns" and line["member"] in self.hosts
        )

    # ---- records

    def write(self, producer: Producer, each: int) -> None:
        failed: list[object] = []
        for partition in range(self.partitions):
            for number in range(each):
                producer.produce(
                    self.name,
                    b"%d" % (self.written + number),
                    partition=partition,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
        assert producer.flush(TIMEOUT_S) == 0 and not failed, failed
        self.written += each

    def wait_until_read(self) -> None:
        wanted = dict.fromkeys(range(self.partitions), self.written)
        self.wait(lambda: self.history().read == wanted, f"{self.written} of each are read")

    def wait_until_committed(self) -> None:
        """Wait until the coordinator returns all offsets as committed."""
        with Cluster(self.servers) as cluster:
            wanted = dict.fromkeys(range(self.partitions), self.written)
            self.wait(lambda: self.committed(cluster) == wanted, f"{wanted} are committed")

    def committed(self, cluster: Cluster) -> dict[int, int]:
        try:
            found = GroupAdmin(cluster).committed_offsets(self.name)
        except ApiError:
            return {}
        return {each.partition: offset.offset for each, offset in found.items()}

    def history(self) -> History:
        return history_of(list(self.lines))

    def check(self, *, may_repeat_after: Iterable[str] = ()) -> None:
        """Check that no record was skipped, and that only uncommitted records of these members were repeated."""
        history = self.history()
        assert not history.violations, f"{history.violations}\n{self.events()}"
        allowed = set(may_repeat_after)
        repeated = [
            each for each in history.handovers if each.repeated and each.before not in allowed
        ]
        assert not repeated, repeated

    # ---- waiting

    def wait(self, condition: Any, what: str) -> None:
        def holds() -> bool:
            failed = [line for line in list(self.lines) if line["event"] == "failed"]
            assert not failed, failed
            for host in set(self.hosts.values()):
                assert host.process.poll() is None, host.errors.read_text()[-2000:]
            return bool(condition())

        try:
            eventually(holds, what, TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.state()}") from None

    def events(self, count: int = 200) -> str:
        return "\n".join(str(line) for line in list(self.lines)[-count:])

    def state(self) -> str:
        last = self.events(30)
        history = self.history()
        return f"owned {self.owned()}\nread {history.read}\ncommitted {history.committed}\n{last}"
