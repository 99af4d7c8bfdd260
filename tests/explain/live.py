"""A live cluster whose problems are explained: real brokers, a registry on disk, and a history."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

from barnabas import LocalCluster
from barnabas.cli import main
from barnabas.cli.explain.gather import gather_facts
from barnabas.cli.explain.group_gather import gather_group_facts
from barnabas.cli.explain.registry_facts import RegistryPlace
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin
from barnabas.client.producer import Producer
from barnabas.client.reassignment_admin import ReassignmentAdmin
from barnabas.client.view import PartitionView
from barnabas.controller.events import Event, LeadersUnbalanced
from barnabas.errors import ApiError
from barnabas.explain.cluster import explain_broker, explain_cluster
from barnabas.explain.facts import ClusterFacts
from barnabas.explain.finding import Cause, Finding
from barnabas.explain.group_facts import GroupFacts
from barnabas.explain.groups import explain_group
from barnabas.explain.topics import explain_topic
from barnabas.metadata import znodes
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.metadata.znodes import ReplicaAssignment, TopicAssignment
from barnabas.model import BrokerId, TopicPartition
from barnabas.wire.messages.describe_configs import ResourceType
from support.waiting import eventually
from tests.compatibility.raw import wait_until_known
from tests.settings import alter

DEADLINE_S = 30
SETTINGS = {
    "barnabas.history.topic.enable": "true",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.max.bytes": "100000",
    "zookeeper.session.timeout.ms": "60000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.initial.task.delay.ms": "0",
    "controlled.shutdown.max.retries": "1000",
    "controlled.shutdown.retry.backoff.ms": "100",
}


class Expected(NamedTuple):
    """A cause, with these brokers if any are given, among the findings of one subject."""

    explain: Callable[[ClusterFacts], list[Finding]]
    cause: Cause
    brokers: tuple[int, ...] = ()
    is_dated: bool = False
    """The time must be known too. The history is written a moment after the change."""

    def find(self, facts: ClusterFacts) -> Finding | None:
        for each in self.explain(facts):
            if each.cause is self.cause and self.brokers in ((), each.brokers):
                return each if each.since_ms is not None or not self.is_dated else None
        return None


def topic(name: str, cause: Cause, *brokers: int, is_dated: bool = False) -> Expected:
    return Expected(lambda facts: explain_topic(facts, name), cause, brokers, is_dated)


def broker(number: int, cause: Cause) -> Expected:
    return Expected(lambda facts: explain_broker(facts, number), cause, (number,))


def cluster(cause: Cause, *brokers: int) -> Expected:
    return Expected(explain_cluster, cause, brokers)


class LiveCluster:
    """Three brokers and helpers. `spare` are the brokers that are not the controller."""

    def __init__(self, cluster: LocalCluster, data: Path) -> None:
        self.cluster = cluster
        self.data = data

    @property
    def controller(self) -> int:
        found = self.cluster.controller_id
        assert found is not None
        return found

    @property
    def spare(self) -> list[int]:
        """The leader of the history comes last: a broker that leads a partition gives up a full disk."""
        with self.client() as client:
            history = client.refresh([STATE_CHANGES]).topics.get(STATE_CHANGES)
        found = [each for each in self.cluster.brokers if each != self.controller]
        return sorted(
            found, key=lambda each: history is not None and each == history.partitions[0].leader
        )

    @property
    def servers(self) -> str:
        """The addresses of the brokers that respond."""
        brokers = self.cluster.brokers.values()
        return ",".join(each.address for each in brokers if each.is_running and not each.is_paused)

    @contextmanager
    def client(self) -> Iterator[Cluster]:
        with Cluster(self.servers, client_id="test", timeout_s=10) as client:
            yield client

    # ---- topics and records

    def create(self, name: str, *assignment: Sequence[int], **configs: str) -> None:
        """Create a topic with these replicas, and wait until all are in sync."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        with self.client() as client:
            (made,) = Admin(client).create_topics(
                [NewTopic(name=name, assignment=assignment, configs=settings)]
            )
            assert made.error is None, made.error
        wait_until_known(self.servers.split(","), name)
        self.wait_until(name, lambda each: len(each.isr) == len(each.replicas), "all in sync")

    def delete(self, *names: str) -> None:
        with self.client() as client:
            Admin(client).delete_topics(names)

    def partitions(self, name: str) -> tuple[PartitionView, ...]:
        with self.client() as client:
            topic = client.refresh([name]).topics.get(name)
        return () if topic is None else topic.partitions

    def wait_until(self, name: str, holds: Callable[[PartitionView], bool], what: str) -> None:
        eventually(
            lambda: bool(self.partitions(name)) and all(map(holds, self.partitions(name))),
            f"{name}: {what}",
            DEADLINE_S,
        )

    def produce(
        self, name: str, count: int = 1, *, size: int = 10, acks: int = 1, age_s: int = 0
    ) -> None:
        timestamp = now_ms() - age_s * 1000
        with self.client() as client, Producer(client, acks=acks) as producer:
            for _ in range(count):
                producer.send(name, bytes(size), partition=0, timestamp=timestamp)

    def restore(self) -> None:
        """Start and resume all brokers, and wait until no partition misses a replica that exists."""
        for broker in self.cluster.brokers.values():
            broker.resume()
            broker.start()
        known = self.cluster.brokers.keys()

        def is_whole() -> bool:
            with self.client() as client:
                view = client.refresh(None)
            return view.controller in view.brokers and all(
                not each.is_offline and set(each.replicas) & known <= set(each.isr)
                for topic in view.topics.values()
                for each in topic.partitions
                if set(each.replicas) & known
            )

        eventually(is_whole, "all replicas are in sync", DEADLINE_S)

    # ---- registry

    def registry(self, action: Callable[[Any], Any]) -> Any:
        """Run a coroutine with a session of the registry, which stays open."""
        registry, thread = self.cluster.cluster.open_registry()

        async def run() -> Any:
            return await action(await registry.connect(60_000))

        return thread.run(run())

    def write_topic(self, name: str, **partitions: Any) -> None:
        """Create the znode of a topic with partition 0."""
        assignment = ReplicaAssignment(
            **{key: tuple(map(BrokerId, brokers)) for key, brokers in partitions.items()}
        )
        data = znodes.encode_topic(TopicAssignment(topic_id=None, partitions={0: assignment}))
        self.registry(lambda session: session.create(znodes.topic_path(name), data))

    # ---- controller

    def reassign(self, name: str, *replicas: int) -> None:
        """Start to move partition 0, with AlterPartitionReassignments."""
        partition = TopicPartition(name, 0)
        with self.client() as client:
            errors = ReassignmentAdmin(client).alter_partition_reassignments({partition: replicas})
        assert errors == {partition: None}

    def configure(self, kind: ResourceType, name: str, **settings: str | None) -> None:
        """Change settings of a topic or broker; None removes one."""
        with self.client() as client:
            alter(ConfigAdmin(client), kind, name, **settings)

    def holding_rebalance(self) -> AbstractContextManager[None]:
        """Keep restarted brokers from becoming leaders again. The first check is 5 s after a controller election."""
        return self.holding(LeadersUnbalanced)

    @contextmanager
    def holding(self, kind: type[Event]) -> Iterator[None]:
        """Keep events of this kind from the controller, as if they were late. All other events are handled."""
        instance = self.cluster.brokers[self.controller].instance
        assert instance is not None
        assert instance.broker.router is not None
        queue = instance.broker.router.context.controller.queue
        handle, held = queue.handle, []

        async def hold(event: Event, cause: str) -> None:
            if isinstance(event, kind):
                held.append(event)
            else:
                await handle(event, cause)

        def release() -> None:
            queue.handle = handle
            for event in held:
                queue.put(event)

        instance.thread.call(lambda: setattr(queue, "handle", hold))
        try:
            yield
        finally:
            instance.thread.call(release)

    # ---- explanations

    def facts(self) -> ClusterFacts:
        with self.client() as client:
            return gather_facts(client, RegistryPlace()).facts

    def expect(self, *expected: Expected) -> list[Finding]:
        """Explain until all causes are found at the same time. Returns their findings."""
        found: list[Finding | None] = []

        def is_found() -> bool:
            try:
                facts = self.facts()
            except ApiError:  # the first broker that was asked is down
                return False
            found[:] = [each.find(facts) for each in expected]
            return None not in found

        try:
            eventually(is_found, "all causes are found", DEADLINE_S)
        except AssertionError as error:
            facts = self.facts()
            missing = {each.cause: each.explain(facts) for each in expected if not each.find(facts)}
            raise AssertionError(f"{error}; instead of {missing}") from None
        return [each for each in found if each is not None]

    def expect_group(self, name: str, cause: Cause, *, stalled_after_s: float = 10) -> Finding:
        found: list[Finding] = []

        def is_found() -> bool:
            found[:] = self.explain_group(name, stalled_after_s=stalled_after_s)
            return any(each.cause is cause for each in found)

        try:
            eventually(is_found, f"{cause} is found", DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; found {found}") from None
        return next(each for each in found if each.cause is cause)

    def explain_group(self, name: str, *, stalled_after_s: float) -> list[Finding]:
        return explain_group(self.group_facts(name, stalled_after_s=stalled_after_s))

    def group_facts(self, name: str, *, stalled_after_s: float) -> GroupFacts:
        with self.client() as client:
            return gather_group_facts(
                *(client, RegistryPlace(), name), sample_s=0.1, stalled_after_s=stalled_after_s
            )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `barnabas <arguments>` in this process, which is faster. Line breaks of the output become spaces."""
        out, err = TextIOWrapper(BytesIO(), encoding="utf-8"), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main.run_command([*arguments, "-b", self.servers])
        out.seek(0)
        text = " ".join(out.read().split())
        return subprocess.CompletedProcess(arguments, code, text, err.getvalue())
