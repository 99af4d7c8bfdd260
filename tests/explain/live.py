"""A live cluster whose problems are explained: real brokers, a registry on disk, and a history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from barnabas import LocalCluster
from barnabas.cli.explain.gather import gather_facts
from barnabas.cli.explain.group_gather import gather_group_facts
from barnabas.cli.explain.registry_facts import RegistryPlace
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.client.view import PartitionView
from barnabas.errors import ApiError
from barnabas.explain.cluster import explain_broker, explain_cluster
from barnabas.explain.facts import ClusterFacts
from barnabas.explain.finding import Cause, Finding
from barnabas.explain.groups import explain_group
from barnabas.explain.topics import explain_topic
from barnabas.metadata import znodes
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.metadata.znodes import ReplicaAssignment, TopicAssignment
from barnabas.model import BrokerId
from support.waiting import eventually
from tests.compatibility.raw import wait_until_known

DEADLINE_S = 30
SETTINGS = {
    "barnabas.history.topic.enable": "true",
    "replica.lag.time.max.ms": "1500",
    "zookeeper.session.timeout.ms": "60000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.initial.task.delay.ms": "0",
    "controlled.shutdown.max.retries": "10",
    "controlled.shutdown.retry.backoff.ms": "2000",
}


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

    def produce(self, name: str, count: int = 1, *, size: int = 10, acks: int = 1) -> None:
        with self.client() as client, Producer(client, acks=acks) as producer:
            for _ in range(count):
                producer.send(name, bytes(size), partition=0)

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

    # ---- explanations

    def facts(self, topics: Sequence[str] | None = None) -> ClusterFacts:
        with self.client() as client:
            return gather_facts(client, RegistryPlace(), topics).facts

    def expect_topic(
        self, name: str, cause: Cause, *brokers: int, is_dated: bool = False
    ) -> Finding:
        """With `is_dated`, also wait until the history has the time."""
        explain = partial(self.explain_topic, name)
        return self.expect(explain, cause, brokers, is_dated=is_dated)

    def explain_topic(self, name: str) -> list[Finding]:
        return explain_topic(self.facts([name]), name)

    def expect_broker(self, broker: int, cause: Cause) -> Finding:
        return self.expect(lambda: explain_broker(self.facts(), broker), cause, (broker,))

    def expect_cluster(self, cause: Cause, *brokers: int) -> Finding:
        return self.expect(lambda: explain_cluster(self.facts()), cause, brokers)

    def expect_group(self, name: str, cause: Cause, *, stalled_after_s: float = 10) -> Finding:
        def explain() -> list[Finding]:
            with self.client() as client:
                facts = gather_group_facts(
                    *(client, RegistryPlace(), name), sample_s=0.3, stalled_after_s=stalled_after_s
                )
            return explain_group(facts)

        return self.expect(explain, cause, ())

    def expect(
        self,
        explain: Callable[[], list[Finding]],
        cause: Cause,
        brokers: Sequence[int],
        *,
        is_dated: bool = False,
    ) -> Finding:
        """Explain until the cause is found, with these brokers if they are given."""
        found: list[Finding] = []

        def is_found() -> bool:
            try:
                found[:] = explain()
            except ApiError:  # the first broker that was asked is down
                return False
            return any(is_expected(each) for each in found)

        def is_expected(each: Finding) -> bool:
            if is_dated and each.since_ms is None:
                return False
            return each.cause is cause and (not brokers or each.brokers == tuple(brokers))

        try:
            eventually(is_found, f"{cause} is found", DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; found {found}") from None
        return next(each for each in found if is_expected(each))
