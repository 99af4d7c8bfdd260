"""Policies through the wire: CreateTopics, validate only, automatic creation, settings, and policies that fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.errors import ConfigError, ErrorCode
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.incremental_alter_configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.command import COMMAND
from tests.compatibility.raw import Raw
from tests.unit.broker import sample_policies

SETTING = "create.topic.policy.class.name"
SAMPLES = "tests.unit.broker.sample_policies"
REFUSED, FAILED = ErrorCode.POLICY_VIOLATION, ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings={SETTING: f"{SAMPLES}:Prefixed"}) as running:
        yield running


def create(
    raw: Raw, *topics: CreatableTopic, version: int | None = None, validate_only: bool = False
) -> tuple[CreatableTopicResult, ...]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only, timeout_ms=10_000)
    return raw.ask(request, CreateTopicsResponse, version).topics


def topic_names(raw: Raw) -> set[str | None]:
    return {topic.name for topic in raw.ask(MetadataRequest(topics=None), MetadataResponse).topics}


@pytest.mark.parametrize("version", APIS[ApiKey.CREATE_TOPICS].versions)
def test_rejected_topic_has_the_text_of_the_policy(raw: Raw, version: int) -> None:
    wanted = CreatableTopic("orders", 1, 1), CreatableTopic(f"team-v{version}", 1, 1)
    refused, created = create(raw, *wanted, version=version)
    assert (refused.error_code, created.error_code) == (REFUSED, ErrorCode.NONE)
    if version >= 1:
        assert refused.error_message == "'orders' must start with 'team-'"
    assert "orders" not in topic_names(raw)


def test_validate_only_asks_the_policy(raw: Raw) -> None:
    wanted = CreatableTopic("orders", 1, 1), CreatableTopic("team-checked", 1, 1)
    refused, accepted = create(raw, *wanted, validate_only=True)
    assert (refused.error_code, accepted.error_code) == (REFUSED, ErrorCode.NONE)


def test_policy_rejects_assigned_topics_too(raw: Raw) -> None:
    assigned = CreatableTopic("orders", -1, -1, (CreatableReplicaAssignment(0, (1,)),))
    (refused,) = create(raw, assigned)
    assert refused.error_code == REFUSED


def test_other_errors_come_before_the_policy(raw: Raw) -> None:
    invalid = (
        CreatableTopic("a/b", 1, 1),
        CreatableTopic("orders", 0, 1),
        CreatableTopic("stock", 1, 1, configs=(CreatableTopicConfig("retention.ms", "soon"),)),
    )
    assert [each.error_code for each in create(raw, *invalid)] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_CONFIG,
    ]


def test_policy_applies_to_automatic_creation(raw: Raw) -> None:
    wanted = (MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="team-automatic"))
    found = raw.ask(MetadataRequest(topics=wanted), MetadataResponse).topics
    assert {topic.name: topic.error_code for topic in found} == {
        "orders": REFUSED,
        "team-automatic": ErrorCode.LEADER_NOT_AVAILABLE,
    }


def test_policy_applies_to_the_offsets_topic(raw: Raw) -> None:
    """As in Kafka: a policy must accept the internal topics, or groups do not work."""
    request = FindCoordinatorRequest(coordinator_keys=("readers",))
    (found,) = raw.ask(request, FindCoordinatorResponse).coordinators
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "__consumer_offsets" not in topic_names(raw)


def test_policy_does_not_apply_to_create_partitions(raw: Raw) -> None:
    """As in Kafka."""
    create(raw, CreatableTopic("team-grown", 1, 1))
    request = CreatePartitionsRequest(
        topics=(CreatePartitionsTopic(name="team-grown", count=3),), timeout_ms=10_000
    )
    (result,) = raw.ask(request, CreatePartitionsResponse).results
    assert result.error_code == ErrorCode.NONE


# ---- several brokers


@pytest.fixture(scope="module")
def two() -> Iterator[LocalCluster]:
    settings = {SETTING: f"{SAMPLES}:Prefixed", "controlled.shutdown.enable": False}
    with LocalCluster(brokers=2, settings=settings) as running:
        yield running


def test_policy_of_the_controller_applies_to_automatic_creation_at_another_broker(
    two: LocalCluster,
) -> None:
    other = next(number for number in two.brokers if number != two.controller_id)
    wanted = (MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="team-forwarded"))
    with Raw(two.brokers[other].address) as raw:
        found = raw.ask(MetadataRequest(topics=wanted), MetadataResponse).topics
    assert {topic.name: topic.error_code for topic in found} == {
        "orders": REFUSED,
        "team-forwarded": ErrorCode.LEADER_NOT_AVAILABLE,
    }


# ---- policies that fail


@pytest.fixture(scope="module")
def unreliable() -> Iterator[LocalCluster]:
    settings = {SETTING: f"{SAMPLES}:Unreliable", "barnabas.policy.timeout.ms": 200}
    with LocalCluster(settings=settings) as running:
        yield running


@pytest.fixture
def shaky(unreliable: LocalCluster) -> Iterator[Raw]:
    sample_policies.RELEASE.clear()
    with Raw(unreliable.bootstrap_servers) as raw:
        yield raw
    sample_policies.RELEASE.set()


@pytest.mark.parametrize("name", ["bug", "exit", "stop-iteration"])
def test_failing_policy_rejects_the_topic_only(shaky: Raw, name: str) -> None:
    wanted = CreatableTopic(name, 1, 1), CreatableTopic(f"after-{name}", 1, 1)
    failed, created = create(shaky, *wanted)
    assert (failed.error_code, created.error_code) == (FAILED, ErrorCode.NONE)
    assert "secret" not in (failed.error_message or "")


def test_blocked_policy_does_not_block_the_broker(unreliable: LocalCluster, shaky: Raw) -> None:
    begun = shaky.begin(CreateTopicsRequest(topics=(CreatableTopic("block", 1, 1),)))
    with Raw(unreliable.bootstrap_servers) as other:
        assert "block" not in topic_names(other)
        (busy,) = create(other, CreatableTopic("meanwhile", 1, 1))
        assert busy.error_code == FAILED
        (late,) = shaky.answer(CreateTopicsResponse, *begun).topics
        assert late.error_code == FAILED
        assert "did not return within 0.2 s" in (late.error_message or "")
        sample_policies.RELEASE.set()
        for attempt in range(100):
            (created,) = create(other, CreatableTopic(f"released-{attempt}", 1, 1))
            if created.error_code == ErrorCode.NONE:
                return
        raise AssertionError("the policy is not called again")


# ---- start


def test_broker_with_unknown_policy_does_not_start() -> None:
    cluster = LocalCluster(settings={SETTING: "org.example.JavaPolicy"})
    with pytest.raises(ConfigError, match="no entry point 'org"):
        cluster.start()


def test_command_reports_unknown_policy(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"broker.id=1\nlog.dirs={tmp_path}/logs\n{SETTING}=no_such_module:Rules\n"
    )
    done = subprocess.run(
        [*COMMAND, "broker", str(properties)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 2
    assert f"{SETTING}: cannot create policy 'no_such_module:Rules'" in done.stderr


@pytest.mark.parametrize("validate_only", [True, False])
def test_policy_of_settings_rejects_a_change(validate_only: bool) -> None:
    settings = {"alter.config.policy.class.name": f"{SAMPLES}:ShortRetention"}
    with LocalCluster(settings=settings) as running, Raw(running.brokers[1].address) as raw:
        create(raw, CreatableTopic("orders", 1, 1))

        def change(
            name: str, operation: ConfigOperation, value: str | None
        ) -> tuple[int, str | None]:
            setting = IncrementallyAlterableConfig(name, operation, value)
            resource = IncrementalAlterConfigsResource(ResourceType.TOPIC, "orders", (setting,))
            request = IncrementalAlterConfigsRequest(
                resources=(resource,), validate_only=validate_only
            )
            (result,) = raw.ask(request, IncrementalAlterConfigsResponse).responses
            return result.error_code, result.error_message

        keep_less = (REFUSED, "topic orders: keep less")
        assert change("retention.ms", ConfigOperation.SET, "3600001") == keep_less
        assert change("retention.ms", ConfigOperation.SET, "7") == (ErrorCode.NONE, None)
        assert change("retention.ms", ConfigOperation.DELETE, None) == (ErrorCode.NONE, None)
        assert change("retention.ms", ConfigOperation.SET, "soon")[0] == ErrorCode.INVALID_CONFIG
