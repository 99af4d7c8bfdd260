"""Every znode of a cluster: where it is, what its bytes are, what they mean. Pure.

The layout is that of Kafka in ZooKeeper mode, so Kafka's own tools read what Barnabas writes and the other way
round. Writers produce the current version of each format, compact and with the keys in the order documented
for it; readers take keys in any order and every older version that can still be met:

    broker   v1 host and port only, v2 endpoints, v3 rack, v4 protocols of the listeners, v5 features
    topic    v1 partitions, v2 replicas being added and removed, v3 topic id

Bytes that cannot be understood raise RegistryError with the path they were read from.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from msgspec import Struct

from barnabas.errors import RegistryError
from barnabas.model import (
    Broker,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    TopicPartition,
    ZnodeVersion,
)

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
BROKER_SEQID = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
ADMIN = "/admin"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
CONSUMERS = "/consumers"

CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY = "<default>"

# Created by every broker before anything else, "exists already" being fine. Parents stand before their children.
PERSISTENT_PATHS: tuple[str, ...] = (
    CONSUMERS,
    BROKERS,
    BROKER_IDS,
    TOPICS,
    CONFIG,
    CONFIG_CHANGES,
    ADMIN,
    DELETE_TOPICS,
    BROKER_SEQID,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{entity_type}" for entity_type in CONFIG_TYPES),
)

NO_KRAFT_EPOCH = -1
LOG_DIR_FAILURE = 1
PLAINTEXT = "PLAINTEXT"

# What a request to a broker can carry. A number beyond it could be read, and then never be told to anybody.
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
PORT_MAX = 65_535


# ---- paths ------------------------------------------------------------------------------------------------


def broker_path(broker: int) -> str:
    return f"{BROKER_IDS}/{broker}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def state_path(partition: TopicPartition) -> str:
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}/state"


def config_path(entity_type: str, entity: str) -> str:
    """`config_path("topics", "orders")`; `config_path("brokers", DEFAULT_ENTITY)` for all brokers."""
    return f"{CONFIG}/{entity_type}/{entity}"


def topic_config_path(topic: str) -> str:
    return config_path("topics", topic)


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


# ---- controller and cluster -------------------------------------------------------------------------------


def encode_controller(broker: int, *, timestamp_ms: int) -> bytes:
    return encode(
        {
            "version": 2,
            "brokerid": broker,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": NO_KRAFT_EPOCH,
        }
    )


def decode_controller(data: bytes) -> BrokerId:
    return BrokerId(integer(CONTROLLER, decode(CONTROLLER, data), "brokerid"))


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> ControllerEpoch:
    try:
        return ControllerEpoch(int(data))
    except ValueError as error:
        raise RegistryError(CONTROLLER_EPOCH, f"not a number: {data!r}") from error


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return text(CLUSTER_ID, decode(CLUSTER_ID, data), "id")


# ---- brokers ----------------------------------------------------------------------------------------------


def encode_broker(
    broker: Broker, *, timestamp_ms: int, protocols: Mapping[str, str] | None = None
) -> bytes:
    """`protocols` gives the security protocol of each listener; one that is not named speaks PLAINTEXT.

    `host` and `port` are for readers that know no endpoints: the first PLAINTEXT one, or null and -1.
    """
    spoken = {
        endpoint.listener: (protocols or {}).get(endpoint.listener, PLAINTEXT)
        for endpoint in broker.endpoints
    }
    plain = [endpoint for endpoint in broker.endpoints if spoken[endpoint.listener] == PLAINTEXT]
    content: dict[str, object] = {
        "version": 5,
        "host": plain[0].host if plain else None,
        "port": plain[0].port if plain else -1,
        "jmx_port": -1,
        "timestamp": str(timestamp_ms),
        "endpoints": [
            f"{endpoint.listener}://{bracketed(endpoint.host)}:{endpoint.port}"
            for endpoint in broker.endpoints
        ],
        "listener_security_protocol_map": spoken,
    }
    if broker.rack is not None:
        content["rack"] = broker.rack
    content["features"] = {}
    return encode(content)


def decode_broker(broker: int, data: bytes) -> Broker:
    path = broker_path(broker)
    content = decode(path, data)
    version = integer(path, content, "version")
    if version < 1:
        raise RegistryError(path, f"version {version} of a registration is not known")
    rack = content.get("rack")
    if version == 1:
        host, port = text(path, content, "host"), integer(path, content, "port")
        endpoints = [Endpoint(listener=PLAINTEXT, host=host, port=port)]
    else:
        endpoints = [parse_endpoint(path, url) for url in items(path, content, "endpoints")]
    if not endpoints:
        raise RegistryError(path, f"no endpoint in {content}")
    if max(endpoint.port for endpoint in endpoints) > PORT_MAX or not 0 <= broker <= INT32_MAX:
        raise RegistryError(path, f"a number out of range in {content}")
    return Broker(
        id=BrokerId(broker),
        endpoints=tuple(endpoints),
        rack=None if rack is None else str(rack),
    )


def parse_endpoint(path: str, url: object) -> Endpoint:
    parts = re.fullmatch(r"([^:/]+)://(?:\[(.*)\]|([^\[\]]*)):(\d+)", str(url))
    if parts is None:
        raise RegistryError(path, f"not an endpoint: {url!r}")
    listener, bracketed_host, host, port = parts.groups()
    return Endpoint(listener=listener, host=bracketed_host or host or "", port=int(port))


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# ---- topics and partitions --------------------------------------------------------------------------------


class ReplicaAssignment(Struct, frozen=True, kw_only=True):
    """The replicas of one partition, preferred leader first, and who of them is coming or going."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


class TopicAssignment(Struct, frozen=True, kw_only=True):
    """What `/brokers/topics/<t>` holds. Old topics have no id."""

    topic_id: UUID | None
    partitions: Mapping[int, ReplicaAssignment]


def encode_topic(topic: TopicAssignment) -> bytes:
    partitions = sorted(topic.partitions.items())
    content: dict[str, object] = {"version": 3}
    if topic.topic_id is not None:
        content["topic_id"] = encode_uuid(topic.topic_id)
    content["partitions"] = {str(number): list(held.replicas) for number, held in partitions}
    content["adding_replicas"] = {
        str(n): list(held.adding) for n, held in partitions if held.adding
    }
    content["removing_replicas"] = {
        str(n): list(held.removing) for n, held in partitions if held.removing
    }
    return encode(content)


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    path = topic_path(topic)
    content = decode(path, data)
    replicas = numbered(path, content, "partitions")
    adding = numbered(path, content, "adding_replicas")
    removing = numbered(path, content, "removing_replicas")
    topic_id = content.get("topic_id")
    for number, held in replicas.items():
        if not held or len(set(held)) < len(held):
            raise RegistryError(path, f"partition {number} cannot have the replicas {list(held)}")
    # Thousands of partitions share a handful of assignments.
    shared: dict[ReplicaAssignment, ReplicaAssignment] = {}
    partitions: dict[int, ReplicaAssignment] = {}
    for number in sorted(replicas):
        held_by = ReplicaAssignment(
            replicas=replicas[number],
            adding=adding.get(number, ()),
            removing=removing.get(number, ()),
        )
        partitions[number] = shared.setdefault(held_by, held_by)
    return TopicAssignment(
        topic_id=None if topic_id is None else decode_uuid(path, str(topic_id)),
        partitions=partitions,
    )


def encode_state(state: LeaderAndIsr) -> bytes:
    """By hand: a controller may have ten thousand to write before anybody is served."""
    recovering = ',"leader_recovery_state":1' if state.recovering else ""
    return (
        f'{{"version":1,"leader":{state.leader},"leader_epoch":{state.leader_epoch},'
        f'"controller_epoch":{state.controller_epoch},"isr":[{",".join(map(str, state.isr))}]'
        f"{recovering}}}"
    ).encode()


NUMBER = r"(?:0|[1-9]\d{0,8})"
STATE = re.compile(
    rf'{{"version":1,"leader":(-1|{NUMBER}),"leader_epoch":({NUMBER}),'
    rf'"controller_epoch":({NUMBER}),"isr":\[({NUMBER}(?:,{NUMBER})*)\]}}'.encode()
)
"""As `encode_state` writes it, and nobody else has to."""


@lru_cache(maxsize=4096)
def decode_our_state(data: bytes, version: int) -> LeaderAndIsr | None:
    """Ten thousand partitions have a few hundred states among them, and share them. None: look closer."""
    found = STATE.fullmatch(data)
    if found is None:
        return None
    leader, leader_epoch, controller_epoch, isr = found.groups()
    return LeaderAndIsr(
        leader=BrokerId(int(leader)),
        isr=tuple(BrokerId(int(broker)) for broker in isr.split(b",")),
        leader_epoch=LeaderEpoch(int(leader_epoch)),
        controller_epoch=ControllerEpoch(int(controller_epoch)),
        partition_epoch=ZnodeVersion(version),
    )


def decode_state(partition: TopicPartition, data: bytes, *, version: int) -> LeaderAndIsr:
    """`version` is the data version of the znode: the partition epoch."""
    ours = decode_our_state(data, version)
    if ours is not None:
        return ours
    path = state_path(partition)
    content = decode(path, data)
    return LeaderAndIsr(
        leader=BrokerId(integer(path, content, "leader")),
        isr=tuple(brokers(path, items(path, content, "isr"))),
        leader_epoch=LeaderEpoch(integer(path, content, "leader_epoch")),
        controller_epoch=ControllerEpoch(integer(path, content, "controller_epoch")),
        partition_epoch=ZnodeVersion(version),
        recovering=content.get("leader_recovery_state", 0) == 1,
    )


def encode_uuid(value: UUID) -> str:
    """Kafka's form of a topic id: 22 characters of base64url."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(path: str, written: str) -> UUID:
    try:
        return UUID(bytes=base64.b64decode(written + "==", altchars=b"-_", validate=True))
    except ValueError as error:
        raise RegistryError(path, f"not a topic id: {written!r}") from error


# ---- configs ----------------------------------------------------------------------------------------------


def encode_config(config: Mapping[str, str]) -> bytes:
    return encode({"version": 1, "config": dict(sorted(config.items()))})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Empty for a node without content, as tools leave behind."""
    config = decode(path, data).get("config", {}) if data else {}
    if not isinstance(config, dict):
        raise RegistryError(path, '"config" is not an object')
    return {str(key): str(value) for key, value in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    """`entity_path` is like `topics/orders`."""
    return encode({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    """(entity type, entity): ("topics", "orders")."""
    content = decode(path, data)
    if integer(path, content, "version") == 1:
        return text(path, content, "entity_type"), text(path, content, "entity_name")
    entity_type, slash, entity = text(path, content, "entity_path").partition("/")
    if not slash:
        raise RegistryError(path, "the entity path names no entity")
    return entity_type, entity


# ---- requests and notices left for the controller ---------------------------------------------------------


def encode_partitions(partitions: Sequence[TopicPartition]) -> bytes:
    """The content of a preferred election and of a notice of ISR changes."""
    listed = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return encode({"version": 1, "partitions": listed})


def decode_partitions(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    return tuple(
        partition_in(path, listed) for listed in items(path, decode(path, data), "partitions")
    )


def encode_reassignment(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    listed = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(replicas)}
        for each, replicas in targets.items()
    ]
    return encode({"version": 1, "partitions": listed})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    path = REASSIGN_PARTITIONS
    return {
        partition_in(path, listed): tuple(brokers(path, items(path, listed, "replicas")))
        for listed in items(path, decode(path, data), "partitions")
    }


def encode_log_dir_event(broker: int) -> bytes:
    return encode({"version": 1, "broker": broker, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: bytes) -> BrokerId:
    return BrokerId(integer(path, decode(path, data), "broker"))


def sequence_of(path_or_name: str) -> int:
    """The number ZooKeeper put behind a sequential node."""
    return int(path_or_name[-10:])


# ---- producer ids and features ----------------------------------------------------------------------------


class ProducerIdBlock(Struct, frozen=True, kw_only=True):
    """Producer ids from `start` to `end`, both included, belong to `broker` to hand out."""

    broker: BrokerId
    start: int
    end: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return encode(
        {
            "version": 1,
            "broker": block.broker,
            "block_start": str(block.start),
            "block_end": str(block.end),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    path = PRODUCER_ID_BLOCK
    content = decode(path, data)
    return ProducerIdBlock(
        broker=BrokerId(integer(path, content, "broker")),
        start=integer(path, content, "block_start", at_most=INT64_MAX),
        end=integer(path, content, "block_end", at_most=INT64_MAX),
    )


def encode_features(features: Mapping[str, int]) -> bytes:
    """Finalized features with their version levels; the status says that versioning is on."""
    levels = {name: {"max_version_level": level} for name, level in sorted(features.items())}
    return encode({"version": 2, "status": 1, "features": levels})


def decode_features(data: bytes) -> dict[str, int]:
    features = decode(FEATURE, data).get("features", {})
    if not isinstance(features, dict):
        raise RegistryError(FEATURE, '"features" is not an object')
    return {
        str(name): integer(FEATURE, levels, "max_version_level")
        for name, levels in features.items()
    }


# ---- JSON -------------------------------------------------------------------------------------------------

Content = dict[str, Any]


def encode(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def decode(path: str, data: bytes) -> Content:
    try:
        content = json.loads(data)
        if b"\\u" in data:
            json.dumps(content, ensure_ascii=False).encode()  # half a character has no bytes
    except (ValueError, RecursionError) as error:
        raise RegistryError(path, f"not JSON: {data[:80]!r}") from error
    if not isinstance(content, dict):
        raise RegistryError(path, f"not a JSON object: {data[:80]!r}")
    return content


def integer(path: str, content: Any, key: str, *, at_most: int = INT32_MAX) -> int:
    try:
        number = int(content[key])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RegistryError(path, f'"{key}" is not a number in {content}') from error
    if abs(number) > at_most:
        raise RegistryError(path, f'"{key}" is out of range in {content}')
    return number


def text(path: str, content: Content, key: str) -> str:
    value = content.get(key)
    if not isinstance(value, str):
        raise RegistryError(path, f'"{key}" is not a string in {content}')
    return value


def items(path: str, content: Content, key: str) -> list[Any]:
    value = content.get(key)
    if not isinstance(value, list):
        raise RegistryError(path, f'"{key}" is not a list in {content}')
    return value


def brokers(path: str, values: Sequence[object]) -> list[BrokerId]:
    if not all(isinstance(value, int) and 0 <= value <= INT32_MAX for value in values):
        raise RegistryError(path, f"not broker ids: {values}")
    return [BrokerId(value) for value in values if isinstance(value, int)]


def numbered(path: str, content: Content, key: str) -> dict[int, tuple[BrokerId, ...]]:
    """`{"0":[1,2]}` as partition → brokers; empty where an older version lacks the key."""
    try:
        found = {
            int(number): tuple(brokers(path, replicas))
            for number, replicas in content.get(key, {}).items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise RegistryError(path, f'"{key}" is not a map of replicas in {content}') from error
    if not all(0 <= number <= INT32_MAX for number in found):
        raise RegistryError(path, f"partitions cannot have the numbers {sorted(found)}")
    return found


def partition_in(path: str, content: object) -> TopicPartition:
    if not isinstance(content, dict):
        raise RegistryError(path, f"not a partition: {content!r}")
    return TopicPartition(text(path, content, "topic"), integer(path, content, "partition"))
