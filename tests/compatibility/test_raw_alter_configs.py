"""AlterConfigs and IncrementalAlterConfigs: every error, all operations, and the effect on running brokers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.wire.apis import APIS
from barnabas.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.wire.messages.describe_configs import (
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    ResourceType,
)
from barnabas.wire.messages.incremental_alter_configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of, wait_until_known

NUMBERS = count()
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
LOGGER_NAME = "barnabas.test.changed"

Change = tuple[str, int, str | None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, settings={"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def raw(cluster: LocalCluster) -> Iterator[Raw]:
    with Raw(cluster.brokers[1].address) as connection:
        yield connection


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    """A topic with one replica on each broker."""
    name = f"altered-{next(NUMBERS)}"
    assert cluster.controller_id is not None
    with Raw(cluster.brokers[cluster.controller_id].address) as controller:
        controller.create_topic(name, partitions=4)
    wait_until_known([broker.address for broker in cluster.brokers.values()], name)
    return name


def resource(kind: int, name: str, *changes: Change) -> IncrementalAlterConfigsResource:
    return IncrementalAlterConfigsResource(
        kind, name, tuple(IncrementallyAlterableConfig(*change) for change in changes)
    )


def ask_all(
    raw: Raw, *resources: IncrementalAlterConfigsResource, validate_only: bool = False
) -> tuple[AlterConfigsResourceResponse, ...]:
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    return raw.ask(request, IncrementalAlterConfigsResponse).responses


def change(
    raw: Raw, kind: int, name: str, *changes: Change, validate_only: bool = False
) -> tuple[ErrorCode, str]:
    (result,) = ask_all(raw, resource(kind, name, *changes), validate_only=validate_only)
    assert (result.resource_type, result.resource_name) == (kind, name)
    return ErrorCode(result.error_code), result.error_message or ""


def replace_all(
    raw: Raw,
    kind: int,
    name: str,
    settings: Mapping[str, str | None],
    *,
    validate_only: bool = False,
) -> ErrorCode:
    configs = tuple(AlterableConfig(*item) for item in settings.items())
    request = AlterConfigsRequest(
        resources=(AlterConfigsResource(kind, name, configs),), validate_only=validate_only
    )
    (result,) = raw.ask(request, AlterConfigsResponse).responses
    return ErrorCode(result.error_code)


def described(raw: Raw, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    request = DescribeConfigsRequest(
        resources=(DescribeConfigsResource(kind, name),), include_synonyms=True
    )
    (result,) = raw.ask(request, DescribeConfigsResponse).results
    assert result.error_code == ErrorCode.NONE, result
    return {entry.name: entry for entry in result.configs}


def overrides(raw: Raw, topic: str) -> dict[str, str | None]:
    return {
        name: entry.value
        for name, entry in described(raw, TOPIC, topic).items()
        if entry.config_source == ConfigSource.TOPIC_CONFIG
    }


def read_znode(cluster: LocalCluster, entity_type: str, entity: str) -> dict[str, str]:
    registry, keeper = cluster.cluster.open_registry()

    async def read() -> dict[str, str]:
        session = await registry.connect(10_000)
        path = znodes.config_path(entity_type, entity)
        data, _ = await session.get(path)
        await session.close()
        return znodes.decode_config(path, data)

    return keeper.run(read())


# ---- invalid requests


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "why"),
    [
        (TOPIC, "", [("retention.ms", SET, "1")], "INVALID_REQUEST", "no name"),
        (TOPIC, "nowhere", [("retention.ms", SET, "1")], "UNKNOWN_TOPIC_OR_PARTITION", "nowhere"),
        (TOPIC, "not/valid", [("retention.ms", SET, "1")], "UNKNOWN_TOPIC_OR_PARTITION", ""),
        (TOPIC, "*", [("retention.ms", SET, None)], "INVALID_REQUEST", "missing: retention.ms"),
        (TOPIC, "*", [("retention.ms", SET, "1")] * 2, "INVALID_REQUEST", "twice"),
        (TOPIC, "*", [("retention.ms", 9, "1")], "INVALID_REQUEST", "no operation 9"),
        (TOPIC, "*", [("retenton.ms", SET, "1")], "INVALID_CONFIG", "did you mean retention.ms?"),
        (TOPIC, "*", [("log.retention.ms", SET, "1")], "INVALID_CONFIG", "no such topic setting"),
        (TOPIC, "*", [("retention.ms", SET, "soon")], "INVALID_CONFIG", "'soon'"),
        (TOPIC, "*", [("segment.bytes", SET, "13")], "INVALID_CONFIG", "at least 14"),
        (TOPIC, "*", [("min.insync.replicas", SET, "0")], "INVALID_CONFIG", "at least 1"),
        (TOPIC, "*", [("cleanup.policy", APPEND, "burn")], "INVALID_CONFIG", "burn"),
        (TOPIC, "*", [("retention.ms", APPEND, "1")], "INVALID_CONFIG", "not a list"),
        (TOPIC, "*", [("retention.ms", SUBTRACT, "1")], "INVALID_CONFIG", "not a list"),
        (TOPIC, "*", [("no.such.list", APPEND, "1")], "INVALID_CONFIG", "no such topic setting"),
        (
            TOPIC,
            "*",
            [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")],
            "INVALID_CONFIG",
            "max.compaction.lag.ms",
        ),
        (BROKER, "2", [("max.connections", SET, "9")], "INVALID_REQUEST", "this is broker 1"),
        (
            BROKER,
            "1" * 5000,
            [("max.connections", SET, "9")],
            "INVALID_REQUEST",
            "this is broker 1",
        ),
        (BROKER, "01", [("max.connections", SET, "9")], "INVALID_REQUEST", "this is broker 1"),
        (BROKER, "one", [("max.connections", SET, "9")], "INVALID_REQUEST", "is a number"),
        (BROKER, "1", [("broker.id", SET, "9")], "INVALID_REQUEST", "at run time"),
        (BROKER, "", [("num.partitions", SET, "9")], "INVALID_REQUEST", "at run time"),
        (BROKER, "1", [("max.connections", SET, "x")], "INVALID_REQUEST", "'x'"),
        (BROKER, "1", [("max.connections", SET, "0")], "INVALID_REQUEST", "at least 1"),
        (BROKER, "", [("listeners", SET, "PLAINTEXT://:1")], "INVALID_REQUEST", "name one broker"),
        (BROKER, "1", [("advertised.listeners", SET, "X://a:1")], "INVALID_REQUEST", "X"),
        (BROKER, "1", [("num.io.threads", SET, "17")], "INVALID_REQUEST", "from 4 to 16"),
        (BROKER, "1", [("log.retention.ms", SET, "0")], "INVALID_REQUEST", "log.retention.ms"),
        (BROKER, "1", [("ssl.keystore.type", SET, "x")], "INVALID_REQUEST", "listener.name."),
        (BROKER, "1", [("retention.ms", SET, "1")], "INVALID_CONFIG", "log.retention.ms"),
        (BROKER, "1", [("max.conections", SET, "1")], "INVALID_CONFIG", "mean max.connections?"),
        (BROKER, "1", [("max.connections", APPEND, "1")], "INVALID_CONFIG", "not a list"),
        (
            BROKER,
            "1",
            [("listener.name.plaintext.ssl.key.password", SET, "tops3cret")],
            "INVALID_CONFIG",
            "passwords are not stored",
        ),
        (LOGGER, "2", [("root", SET, "INFO")], "INVALID_REQUEST", "this is broker 1"),
        (LOGGER, "", [("root", SET, "INFO")], "INVALID_REQUEST", "is a number"),
        (LOGGER, "1", [("barnabas.netwerk", SET, "INFO")], "INVALID_CONFIG", "barnabas.network?"),
        (LOGGER, "1", [("root", SET, "LOUD")], "INVALID_CONFIG", "one of TRACE"),
        (LOGGER, "1", [("root", DELETE, None)], "INVALID_REQUEST", "root"),
        (LOGGER, "1", [("root", APPEND, "INFO")], "INVALID_REQUEST", "only SET and DELETE"),
        (16, "metrics", [("interval.ms", SET, "1")], "INVALID_REQUEST", "type 16"),
        (3, "x", [("a", SET, "1")], "INVALID_REQUEST", "type 3"),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_invalid_change_is_rejected(
    raw: Raw,
    topic: str,
    kind: int,
    name: str,
    changes: list[Change],
    code: str,
    why: str,
    validate_only: bool,
) -> None:
    name = topic if name == "*" else name
    found, message = change(raw, kind, name, *changes, validate_only=validate_only)
    assert found is ErrorCode[code], message
    assert why in message
    assert "tops3cret" not in message
    assert overrides(raw, topic) == {}


@pytest.mark.parametrize(
    ("kind", "name", "settings", "code"),
    [
        (TOPIC, "", {"retention.ms": "1"}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "nowhere", {"retention.ms": "1"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "*", {"retention.ms": None}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "*", {"no.such.setting": "1"}, ErrorCode.INVALID_CONFIG),
        (BROKER, "2", {"max.connections": "7"}, ErrorCode.INVALID_REQUEST),
        (BROKER, "1", {"broker.id": "7"}, ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", {"root": "INFO"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_replacement_is_rejected(
    raw: Raw, topic: str, kind: int, name: str, settings: dict[str, str | None], code: ErrorCode
) -> None:
    assert replace_all(raw, kind, topic if name == "*" else name, settings) is code


def test_repeated_resource_is_rejected_and_others_are_changed(raw: Raw, topic: str) -> None:
    results = ask_all(
        raw,
        resource(BROKER, "1", ("max.connections", SET, "7")),
        resource(TOPIC, topic, ("retention.ms", SET, "7")),
        resource(BROKER, "1", ("max.connections", DELETE, None)),
        resource(TOPIC, "nowhere", ("retention.ms", SET, "7")),
    )
    assert [(each.resource_name, ErrorCode(each.error_code).name) for each in results] == [
        ("1", "INVALID_REQUEST"),
        (topic, "NONE"),
        ("1", "INVALID_REQUEST"),
        ("nowhere", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert overrides(raw, topic) == {"retention.ms": "7"}


# ---- topics


@pytest.mark.parametrize("version", APIS[44].versions)
def test_incremental_change_keeps_other_settings(
    cluster: LocalCluster, raw: Raw, topic: str, version: int
) -> None:
    changes = (
        resource(TOPIC, topic, ("retention.ms", SET, "7"), ("cleanup.policy", APPEND, "compact")),
        resource(TOPIC, topic, ("retention.ms", DELETE, None), ("segment.bytes", SET, "1000")),
        resource(TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete")),
    )
    for each in changes:
        request = IncrementalAlterConfigsRequest(resources=(each,))
        (result,) = raw.ask(request, IncrementalAlterConfigsResponse, version).responses
        assert (result.error_code, result.error_message) == (0, None)
    settings = {"cleanup.policy": "compact", "segment.bytes": "1000"}
    assert overrides(raw, topic) == settings
    assert read_znode(cluster, "topics", topic) == settings
    with Raw(cluster.brokers[2].address) as other:
        assert overrides(other, topic) == settings


@pytest.mark.parametrize("version", APIS[33].versions)
def test_alter_configs_replaces_all_settings(raw: Raw, topic: str, version: int) -> None:
    change(raw, TOPIC, topic, ("retention.ms", SET, "7"), ("segment.bytes", SET, "1000"))
    replacement = AlterConfigsResource(TOPIC, topic, (AlterableConfig("flush.ms", "5"),))
    request = AlterConfigsRequest(resources=(replacement,))
    (result,) = raw.ask(request, AlterConfigsResponse, version).responses
    assert result == (ErrorCode.NONE, None, TOPIC, topic)
    assert overrides(raw, topic) == {"flush.ms": "5"}
    assert replace_all(raw, TOPIC, topic, {}) is ErrorCode.NONE
    assert overrides(raw, topic) == {}


@pytest.mark.parametrize("is_incremental", [True, False])
def test_validate_only_writes_nothing(raw: Raw, topic: str, is_incremental: bool) -> None:
    change(raw, TOPIC, topic, ("retention.ms", SET, "7"))
    if is_incremental:
        code, _ = change(raw, TOPIC, topic, ("retention.ms", SET, "9"), validate_only=True)
    else:
        code = replace_all(raw, TOPIC, topic, {"flush.ms": "9"}, validate_only=True)
    assert code is ErrorCode.NONE
    assert overrides(raw, topic) == {"retention.ms": "7"}


def test_description_has_the_topic_as_first_synonym(raw: Raw, topic: str) -> None:
    change(raw, TOPIC, topic, ("retention.ms", SET, "7"))
    entry = described(raw, TOPIC, topic)["retention.ms"]
    assert [tuple(each) for each in entry.synonyms] == [
        ("retention.ms", "7", ConfigSource.TOPIC_CONFIG),
        ("log.retention.ms", "-1", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]


# ---- brokers


@pytest.fixture
def clean_broker(cluster: LocalCluster) -> Iterator[None]:
    yield
    with Raw(cluster.brokers[1].address) as raw:
        for name in ("1", ""):
            assert replace_all(raw, BROKER, name, {}) is ErrorCode.NONE
    with Raw(cluster.brokers[2].address) as raw:
        eventually(lambda: described(raw, BROKER, "") == {}, "broker 2 has no dynamic defaults")


@pytest.mark.usefixtures("clean_broker")
def test_broker_setting_takes_precedence_over_the_default(cluster: LocalCluster, raw: Raw) -> None:
    name = "log.segment.bytes"
    assert change(raw, BROKER, "", (name, SET, "2000"))[0] is ErrorCode.NONE
    assert change(raw, BROKER, "1", (name, SET, "3000"))[0] is ErrorCode.NONE
    entry = described(raw, BROKER, "1")[name]
    assert (entry.value, entry.config_source) == ("3000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [tuple(each) for each in entry.synonyms] == [
        (name, "3000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        (name, "2000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (name, "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    assert not entry.read_only
    (default,) = described(raw, BROKER, "").values()
    assert (default.name, default.value) == (name, "2000")
    assert default.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert [each.source for each in default.synonyms] == [
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    ]
    with Raw(cluster.brokers[2].address) as other:

        def is_applied() -> bool:
            found = described(other, BROKER, "2")[name]
            return found.value == "2000"

        eventually(is_applied, "broker 2 uses the new default")
    assert read_znode(cluster, "brokers", "1") == {name: "3000"}
    assert read_znode(cluster, "brokers", "<default>") == {name: "2000"}


@pytest.mark.usefixtures("clean_broker")
def test_broker_setting_is_the_default_of_topics(raw: Raw, topic: str) -> None:
    change(raw, BROKER, "1", ("log.retention.ms", SET, "77"))
    entry = described(raw, TOPIC, topic)["retention.ms"]
    assert (entry.value, entry.config_source) == ("77", ConfigSource.DYNAMIC_BROKER_CONFIG)
    change(raw, BROKER, "1", ("log.retention.ms", DELETE, None))
    entry = described(raw, TOPIC, topic)["retention.ms"]
    assert (entry.value, entry.config_source) == ("-1", ConfigSource.STATIC_BROKER_CONFIG)


@pytest.mark.usefixtures("clean_broker")
def test_setting_without_effect_is_stored(raw: Raw) -> None:
    assert change(raw, BROKER, "1", ("num.io.threads", SET, "12"))[0] is ErrorCode.NONE
    assert described(raw, BROKER, "1")["num.io.threads"].value == "12"


# ---- loggers


def test_log_level_changes_at_once(raw: Raw) -> None:
    changed = logging.getLogger(LOGGER_NAME)
    assert change(raw, LOGGER, "1", (LOGGER_NAME, SET, "ERROR"), validate_only=True)[0] == 0
    assert changed.level == logging.NOTSET
    for level, expected in (("TRACE", 5), ("WARN", 30), ("FATAL", 50)):
        assert change(raw, LOGGER, "1", (LOGGER_NAME, SET, level))[0] is ErrorCode.NONE
        assert changed.getEffectiveLevel() == expected
        assert described(raw, LOGGER, "1")[LOGGER_NAME].value == level
    assert change(raw, LOGGER, "1", (LOGGER_NAME, DELETE, None))[0] is ErrorCode.NONE
    assert changed.level == logging.NOTSET


def test_one_invalid_log_level_changes_none(raw: Raw) -> None:
    changed = logging.getLogger(LOGGER_NAME)
    code, _ = change(raw, LOGGER, "1", (LOGGER_NAME, SET, "ERROR"), ("root", SET, "LOUD"))
    assert code is ErrorCode.INVALID_CONFIG
    assert changed.level == logging.NOTSET


# ---- running brokers


def test_max_message_bytes_changes_without_restart(cluster: LocalCluster, topic: str) -> None:
    with Raw(cluster.brokers[1].address) as one, Raw(cluster.brokers[2].address) as two:

        def produce_codes() -> set[int]:
            """Return the codes of all partitions, which both brokers lead."""
            codes = {
                raw.produce(topic, batch_of(b"x" * 2000), partition=index).error_code
                for raw in (one, two)
                for index in range(4)
            }
            return codes - {ErrorCode.NOT_LEADER_OR_FOLLOWER}

        assert produce_codes() == {ErrorCode.NONE}
        change(two, TOPIC, topic, ("max.message.bytes", SET, "1000"))
        eventually(
            lambda: produce_codes() == {ErrorCode.MESSAGE_TOO_LARGE}, "both brokers reject it"
        )
        change(one, TOPIC, topic, ("max.message.bytes", DELETE, None))
        eventually(lambda: produce_codes() == {ErrorCode.NONE}, "both brokers accept it again")


@pytest.mark.usefixtures("clean_broker")
def test_message_max_bytes_of_broker_is_the_limit_of_its_topics(raw: Raw, topic: str) -> None:
    def produce_codes() -> set[int]:
        codes = {
            raw.produce(topic, batch_of(b"x" * 2000), partition=n).error_code for n in range(4)
        }
        return codes - {ErrorCode.NOT_LEADER_OR_FOLLOWER}

    change(raw, BROKER, "1", ("message.max.bytes", SET, "1000"))
    assert produce_codes() == {ErrorCode.MESSAGE_TOO_LARGE}
    change(raw, TOPIC, topic, ("max.message.bytes", SET, "100000"))
    eventually(lambda: produce_codes() == {ErrorCode.NONE}, "the topic's own limit applies")


def test_min_insync_replicas_changes_without_restart(cluster: LocalCluster, topic: str) -> None:
    assert cluster.controller_id is not None
    name = f"insync-{topic}"
    with Raw(cluster.brokers[1].address) as one, Raw(cluster.brokers[2].address) as two:
        with Raw(cluster.brokers[cluster.controller_id].address) as controller:
            controller.create_topic(name, partitions=1)
        wait_until_known([broker.address for broker in cluster.brokers.values()], name)

        def produce_codes() -> set[int]:
            codes = {raw.produce(name, batch_of(b"x")).error_code for raw in (one, two)}
            return codes - {ErrorCode.NOT_LEADER_OR_FOLLOWER}

        assert produce_codes() == {ErrorCode.NONE}
        # More than the number of replicas: Barnabas then requires all of them, so the limit itself is checked.
        change(one, TOPIC, name, ("min.insync.replicas", SET, "2"))
        eventually(
            lambda: described(two, TOPIC, name)["min.insync.replicas"].value == "2", "applied"
        )
        logs = [
            log
            for broker in cluster.brokers.values()
            if broker.instance is not None and broker.instance.broker.logs is not None
            for partition, log in broker.instance.broker.logs.logs.items()
            if partition.topic == name
        ]
        assert len(logs) == 1
        eventually(lambda: logs[0].config.min_insync_replicas == 2, "the log uses the setting")


@pytest.mark.usefixtures("clean_broker")
def test_max_connections_changes_without_restart(cluster: LocalCluster, raw: Raw) -> None:
    def can_connect() -> bool:
        with suppress(OSError, EOFError, AssertionError), Raw(cluster.brokers[1].address) as other:
            described(other, BROKER, "1")
            return True
        return False

    assert can_connect()
    # The connection of this test is open already.
    assert change(raw, BROKER, "1", ("max.connections", SET, "1"))[0] is ErrorCode.NONE
    assert not can_connect()
    assert change(raw, BROKER, "1", ("max.connections", DELETE, None))[0] is ErrorCode.NONE
    assert can_connect()


@pytest.mark.usefixtures("clean_broker")
def test_throttle_rates_change_without_restart(cluster: LocalCluster, raw: Raw) -> None:
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    instance = cluster.brokers[1].instance
    assert instance is not None
    replicas = instance.broker.replicas
    assert replicas is not None
    assert (replicas.leader_quota, replicas.follower_quota) == (None, None)
    code, why = change(raw, BROKER, "1", *((name, SET, "1000") for name in rates))
    assert code is ErrorCode.NONE, why
    for quota in (replicas.leader_quota, replicas.follower_quota):
        assert quota is not None
        assert quota.bytes_per_second == 1000
    change(raw, BROKER, "", (rates[0], SET, "5"))
    change(raw, BROKER, "1", (rates[0], DELETE, None), (rates[1], SET, "2000"))
    assert replicas.leader_quota is not None
    assert replicas.leader_quota.bytes_per_second == 5
    assert replicas.follower_quota is not None
    assert replicas.follower_quota.bytes_per_second == 2000
    change(raw, BROKER, "", (rates[0], DELETE, None))
    change(raw, BROKER, "1", (rates[1], DELETE, None))
    quotas = [replicas.leader_quota, replicas.follower_quota]
    assert quotas == [None, None]
