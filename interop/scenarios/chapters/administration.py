"""UpdateFeatures, DescribeProducers, AllocateProducerIds, the new group protocol, and APIs that only KRaft serves."""

from __future__ import annotations

import struct

from barnabas.wire.apis import ApiKey, api_name
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from barnabas.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from barnabas.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
    TopicCursor,
)
from barnabas.wire.messages.envelope import EnvelopeRequest
from barnabas.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpgradeType,
)
from interop.scenarios.requests import ask, create, new_topic, numbered, produce
from interop.scenarios.step import SendBytes, Step
from tests.raw_connection import with_size

UPGRADE, SAFE, UNSAFE = UpgradeType
HEADER = struct.Struct(
    ">hhihb"
)  # api key, version, correlation id, null client id, no tagged fields
KRAFT_ONLY = (
    *range(ApiKey.VOTE, ApiKey.DESCRIBE_QUORUM + 1),
    *(ApiKey.FETCH_SNAPSHOT, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT),
    *(ApiKey.UNREGISTER_BROKER, ApiKey.CONTROLLER_REGISTRATION),
    *range(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.DESCRIBE_TOPIC_PARTITIONS),
    *range(ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY + 1),
)


def update(*updates: FeatureUpdateKey, validate_only: bool = False) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)


def level(name: str, number: int, kind: int = UPGRADE) -> FeatureUpdateKey:
    return FeatureUpdateKey(name, number, upgrade_type=kind)


FEATURES = {
    "an unknown feature": update(level("no.such.feature", 1)),
    "a feature of KRaft": update(level("metadata.version", 20)),
    "an empty name": update(level("", 1)),
    "an empty name to be deleted": update(level("", 0, SAFE)),
    "a safe downgrade": update(level("metadata.version", 1, SAFE)),
    "an unsafe downgrade": update(level("metadata.version", 1, UNSAFE)),
    "a safe deletion": update(level("metadata.version", 0, SAFE)),
    "an unsafe deletion": update(level("metadata.version", 0, UNSAFE)),
    "a deletion by upgrade": update(level("metadata.version", 0)),
    "a negative level": update(level("metadata.version", -1)),
    "a negative level to be deleted": update(level("metadata.version", -32768, SAFE)),
    "the largest level": update(level("metadata.version", 32767)),
    "upgrade type 0": update(level("metadata.version", 1, 0)),
    "upgrade type 4": update(level("metadata.version", 1, 4)),
    "upgrade type -1": update(level("metadata.version", 1, -1)),
    "two features": update(level("a", 1), level("b", 0, SAFE)),
    "validate only": update(level("a", 1), validate_only=True),
    "nothing": update(),
}
OLD_FEATURES = {
    "an upgrade": update(FeatureUpdateKey("metadata.version", 3)),
    "a downgrade": update(FeatureUpdateKey("metadata.version", 3, allow_downgrade=True)),
    "a deletion": update(FeatureUpdateKey("metadata.version", 0, allow_downgrade=True)),
    "a deletion that is not allowed": update(FeatureUpdateKey("metadata.version", 0)),
}


def producers(topic: str, *partitions: int) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=(DescribeProducersTopic(topic, partitions),))


def heartbeat(**fields: object) -> ConsumerGroupHeartbeatRequest:
    given: dict[str, object] = {"group_id": "new", "member_id": "", "member_epoch": 0}
    return ConsumerGroupHeartbeatRequest(**(given | fields))  # type: ignore[arg-type]


HEARTBEATS = {
    "join": heartbeat(subscribed_topic_names=("known",), topic_partitions=()),
    "leave": heartbeat(member_id="m", member_epoch=-1),
    "an empty group": heartbeat(group_id=""),
    "everything": heartbeat(
        instance_id="i",
        rack_id="r",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=("known", "known"),
        server_assignor="uniform",
    ),
}


def described(
    *topics: str, cursor: TopicCursor | None = None, limit: int = 2000
) -> DescribeTopicPartitionsRequest:
    wanted = tuple(map(DescribeTopicPartitionsTopic, topics))
    return DescribeTopicPartitionsRequest(
        topics=wanted, cursor=cursor, response_partition_limit=limit
    )


STEPS: tuple[Step, ...] = (
    *(ask(f"features: {what}", request) for what, request in FEATURES.items()),
    *(ask(f"features: version 0, {what}", request, 0) for what, request in OLD_FEATURES.items()),
    ask("producers: a topic for them", create(new_topic("produced", 2))),
    ask("producers: none yet", producers("produced", 0, 1)),
    ask("producers: a first batch", produce("produced", numbered(4711, 0, 0))),
    ask("producers: of one batch", producers("produced", 0)),
    ask("producers: more batches", produce("produced", numbered(4711, 0, 1, 5))),
    ask("producers: of more batches", producers("produced", 0)),
    ask("producers: a new epoch", produce("produced", numbered(4711, 2, 0, 2))),
    ask("producers: of a new epoch", producers("produced", 0)),
    ask("producers: a second producer", produce("produced", numbered(4712, 7, 9))),
    ask("producers: two", producers("produced", 0)),
    ask("producers: one partition twice", producers("produced", 0, 0)),
    ask("producers: all partitions", producers("produced", 0, 1)),
    ask("producers: an unknown partition", producers("produced", 2)),
    ask("producers: a negative partition", producers("produced", -1)),
    ask("producers: no partition", producers("produced")),
    ask("producers: an unknown topic", producers("nobody", 0, 1)),
    ask("producers: a bad name", producers("a/b", 0)),
    ask("producers: an empty name", producers("", 0)),
    ask("producers: nothing", DescribeProducersRequest(topics=())),
    ask(
        "producers: good and bad in one",
        DescribeProducersRequest(
            topics=(
                DescribeProducersTopic("produced", (0, 5)),
                DescribeProducersTopic("nobody", (0,)),
            )
        ),
    ),
    *(
        ask(
            f"allocate producer ids: broker {broker}, epoch {epoch}",
            AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch),
        )
        for broker, epoch in ((1, -1), (1, 0), (1, 2**63 - 1), (99, 1), (-1, -1))
    ),
    *(ask(f"new groups: {what}", request) for what, request in HEARTBEATS.items()),
    ask(
        "new groups: owned partitions",
        lambda context: heartbeat(
            topic_partitions=(HeartbeatTopicPartitions(context.topic_id("produced"), (0, 1)),)
        ),
    ),
    ask("new groups: describe one", ConsumerGroupDescribeRequest(group_ids=("new",))),
    ask("new groups: describe several", ConsumerGroupDescribeRequest(group_ids=("a", "b", ""))),
    ask("new groups: describe none", ConsumerGroupDescribeRequest(group_ids=())),
    ask(
        "new groups: describe with operations",
        ConsumerGroupDescribeRequest(group_ids=("new",), include_authorized_operations=True),
    ),
    ask(
        "envelope: a request in it",
        EnvelopeRequest(
            request_data=b"\0\3\0\0\0\0\0\1\xff\xff", client_host_address=b"\x7f\0\0\1"
        ),
    ),
    ask("describe topic partitions: one topic", described("produced")),
    ask("describe topic partitions: a cursor", described(cursor=TopicCursor("produced", 1))),
    *(
        Step(
            name=f"kraft only: {api_name(key)}",
            action=SendBytes(data=with_size(HEADER.pack(key, 0, 1, -1, 0) + bytes(20))),
        )
        for key in KRAFT_ONLY
    ),
)
AFTER_RESTART: tuple[Step, ...] = (
    ask("restarted: producers", producers("produced", 0)),
    ask("restarted: features", update(level("metadata.version", 20))),
)
