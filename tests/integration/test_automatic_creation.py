"""Automatic topic creation, requested from a single broker, from the controller of three, and from a non-controller."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from msgspec.structs import replace

from barnabas import LocalCluster
from barnabas.broker.topic_admin import auto_creation
from barnabas.cli.main import cli
from barnabas.errors import ErrorCode
from barnabas.model import ZERO_ID
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    ResourceType,
)
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from support.waiting import eventually
from tests import tools
from tests.compatibility.optional import require
from tests.compatibility.raw import Raw, recent_batch_of, wait_until_known

NUMBERS = count()
NO_CONTROLLED_SHUTDOWN = {"controlled.shutdown.enable": False}
SIZES = {"num.partitions": 2, "default.replication.factor": 1}
OWN_SIZES = {
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.segment.bytes": 1_000_000,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
SINGLE_BROKER, CONTROLLER_BROKER, OTHER_BROKER = "single broker", "controller", "non-controller"


class Target(NamedTuple):
    """A cluster and the broker that receives the requests."""

    cluster: LocalCluster
    broker: int

    @property
    def address(self) -> str:
        return self.cluster.brokers[self.broker].address

    def creation_events(self, name: str) -> list[dict[str, Any]]:
        """The creation events of a topic in the history."""
        events = [
            json.loads(line)
            for path in sorted(self.cluster.data.glob("broker-*/state-changes-*.jsonl"))
            for line in path.read_text().rpartition("\n")[0].splitlines()
        ]
        return [each for each in events if each["what"] == "topic" and each["topic"] == name]

    def creation(self, name: str) -> dict[str, Any]:
        """The only creation event. It is written when the controller's broker knows the leaders; others may earlier."""
        eventually(lambda: bool(self.creation_events(name)), "the event is in the history")
        (event,) = self.creation_events(name)
        return event


def another_than(controller: int | None) -> int:
    return next(each for each in (1, 2, 3) if each != controller)


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[int, LocalCluster]]:
    settings = {**NO_CONTROLLED_SHUTDOWN, **SIZES, **OWN_SIZES}
    with (
        LocalCluster(settings=settings) as one,
        LocalCluster(brokers=3, settings=settings) as three,
    ):
        yield {1: one, 3: three}


@pytest.fixture(params=[SINGLE_BROKER, CONTROLLER_BROKER, OTHER_BROKER])
def target(request: pytest.FixtureRequest, clusters: dict[int, LocalCluster]) -> Target:
    if request.param == SINGLE_BROKER:
        return Target(clusters[1], 1)
    three = clusters[3]
    assert three.controller_id is not None
    is_controller = request.param == CONTROLLER_BROKER
    return Target(
        three, three.controller_id if is_controller else another_than(three.controller_id)
    )


@pytest.fixture
def raw(target: Target) -> Iterator[Raw]:
    with Raw(target.address) as connection:
        yield connection


def new_name() -> str:
    return f"wanted-{next(NUMBERS)}"


def metadata_request(*names: str, create: bool = True) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=create,
    )


def request_topic(
    raw: Raw, name: str, *, create: bool = True, version: int | None = None
) -> MetadataResponseTopic:
    (topic,) = raw.ask(metadata_request(name, create=create), MetadataResponse, version).topics
    return topic


def exists(raw: Raw, name: str, partitions: int = 2) -> bool:
    found = request_topic(raw, name, create=False)
    return len(found.partitions) == partitions and all(
        each.error_code == ErrorCode.NONE for each in found.partitions
    )


def names_of(raw: Raw) -> set[str | None]:
    return {topic.name for topic in raw.ask(MetadataRequest(topics=None), MetadataResponse).topics}


# ---- the three conditions


@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_metadata_request_creates_unknown_topic(raw: Raw, version: int) -> None:
    name = new_name()
    assert request_topic(raw, name, version=version).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    eventually(lambda: exists(raw, name), "it has leaders and the default number of partitions")


@pytest.mark.parametrize("version", [4, 12])
def test_metadata_without_allow_auto_creation_creates_nothing(raw: Raw, version: int) -> None:
    name = new_name()
    for _ in range(2):
        found = request_topic(raw, name, create=False, version=version)
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("brokers", [1, 3])
def test_disabled_auto_creation_creates_nothing(brokers: int) -> None:
    settings = {**NO_CONTROLLED_SHUTDOWN, "auto.create.topics.enable": False}
    with LocalCluster(brokers=brokers, settings=settings) as strict:
        for broker in strict.brokers.values():
            with Raw(broker.address) as raw:
                for _ in range(2):
                    code = request_topic(raw, "nowhere").error_code
                    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                assert (
                    request_topic(raw, "no/where").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
                )


def test_metadata_of_all_topics_creates_nothing(raw: Raw) -> None:
    before = names_of(raw)
    raw.ask(MetadataRequest(topics=()), MetadataResponse, 0)
    raw.ask(MetadataRequest(topics=()), MetadataResponse, 1)
    assert names_of(raw) == before


def test_metadata_by_topic_id_creates_nothing(raw: Raw) -> None:
    before = names_of(raw)
    wanted = MetadataRequestTopic(topic_id=UUID(int=77), name=None)
    (found,) = raw.ask(MetadataRequest(topics=(wanted,)), MetadataResponse).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert names_of(raw) == before


def test_producing_and_fetching_create_nothing(raw: Raw) -> None:
    name = new_name()
    code = raw.produce(name, recent_batch_of(b"x")).error_code
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert raw.fetch(name, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert request_topic(raw, name, create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- errors


@pytest.mark.parametrize("name", ["", ".", "..", "no/where", "a b", "x" * 250])
def test_invalid_topic_name_is_rejected(raw: Raw, name: str) -> None:
    assert request_topic(raw, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_colliding_names_create_one_topic(raw: Raw) -> None:
    name = new_name()
    alike = (f"{name}.x", f"{name}_x")
    codes = [
        topic.error_code for topic in raw.ask(metadata_request(*alike), MetadataResponse).topics
    ]
    assert sorted(codes) == [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_TOPIC_EXCEPTION]
    eventually(lambda: any(exists(raw, each) for each in alike), "one of them exists")
    assert len({*alike} & names_of(raw)) == 1


def test_valid_and_invalid_names_are_independent(raw: Raw) -> None:
    name = new_name()
    answer = raw.ask(metadata_request("no/where", name, "a b"), MetadataResponse)
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes[name] == ErrorCode.LEADER_NOT_AVAILABLE
    assert codes["no/where"] == codes["a b"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    eventually(lambda: exists(raw, name), "the valid one exists")


@pytest.mark.parametrize("brokers", [1, 3])
def test_every_broker_reports_too_few_brokers(brokers: int) -> None:
    settings = {**NO_CONTROLLED_SHUTDOWN, "default.replication.factor": 4}
    with LocalCluster(brokers=brokers, settings=settings) as small:
        for broker in small.brokers.values():
            with Raw(broker.address) as raw:
                assert request_topic(raw, "t").error_code == ErrorCode.INVALID_REPLICATION_FACTOR
                assert names_of(raw) == set()


def test_deleted_topic_is_recreated_by_repeated_requests(target: Target, raw: Raw) -> None:
    name = new_name()
    request_topic(raw, name)
    eventually(lambda: exists(raw, name), "it exists")
    before = request_topic(raw, name).topic_id
    assert target.cluster.controller_id is not None
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name),), timeout_ms=10_000)
    with Raw(target.cluster.brokers[target.cluster.controller_id].address) as controller:
        eventually(lambda: exists(controller, name), "the controller's broker knows it")
        (result,) = controller.ask(request, DeleteTopicsResponse).responses
    assert result.error_code == ErrorCode.NONE
    eventually(
        lambda: request_topic(raw, name).topic_id not in (before, ZERO_ID), "a new topic exists"
    )


# ---- sizes


def test_internal_topics_get_their_own_settings(target: Target, raw: Raw) -> None:
    for name in ("__consumer_offsets", "__transaction_state"):
        first = request_topic(raw, name)
        assert first.is_internal
        assert first.error_code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE)
    eventually(lambda: exists(raw, "__consumer_offsets", 3), "the offsets")
    eventually(lambda: exists(raw, "__transaction_state", 4), "the transactions")
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(ResourceType.TOPIC, name)
            for name in ("__consumer_offsets", "__transaction_state")
        )
    )
    configs = [
        {each.name: each.value for each in result.configs if each.config_source == 1}
        for result in raw.ask(request, DescribeConfigsResponse).results
    ]
    assert configs == [
        {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "1000000"},
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": "104857600",
            "min.insync.replicas": "1",
            "unclean.leader.election.enable": "false",
        },
    ]
    event = target.creation("__consumer_offsets")
    assert event["defaults"] == ["offsets.topic.num.partitions", "offsets.topic.replication.factor"]


def test_history_topic_is_never_auto_created(raw: Raw) -> None:
    assert request_topic(raw, "__state_changes").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "__state_changes" not in names_of(raw)


def test_defaults_of_requested_broker_apply() -> None:
    cluster = LocalCluster(brokers=3, settings={**NO_CONTROLLED_SHUTDOWN, **SIZES})
    for number, broker in cluster.brokers.items():
        broker.config = replace(broker.config, num_partitions=number)
    with cluster:
        for number, broker in cluster.brokers.items():
            with Raw(broker.address) as raw:
                request_topic(raw, f"of-{number}")
                eventually(lambda raw=raw, n=number: exists(raw, f"of-{n}", n), "its size")  # type: ignore[misc]


# ---- unresponsive controller


def test_unresponsive_controller_makes_client_retry(
    clusters: dict[int, LocalCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_creation, "FORWARD_SECONDS", 0.2)
    three = clusters[3]
    name = new_name()
    assert three.controller_id is not None
    in_charge = three.brokers[three.controller_id]
    with Raw(three.brokers[another_than(three.controller_id)].address) as raw:
        in_charge.pause()
        try:
            for _ in range(2):  # the name can be requested again
                assert request_topic(raw, name).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        finally:
            in_charge.resume()
        eventually(lambda: exists(raw, name), "the topic is created late")


# ---- history of creations


def test_history_records_auto_creation_origin_and_defaults(target: Target, raw: Raw) -> None:
    name = new_name()
    request_topic(raw, name)
    event = target.creation(name)
    assert event["cause"] == "Metadata"
    assert (event["by"], event["host"], event["after"]) == ("raw", "127.0.0.1", "created")
    assert (event["automatic"], event["via"]) == (True, target.broker)
    assert (event["partitions"], event["replication_factor"]) == (2, 1)
    assert event["defaults"] == ["num.partitions", "default.replication.factor"]


def test_history_records_explicit_creation(clusters: dict[int, LocalCluster]) -> None:
    target = Target(clusters[1], 1)
    name = new_name()
    with Raw(target.address) as raw:
        raw.create_topic(name, partitions=5)
    (event,) = target.creation_events(name)
    assert event["cause"] == "CreateTopics"
    assert (event["partitions"], event["replication_factor"]) == (5, 1)
    assert "automatic" not in event
    assert "defaults" not in event


def test_producer_auto_creates_topic_and_history_names_it(
    target: Target,
) -> None:
    """Producers bootstrap from one broker, but librdkafka may request metadata from any broker it knows."""
    name = new_name()
    settings = {"bootstrap.servers": target.address, "client.id": "shop at home", "log_level": 0}
    producer = Producer(settings)
    for number in range(20):
        producer.produce(name, b"%d" % number)
    assert producer.flush(30) == 0
    event = target.creation(name)
    assert (event["by"], event["host"], event["automatic"]) == ("shop at home", "127.0.0.1", True)
    assert event["via"] in target.cluster.brokers


def test_kcat_auto_creates_topic(target: Target) -> None:
    require(tools.have_kcat(), "kcat")
    name = new_name()
    options = ("-b", target.address, "-t", name)
    subprocess.run(
        ["kcat", "-P", *options, "-X", "client.id=kcat"], input=b"a\nb\n", timeout=30, check=True
    )
    # A kcat consumer gives up if the broker does not know the topic, and it may ask any broker.
    wait_until_known([broker.address for broker in target.cluster.brokers.values()], name)
    configs = subprocess.run(
        ["kcat", "-C", *options, "-e", "-q"], capture_output=True, timeout=30, check=True
    )
    assert sorted(configs.stdout.split()) == [b"a", b"b"]
    event = target.creation(name)
    assert (event["by"], event["automatic"]) == ("kcat", True)


def test_topics_history_describes_auto_creation() -> None:
    settings = {**NO_CONTROLLED_SHUTDOWN, **SIZES, "barnabas.history.topic.enable": True}
    with LocalCluster(brokers=3, settings=settings) as cluster:
        broker = another_than(cluster.controller_id)
        with Raw(cluster.brokers[broker].address) as raw:
            request_topic(raw, "clicks")
        arguments = ["topics", "history", "clicks", "-b", cluster.bootstrap_servers]

        def words() -> str:
            return " ".join(CliRunner().invoke(cli, arguments).output.split())

        wanted = (
            f"created automatically for raw at 127.0.0.1 via broker {broker}: 2 partitions"
            " (num.partitions), 1 replica each (default.replication.factor)"
        )
        eventually(lambda: wanted in words(), wanted)
