"""Topics that come into being by being asked for: one broker alone, the controller of three, and one that is not."""

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
QUICK_END = {"controlled.shutdown.enable": False}
SIZES = {"num.partitions": 2, "default.replication.factor": 1}
OWN_SIZES = {
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.segment.bytes": 1_000_000,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
ALONE, CONTROLLER, ANOTHER = "a broker alone", "the controller", "another than the controller"


class Place(NamedTuple):
    """A cluster, and the broker of it that is asked."""

    cluster: LocalCluster
    broker: int

    @property
    def address(self) -> str:
        return self.cluster.brokers[self.broker].address

    def created(self, name: str) -> list[dict[str, Any]]:
        """What the history says of who wanted it."""
        events = [
            json.loads(line)
            for path in sorted(self.cluster.data.glob("broker-*/state-changes-*.jsonl"))
            for line in path.read_text().rpartition("\n")[0].splitlines()
        ]
        return [each for each in events if each["what"] == "topic" and each["topic"] == name]

    def creation(self, name: str) -> dict[str, Any]:
        """Told once, and when the controller's broker knows of its leaders: others may know of them before."""
        eventually(lambda: bool(self.created(name)), "a word in the history")
        (event,) = self.created(name)
        return event


def another_than(controller: int | None) -> int:
    return next(each for each in (1, 2, 3) if each != controller)


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[int, LocalCluster]]:
    settings = {**QUICK_END, **SIZES, **OWN_SIZES}
    with (
        LocalCluster(settings=settings) as one,
        LocalCluster(brokers=3, settings=settings) as three,
    ):
        yield {1: one, 3: three}


@pytest.fixture(params=[ALONE, CONTROLLER, ANOTHER])
def place(request: pytest.FixtureRequest, clusters: dict[int, LocalCluster]) -> Place:
    if request.param == ALONE:
        return Place(clusters[1], 1)
    three = clusters[3]
    assert three.controller_id is not None
    is_asked = request.param == CONTROLLER
    return Place(three, three.controller_id if is_asked else another_than(three.controller_id))


@pytest.fixture
def raw(place: Place) -> Iterator[Raw]:
    with Raw(place.address) as connection:
        yield connection


def new_name() -> str:
    return f"wanted-{next(NUMBERS)}"


def named(*names: str, create: bool = True) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=create,
    )


def ask(
    raw: Raw, name: str, *, create: bool = True, version: int | None = None
) -> MetadataResponseTopic:
    (topic,) = raw.ask(named(name, create=create), MetadataResponse, version).topics
    return topic


def is_there(raw: Raw, name: str, partitions: int = 2) -> bool:
    found = ask(raw, name, create=False)
    return len(found.partitions) == partitions and all(
        each.error_code == ErrorCode.NONE for each in found.partitions
    )


def names_of(raw: Raw) -> set[str | None]:
    return {topic.name for topic in raw.ask(MetadataRequest(topics=None), MetadataResponse).topics}


# ---- the three conditions


@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_who_asks_for_an_unknown_name_is_told_to_ask_again_and_finds_it(
    raw: Raw, version: int
) -> None:
    name = new_name()
    assert ask(raw, name, version=version).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    eventually(lambda: is_there(raw, name), "it has leaders, and as many partitions as by default")


@pytest.mark.parametrize("version", [4, 12])
def test_who_says_that_nothing_is_to_be_created_creates_nothing(raw: Raw, version: int) -> None:
    name = new_name()
    for _ in range(2):
        found = ask(raw, name, create=False, version=version)
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("brokers", [1, 3])
def test_brokers_with_creation_turned_off_create_nothing(brokers: int) -> None:
    settings = {**QUICK_END, "auto.create.topics.enable": False}
    with LocalCluster(brokers=brokers, settings=settings) as strict:
        for broker in strict.brokers.values():
            with Raw(broker.address) as raw:
                for _ in range(2):
                    code = ask(raw, "nowhere").error_code
                    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                assert ask(raw, "no/where").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_who_asks_for_everything_creates_nothing(raw: Raw) -> None:
    before = names_of(raw)
    raw.ask(MetadataRequest(topics=()), MetadataResponse, 0)
    raw.ask(MetadataRequest(topics=()), MetadataResponse, 1)
    assert names_of(raw) == before


def test_an_id_creates_nothing(raw: Raw) -> None:
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
    assert ask(raw, name, create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- what cannot be


@pytest.mark.parametrize("name", ["", ".", "..", "no/where", "a b", "x" * 250])
def test_an_illegal_name_is_refused(raw: Raw, name: str) -> None:
    assert ask(raw, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_of_names_that_look_alike_one_comes_into_being(raw: Raw) -> None:
    name = new_name()
    alike = (f"{name}.x", f"{name}_x")
    codes = [topic.error_code for topic in raw.ask(named(*alike), MetadataResponse).topics]
    assert sorted(codes) == [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_TOPIC_EXCEPTION]
    eventually(lambda: any(is_there(raw, each) for each in alike), "one of them")
    assert len({*alike} & names_of(raw)) == 1


def test_good_and_bad_names_in_one_request_have_nothing_to_do_with_each_other(raw: Raw) -> None:
    name = new_name()
    answer = raw.ask(named("no/where", name, "a b"), MetadataResponse)
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes[name] == ErrorCode.LEADER_NOT_AVAILABLE
    assert codes["no/where"] == codes["a b"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    eventually(lambda: is_there(raw, name), "the good one")


@pytest.mark.parametrize("brokers", [1, 3])
def test_too_few_brokers_are_named_as_such_whoever_is_asked(brokers: int) -> None:
    settings = {**QUICK_END, "default.replication.factor": 4}
    with LocalCluster(brokers=brokers, settings=settings) as small:
        for broker in small.brokers.values():
            with Raw(broker.address) as raw:
                assert ask(raw, "t").error_code == ErrorCode.INVALID_REPLICATION_FACTOR
                assert names_of(raw) == set()


def test_a_name_that_is_being_deleted_is_free_again_for_who_goes_on_asking(
    place: Place, raw: Raw
) -> None:
    name = new_name()
    ask(raw, name)
    eventually(lambda: is_there(raw, name), "it is there")
    before = ask(raw, name).topic_id
    assert place.cluster.controller_id is not None
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name),), timeout_ms=10_000)
    with Raw(place.cluster.brokers[place.cluster.controller_id].address) as controller:
        eventually(lambda: is_there(controller, name), "the controller's broker has heard of it")
        (result,) = controller.ask(request, DeleteTopicsResponse).responses
    assert result.error_code == ErrorCode.NONE
    eventually(lambda: ask(raw, name).topic_id not in (before, ZERO_ID), "another of this name")


# ---- sizes


def test_kafkas_own_topics_come_with_their_own_settings(place: Place, raw: Raw) -> None:
    for name in ("__consumer_offsets", "__transaction_state"):
        first = ask(raw, name)
        assert first.is_internal
        assert first.error_code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE)
    eventually(lambda: is_there(raw, "__consumer_offsets", 3), "the offsets")
    eventually(lambda: is_there(raw, "__transaction_state", 4), "the transactions")
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(ResourceType.TOPIC, name)
            for name in ("__consumer_offsets", "__transaction_state")
        )
    )
    told = [
        {each.name: each.value for each in result.configs if each.config_source == 1}
        for result in raw.ask(request, DescribeConfigsResponse).results
    ]
    assert told == [
        {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "1000000"},
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": "104857600",
            "min.insync.replicas": "1",
            "unclean.leader.election.enable": "false",
        },
    ]
    event = place.creation("__consumer_offsets")
    assert event["defaults"] == ["offsets.topic.num.partitions", "offsets.topic.replication.factor"]


def test_the_topic_of_the_history_is_nobodys_to_create(raw: Raw) -> None:
    assert ask(raw, "__state_changes").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "__state_changes" not in names_of(raw)


def test_the_settings_of_the_broker_that_was_asked_decide() -> None:
    cluster = LocalCluster(brokers=3, settings={**QUICK_END, **SIZES})
    for number, broker in cluster.brokers.items():
        broker.config = replace(broker.config, num_partitions=number)
    with cluster:
        for number, broker in cluster.brokers.items():
            with Raw(broker.address) as raw:
                ask(raw, f"of-{number}")
                eventually(lambda raw=raw, n=number: is_there(raw, f"of-{n}", n), "its size")  # type: ignore[misc]


# ---- a controller that does not answer


def test_a_controller_that_stands_still_makes_the_client_ask_again(
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
            for _ in range(2):  # the name is free to be asked for again
                assert ask(raw, name).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        finally:
            in_charge.resume()
        eventually(lambda: is_there(raw, name), "what was asked for was done late")


# ---- who wanted it


def test_the_history_says_who_asked_whom_and_what_was_nobodys_wish(place: Place, raw: Raw) -> None:
    name = new_name()
    ask(raw, name)
    event = place.creation(name)
    assert event["cause"] == "Metadata"
    assert (event["by"], event["host"], event["after"]) == ("raw", "127.0.0.1", "created")
    assert (event["automatic"], event["via"]) == (True, place.broker)
    assert (event["partitions"], event["replication_factor"]) == (2, 1)
    assert event["defaults"] == ["num.partitions", "default.replication.factor"]


def test_what_was_created_on_purpose_says_so_too(clusters: dict[int, LocalCluster]) -> None:
    place = Place(clusters[1], 1)
    name = new_name()
    with Raw(place.address) as raw:
        raw.create_topic(name, partitions=5)
    (event,) = place.created(name)
    assert event["cause"] == "CreateTopics"
    assert (event["partitions"], event["replication_factor"]) == (5, 1)
    assert "automatic" not in event
    assert "defaults" not in event


def test_producers_find_the_topics_they_name_and_the_history_names_the_producers(
    place: Place,
) -> None:
    """All they know is one broker, but librdkafka asks whichever it likes as soon as it knows them all."""
    name = new_name()
    settings = {"bootstrap.servers": place.address, "client.id": "shop at home", "log_level": 0}
    producer = Producer(settings)
    for number in range(20):
        producer.produce(name, b"%d" % number)
    assert producer.flush(30) == 0
    event = place.creation(name)
    assert (event["by"], event["host"], event["automatic"]) == ("shop at home", "127.0.0.1", True)
    assert event["via"] in place.cluster.brokers


def test_kcat_finds_the_topic_it_names(place: Place) -> None:
    require(tools.have_kcat(), "kcat")
    name = new_name()
    options = ("-b", place.address, "-t", name)
    subprocess.run(
        ["kcat", "-P", *options, "-X", "client.id=kcat"], input=b"a\nb\n", timeout=30, check=True
    )
    # One that reads gives up where nobody knows the topic, and asks whichever broker it likes.
    wait_until_known([broker.address for broker in place.cluster.brokers.values()], name)
    told = subprocess.run(
        ["kcat", "-C", *options, "-e", "-q"], capture_output=True, timeout=30, check=True
    )
    assert sorted(told.stdout.split()) == [b"a", b"b"]
    event = place.creation(name)
    assert (event["by"], event["automatic"]) == ("kcat", True)


def test_the_command_line_tells_it_in_words() -> None:
    settings = {**QUICK_END, **SIZES, "barnabas.history.topic.enable": True}
    with LocalCluster(brokers=3, settings=settings) as cluster:
        broker = another_than(cluster.controller_id)
        with Raw(cluster.brokers[broker].address) as raw:
            ask(raw, "clicks")
        arguments = ["topics", "history", "clicks", "-b", cluster.bootstrap_servers]

        def words() -> str:
            return " ".join(CliRunner().invoke(cli, arguments).output.split())

        wanted = (
            f"created automatically for raw at 127.0.0.1 by broker {broker}: 2 partitions"
            " (num.partitions), 1 replica each (default.replication.factor)"
        )
        eventually(lambda: wanted in words(), wanted)
