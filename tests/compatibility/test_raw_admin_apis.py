"""UpdateFeatures, DescribeTopicPartitions, DescribeProducers, AllocateProducerIds, and the APIs that are rejected."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from barnabas import LocalCluster
from barnabas.broker import init_producer_id
from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.model import ZERO_ID
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.describe_producers import (
    DescribedProducer,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)
from barnabas.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
    TopicCursor,
)
from barnabas.wire.messages.envelope import EnvelopeRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.metadata import TOPIC_OPERATIONS
from barnabas.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from barnabas.world.ports import RegistrySession, ZnodeStat
from support.waiting import eventually
from tests.compatibility.raw import TIMESTAMP, Raw, batch_of, wait_until_known
from tests.raw_connection import with_size

HEADER = struct.Struct(
    ">hhihb"
)  # api key, version, correlation id, null client id, no tagged fields
KRAFT_ONLY = [
    *range(ApiKey.VOTE, ApiKey.DESCRIBE_QUORUM + 1),
    *(ApiKey.FETCH_SNAPSHOT, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT),
    *(ApiKey.UNREGISTER_BROKER, ApiKey.CONTROLLER_REGISTRATION),
    *range(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.DESCRIBE_TOPIC_PARTITIONS),
    *range(ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY + 1),
]


def in_registry(cluster: LocalCluster, work: Callable[[RegistrySession], object]) -> object:
    """Run `work` in a registry session of its own."""
    registry, keeper = cluster.cluster.open_registry()

    async def run() -> object:
        session = await registry.connect(30_000)
        try:
            return await work(session)  # type: ignore[misc]
        finally:
            await session.close()

    return keeper.run(run())


def read_znode(cluster: LocalCluster, path: str) -> tuple[bytes, ZnodeStat]:
    return in_registry(cluster, lambda session: session.get(path))  # type: ignore[return-value]


def write_znode(cluster: LocalCluster, path: str, data: bytes) -> None:
    in_registry(cluster, lambda session: session.set(path, data))


@pytest.fixture(scope="module")
def three() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings={"controlled.shutdown.enable": False}) as running:
        yield running


@pytest.fixture
def controller(three: LocalCluster) -> Iterator[Raw]:
    assert three.controller_id is not None
    with Raw(three.brokers[three.controller_id].address) as raw:
        yield raw


@pytest.fixture
def other(three: LocalCluster) -> Iterator[Raw]:
    """A broker that is not the controller."""
    with Raw(three.brokers[other_than_controller(three)].address) as raw:
        yield raw


def other_than_controller(three: LocalCluster) -> int:
    return next(number for number in three.brokers if number != three.controller_id)


# ---- APIs without effect


@pytest.mark.parametrize("key", KRAFT_ONLY)
def test_api_of_kraft_closes_connection(raw: Raw, key: int) -> None:
    assert key not in APIS
    raw.send(with_size(HEADER.pack(key, 0, 1, -1, 0) + bytes(20)))
    assert raw.is_hung_up()


def test_envelope_closes_connection(raw: Raw) -> None:
    raw.begin(EnvelopeRequest(request_data=b"\0\3\0\0", client_host_address=b"\x7f\0\0\1"))
    assert raw.is_hung_up()


# ---- UpdateFeatures


def update_features(
    raw: Raw, *updates: FeatureUpdateKey, version: int = 1, validate_only: bool = False
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
    return raw.ask(request, UpdateFeaturesResponse, version)


@pytest.mark.parametrize("version", APIS[ApiKey.UPDATE_FEATURES].versions)
def test_unsupported_feature_cannot_be_finalized(raw: Raw, version: int) -> None:
    answer = update_features(raw, FeatureUpdateKey("metadata.version", 20), version=version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    (result,) = answer.results
    assert (result.feature, result.error_code) == ("metadata.version", ErrorCode.INVALID_REQUEST)
    assert result.error_message == "feature 'metadata.version' is not supported"


@pytest.mark.parametrize(
    ("update", "why"),
    [
        (FeatureUpdateKey("", 1), "name is empty"),
        (FeatureUpdateKey("f", 1, upgrade_type=0), "unknown upgrade type"),
        (FeatureUpdateKey("f", 0), "needs a downgrade type"),
        (FeatureUpdateKey("f", 0, upgrade_type=UpgradeType.SAFE_DOWNGRADE), "not finalized"),
        (FeatureUpdateKey("f", -9, upgrade_type=UpgradeType.UNSAFE_DOWNGRADE), "not finalized"),
    ],
)
def test_invalid_feature_update_names_the_reason(
    raw: Raw, update: FeatureUpdateKey, why: str
) -> None:
    (result,) = update_features(raw, update).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert why in (result.error_message or "")


def test_update_features_without_updates_has_no_results(raw: Raw) -> None:
    assert update_features(raw) == UpdateFeaturesResponse()


def features_epoch(raw: Raw) -> int:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    found = raw.ask(request, ApiVersionsResponse)
    assert not found.supported_features
    assert not found.finalized_features
    return found.finalized_features_epoch


def wait_for_epoch(raw: Raw, epoch: int) -> None:
    eventually(lambda: features_epoch(raw) == epoch, f"features epoch {epoch}")


def test_only_the_controller_updates_features(other: Raw) -> None:
    answer = update_features(other, FeatureUpdateKey("f", 1))
    assert (answer.error_code, answer.results) == (ErrorCode.NOT_CONTROLLER, ())


def test_finalized_feature_can_be_deleted(three: LocalCluster, controller: Raw, other: Raw) -> None:
    """Another program may have finalized it. Brokers do not report it, but follow its epoch."""
    _, before = read_znode(three, znodes.FEATURE)
    write_znode(three, znodes.FEATURE, znodes.encode_features({"f": 2, "g": 1}))
    for raw in (controller, other):
        wait_for_epoch(raw, before.version + 1)
    deletion = FeatureUpdateKey("f", 0, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
    (checked,) = update_features(controller, deletion, validate_only=True).results
    assert checked.error_code == ErrorCode.NONE
    assert read_znode(three, znodes.FEATURE)[1].version == before.version + 1
    results = update_features(controller, deletion, FeatureUpdateKey("g", 1)).results
    assert [(each.feature, each.error_code) for each in results] == [
        ("f", ErrorCode.NONE),
        ("g", ErrorCode.INVALID_REQUEST),
    ]
    data, _ = read_znode(three, znodes.FEATURE)
    assert data == znodes.encode_features({"g": 1})
    wait_for_epoch(other, before.version + 2)
    allowed = FeatureUpdateKey("g", 0, allow_downgrade=True)
    (result,) = update_features(controller, allowed, version=0).results
    assert result.error_code == ErrorCode.NONE
    assert read_znode(three, znodes.FEATURE)[0] == znodes.encode_features()


def test_invalid_feature_znode_fails_the_update(three: LocalCluster, controller: Raw) -> None:
    write_znode(three, znodes.FEATURE, b"garbage")
    try:
        (result,) = update_features(controller, FeatureUpdateKey("f", 1)).results
        assert result.error_code == ErrorCode.FEATURE_UPDATE_FAILED
    finally:
        write_znode(three, znodes.FEATURE, znodes.encode_features())


# ---- DescribeTopicPartitions


@pytest.fixture(scope="module")
def paged() -> Iterator[LocalCluster]:
    """Topics a, b and c with 1, 5 and 2 partitions. A response has at most 4 partitions."""
    settings = {"max.request.partition.size.limit": 4, "auto.create.topics.enable": False}
    with LocalCluster(settings=settings) as running:
        with Raw(running.bootstrap_servers) as raw:
            for name, partitions in (("b", 5), ("a", 1), ("c", 2)):
                raw.create_topic(name, partitions=partitions)
        yield running


@pytest.fixture
def pages(paged: LocalCluster) -> Iterator[Raw]:
    with Raw(paged.bootstrap_servers) as raw:
        yield raw


def describe(
    raw: Raw, *topics: str, limit: int = 2000, cursor: TopicCursor | None = None
) -> DescribeTopicPartitionsResponse:
    wanted = tuple(map(DescribeTopicPartitionsTopic, topics))
    request = DescribeTopicPartitionsRequest(
        topics=wanted, response_partition_limit=limit, cursor=cursor
    )
    return raw.ask(request, DescribeTopicPartitionsResponse)


def shown(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [
        (topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics
    ]


def test_all_topics_are_described_page_by_page(pages: Raw) -> None:
    first = describe(pages)
    assert shown(first) == [("a", [0]), ("b", [0, 1, 2])]
    assert first.next_cursor == TopicCursor("b", 3)
    second = describe(pages, cursor=first.next_cursor)
    assert shown(second) == [("b", [3, 4]), ("c", [0, 1])]
    assert second.next_cursor is None


def test_page_that_ends_with_a_topic_points_to_the_next_one(pages: Raw) -> None:
    answer = describe(pages, limit=1)
    assert shown(answer) == [("a", [0])]
    assert answer.next_cursor == TopicCursor("b", 0)


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
def test_limit_is_at_least_one_partition(pages: Raw, limit: int) -> None:
    assert shown(describe(pages, "b", limit=limit)) == [("b", [0])]


def test_requested_topics_are_sorted_and_described_once(pages: Raw) -> None:
    assert shown(describe(pages, "c", "a", "c")) == [("a", [0]), ("c", [0, 1])]


def test_cursor_may_name_a_missing_topic_or_partition(pages: Raw) -> None:
    assert shown(describe(pages, cursor=TopicCursor("bb", 1))) == [("c", [0, 1])]
    assert shown(describe(pages, cursor=TopicCursor("b", 99))) == [("b", []), ("c", [0, 1])]
    assert shown(describe(pages, cursor=TopicCursor("b", 2**31 - 1)))[0] == ("b", [])
    assert describe(pages, cursor=TopicCursor("zzz", 0)) == DescribeTopicPartitionsResponse()


@pytest.mark.parametrize("cursor", [TopicCursor("b", -1), TopicCursor("x", 0)])
def test_invalid_cursor_is_an_error_of_each_topic(pages: Raw, cursor: TopicCursor) -> None:
    answer = describe(pages, "b", "c", cursor=cursor)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("b", ErrorCode.INVALID_REQUEST),
        ("c", ErrorCode.INVALID_REQUEST),
    ]
    assert answer.next_cursor is None


def test_unknown_topics_are_errors_and_are_not_created(pages: Raw) -> None:
    answer = describe(pages, "nobody", "a/b", "", "__consumer_offsets")
    assert [(each.name, each.error_code, each.is_internal) for each in answer.topics] == [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        ("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ]
    assert [name for name, _ in shown(describe(pages, limit=2000))] == ["a", "b"]


def test_partition_has_leader_replicas_and_operations(
    three: LocalCluster, controller: Raw, other: Raw
) -> None:
    topic_id = controller.create_topic("described")
    wait_until_known([broker.address for broker in three.brokers.values()], "described")
    (topic,) = describe(other, "described").topics
    assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, topic_id, False)
    assert topic.topic_id != ZERO_ID
    assert topic.topic_authorized_operations == TOPIC_OPERATIONS
    (partition,) = topic.partitions
    assert partition.leader_id in three.brokers
    assert partition.replica_nodes == partition.isr_nodes == (partition.leader_id,)
    assert (partition.error_code, partition.leader_epoch, partition.offline_replicas) == (0, 0, ())
    assert partition.eligible_leader_replicas == partition.last_known_elr == ()


# ---- DescribeProducers


def producers_of(
    raw: Raw, topic: str, *partitions: int
) -> tuple[DescribeProducersPartitionResult, ...]:
    request = DescribeProducersRequest(topics=(DescribeProducersTopic(topic, partitions),))
    (found,) = raw.ask(request, DescribeProducersResponse).topics
    assert found.name == topic
    return found.partitions


def test_partition_without_producers_has_none(raw: Raw, topic: str) -> None:
    raw.produce(topic, batch_of(b"not idempotent"))
    assert producers_of(raw, topic, 0) == (DescribeProducersPartitionResult(0),)


def test_producer_is_described_by_its_last_batch(raw: Raw, topic: str) -> None:
    for sequence in (0, 2):
        batch = batch_of(b"a", b"b", producer_id=7001, producer_epoch=3, base_sequence=sequence)
        assert raw.produce(topic, batch).error_code == ErrorCode.NONE
    batch = batch_of(b"c", producer_id=7002, producer_epoch=0, base_sequence=0)
    assert raw.produce(topic, batch).error_code == ErrorCode.NONE
    (found,) = producers_of(raw, topic, 0)
    assert found.active_producers == (
        DescribedProducer(7001, 3, last_sequence=3, last_timestamp=TIMESTAMP),
        DescribedProducer(7002, 0, last_sequence=0, last_timestamp=TIMESTAMP),
    )


def test_repeated_partition_is_described_each_time(raw: Raw, topic: str) -> None:
    batch = batch_of(b"a", producer_id=7003, producer_epoch=0, base_sequence=0)
    raw.produce(topic, batch)
    found = producers_of(raw, topic, 0, 0)
    assert [len(each.active_producers) for each in found] == [1, 1]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_producers_of_a_missing_topic_are_an_error(raw: Raw, name: str, code: ErrorCode) -> None:
    (found,) = producers_of(raw, name, 0)
    assert found.error_code == code
    assert found.error_message


def test_producers_of_a_missing_partition_are_an_error(raw: Raw, topic: str) -> None:
    found = producers_of(raw, topic, 1, -1)
    assert [each.error_code for each in found] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def test_broker_without_replica_does_not_know_the_producers(
    three: LocalCluster, controller: Raw
) -> None:
    controller.create_topic("elsewhere")
    wait_until_known([broker.address for broker in three.brokers.values()], "elsewhere")
    (topic,) = describe(controller, "elsewhere").topics
    leader = topic.partitions[0].leader_id
    for number, broker in three.brokers.items():
        with Raw(broker.address) as raw:
            (found,) = producers_of(raw, "elsewhere", 0)
        expected = ErrorCode.NONE if number == leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert found.error_code == expected


def test_producers_of_an_offline_partition_are_a_storage_error(
    cluster: LocalCluster, raw: Raw, topic: str
) -> None:
    instance = cluster.brokers[1].instance
    assert instance is not None
    replicas = instance.broker.replicas
    assert replicas is not None
    partition = replicas.find(topic, 0)
    instance.thread.call(lambda: setattr(partition, "is_offline", True))
    try:
        (found,) = producers_of(raw, topic, 0)
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    finally:
        instance.thread.call(lambda: setattr(partition, "is_offline", False))


# ---- AllocateProducerIds


def allocate(raw: Raw, broker: int, epoch: int) -> AllocateProducerIdsResponse:
    request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
    return raw.ask(request, AllocateProducerIdsResponse)


def broker_epoch(three: LocalCluster, broker: int) -> int:
    return read_znode(three, znodes.broker_path(broker))[1].czxid


def block_of(three: LocalCluster) -> znodes.ProducerIdBlock:
    return znodes.decode_producer_id_block(read_znode(three, znodes.PRODUCER_ID_BLOCK)[0])


def test_controller_allocates_blocks_one_after_another(
    three: LocalCluster, controller: Raw
) -> None:
    number = other_than_controller(three)
    first, second = (allocate(controller, number, broker_epoch(three, number)) for _ in range(2))
    assert (first.error_code, first.producer_id_len) == (ErrorCode.NONE, 1000)
    assert second.producer_id_start == first.producer_id_start + 1000
    start = second.producer_id_start
    assert block_of(three) == znodes.ProducerIdBlock(
        broker=number,  # type: ignore[arg-type]
        start=start,
        end=start + 999,
    )


def test_allocation_is_rejected_unless_the_broker_is_registered(
    three: LocalCluster, controller: Raw, other: Raw
) -> None:
    assert allocate(controller, 99, 1).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert allocate(controller, -1, -1).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    for epoch in (-1, broker_epoch(three, 1) + 1):
        assert allocate(controller, 1, epoch).error_code == ErrorCode.STALE_BROKER_EPOCH
    rejected = allocate(other, 1, broker_epoch(three, 1))
    assert rejected.error_code == ErrorCode.NOT_CONTROLLER


def test_broker_requests_producer_ids_from_the_controller(
    three: LocalCluster, other: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise AssertionError("the broker reserves a block itself")

    monkeypatch.setattr(init_producer_id, "reserve_block", fail)
    found = other.ask(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        InitProducerIdResponse,
    )
    assert found.error_code == ErrorCode.NONE
    block = block_of(three)
    assert block.broker == other_than_controller(three)
    assert block.start <= found.producer_id <= block.end


def test_used_up_producer_ids_are_an_error(three: LocalCluster, controller: Raw) -> None:
    before, _ = read_znode(three, znodes.PRODUCER_ID_BLOCK)
    last = znodes.ProducerIdBlock(
        broker=1,  # type: ignore[arg-type]
        start=2**63 - 1000,
        end=2**63 - 1,
    )
    write_znode(three, znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(last))
    try:
        found = allocate(controller, 1, broker_epoch(three, 1))
        assert found.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    finally:
        write_znode(three, znodes.PRODUCER_ID_BLOCK, before)
