"""Policies and mutation quotas of topic creation, expansion and deletion."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.broker.policies import load_policies
from barnabas.broker.topic_admin.create_partitions import create_partitions
from barnabas.broker.topic_admin.create_topics import create_topics
from barnabas.broker.topic_admin.delete_topics import delete_topics
from barnabas.broker.topic_admin.topics import Topics
from barnabas.config import BrokerConfig
from barnabas.config.load import load_broker_config
from barnabas.controller.mutation_quota import MutationQuota, TokenBucket
from barnabas.controller.topic_checks import TopicSpec
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata import znodes
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.registry_client import RegistryClient
from barnabas.policies import TopicCreation
from barnabas.wire.messages.create_partitions import CreatePartitionsTopic
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

PREFIXED = "tests.unit.broker.sample_policies:Prefixed"
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT  # written: these requests do not wait
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
REFUSED = ErrorCode.POLICY_VIOLATION


@pytest.fixture
async def registry(registry: RegistryClient) -> RegistryClient:
    await registry.create(znodes.CONTROLLER, b"{}", ephemeral=True)
    return registry


@pytest.fixture
def topics(registry: RegistryClient) -> Topics:
    return make_topics(registry)


def make_topics(registry: RegistryClient, **settings: str) -> Topics:
    config, _ = load_broker_config(
        {name.replace("_", "."): each for name, each in settings.items()}
    )
    assert isinstance(config, BrokerConfig)
    cache = MetadataCache("cluster")
    endpoint = UpdateMetadataEndpoint(9092, "here", "PLAINTEXT")
    cache.update(
        UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            live_brokers=(UpdateMetadataBroker(id=1, endpoints=(endpoint,)),),
        )
    )
    return Topics(registry, cache, config, Random(1), load_policies(config))


def announce(topics: Topics, name: str, partitions: int) -> None:
    """Update the cache as the controller does."""
    states = tuple(
        UpdateMetadataPartitionState(partition_index=index, leader=1, replicas=(1,))
        for index in range(partitions)
    )
    topics.metadata.update(
        UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=(UpdateMetadataTopicState(name, partition_states=states),),
            live_brokers=(UpdateMetadataBroker(id=1),),
        )
    )


def spec(name: str, partitions: int = 1, **more: object) -> TopicSpec:
    given = {"configs": {}, "partitions": partitions, "replication_factor": 1, **more}
    return TopicSpec(name=name, **given)  # type: ignore[arg-type]


def quota_of(tokens: float, *, is_strict: bool = True) -> MutationQuota:
    return MutationQuota(TokenBucket(1.0, tokens, 0.0), lambda: 0.0, is_strict=is_strict)


async def create(
    topics: Topics,
    *wanted: TopicSpec,
    quota: MutationQuota | None = None,
    validate_only: bool = False,
) -> list[ErrorCode]:
    options = {} if quota is None else {"quota": quota}
    outcomes = await create_topics(
        topics, wanted, timeout_ms=0, validate_only=validate_only, **options
    )
    return [ErrorCode.NONE if each.error is None else each.error.code for each in outcomes]


def codes(outcomes: dict[str, ApiError | None]) -> dict[str, ErrorCode]:
    return {
        name: ErrorCode.NONE if error is None else error.code for name, error in outcomes.items()
    }


# ---- policies


def seen_by(topics: Topics) -> list[TopicCreation]:
    assert topics.policies.create_topic is not None
    seen: list[TopicCreation] = topics.policies.create_topic.policy.seen
    return seen


async def test_policy_sees_counts_or_assignment(registry: RegistryClient) -> None:
    topics = make_topics(registry, create_topic_policy_class_name=PREFIXED, num_partitions="4")
    found = await create(
        topics,
        spec("team-a", -1, replication_factor=-1, configs={"retention.ms": "5"}),
        spec("team-b", -1, replication_factor=-1, assignments={0: (1,), 1: (1,)}),
    )
    assert found == [TIMED_OUT, TIMED_OUT]
    assert seen_by(topics) == [
        TopicCreation("team-a", 4, 1, None, {"retention.ms": "5"}),
        TopicCreation("team-b", None, None, {0: (1,), 1: (1,)}, {}),
    ]


@pytest.mark.parametrize("validate_only", [False, True])
async def test_policy_rejects_before_anything_is_written(
    registry: RegistryClient, validate_only: bool
) -> None:
    topics = make_topics(registry, create_topic_policy_class_name=PREFIXED)
    found = await create(topics, spec("team-a"), spec("orders"), validate_only=validate_only)
    assert found == [ErrorCode.NONE if validate_only else TIMED_OUT, REFUSED]
    assert await registry.children("/brokers/topics") == ([] if validate_only else ["team-a"])


async def test_policy_sees_only_valid_topics(registry: RegistryClient) -> None:
    topics = make_topics(registry, create_topic_policy_class_name=PREFIXED)
    await create(topics, spec("a/b"), spec("orders", 0), spec("orders", configs={"no.such": "1"}))
    assert seen_by(topics) == []


async def test_rejected_topic_does_not_collide_with_next_one(registry: RegistryClient) -> None:
    topics = make_topics(
        registry, create_topic_policy_class_name=PREFIXED, barnabas_policy_prefix="a_"
    )
    assert await create(topics, spec("a.b"), spec("a_b")) == [REFUSED, TIMED_OUT]


async def test_history_topic_has_no_policy(registry: RegistryClient) -> None:
    topics = make_topics(registry, create_topic_policy_class_name=PREFIXED)
    assert await create(topics, spec("__state_changes")) == [TIMED_OUT]
    assert await create(topics, spec("__consumer_offsets")) == [REFUSED], "as in Kafka"


# ---- quotas


async def test_topics_after_the_overdraft_are_throttled(
    topics: Topics, registry: RegistryClient
) -> None:
    quota = quota_of(3)
    found = await create(topics, spec("a", 2), spec("b", 5), spec("c", 1), quota=quota)
    assert found == [TIMED_OUT, TIMED_OUT, THROTTLED]
    assert quota.throttle_ms() == 4000
    assert await registry.children("/brokers/topics") == ["a", "b"]


async def test_invalid_topics_cost_nothing(topics: Topics) -> None:
    quota = quota_of(1)
    found = await create(topics, spec("a", 0), spec("a/b", 50), spec("c"), quota=quota)
    assert found[2] is TIMED_OUT
    assert quota.bucket is not None
    assert quota.bucket.tokens == 0


async def test_validate_only_costs_nothing(topics: Topics) -> None:
    quota = quota_of(1)
    await create(topics, spec("a", 50), quota=quota, validate_only=True)
    assert quota.bucket is not None
    assert quota.bucket.tokens == 1


async def test_permissive_quota_creates_all_topics(topics: Topics) -> None:
    quota = quota_of(1, is_strict=False)
    found = await create(topics, spec("a", 5), spec("b", 5), quota=quota)
    assert found == [TIMED_OUT, TIMED_OUT]
    assert quota.throttle_ms() == 9000


async def expand(
    topics: Topics, quota: MutationQuota, *, validate_only: bool = False, **counts: int
) -> dict[str, ErrorCode]:
    increases = [CreatePartitionsTopic(name=name, count=each) for name, each in counts.items()]
    outcomes = await create_partitions(
        topics,
        increases,
        is_queued_for_deletion=lambda _: False,
        timeout_ms=0,
        validate_only=validate_only,
        quota=quota,
    )
    return codes(outcomes)


async def test_expansion_costs_the_added_partitions(topics: Topics) -> None:
    await create(topics, spec("a", 2), spec("b", 2))
    quota = quota_of(3)
    assert await expand(topics, quota, a=7) == {"a": TIMED_OUT}
    assert quota.bucket is not None
    assert quota.bucket.tokens == -2
    assert await expand(topics, quota, b=3) == {"b": THROTTLED}
    assert await expand(topics, quota, b=3, validate_only=True) == {"b": ErrorCode.NONE}
    assert await expand(topics, quota, b=1) == {"b": ErrorCode.INVALID_PARTITIONS}


async def test_deletion_costs_the_partitions_of_the_topic(
    topics: Topics, registry: RegistryClient
) -> None:
    await create(topics, spec("a", 4), spec("b", 1))
    announce(topics, "a", 4)
    announce(topics, "b", 1)
    quota = quota_of(3)
    outcomes = await delete_topics(topics, ["a", "b", "nobody"], timeout_ms=0, quota=quota)
    assert codes(outcomes) == {
        "a": TIMED_OUT,
        "b": THROTTLED,
        "nobody": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await registry.children("/admin/delete_topics") == ["a"]
