"""Paths and formats of all znodes. No access to the registry.

The layout is that of Kafka in ZooKeeper mode. Kafka's tools can read what Barnabas writes, and vice versa. Encoders
write the current version of each format, as compact JSON with keys in the documented order. Decoders accept keys in any
order and these older versions:

    broker   v1 host and port only, v2 endpoints, v3 rack, v4 security protocols of listeners, v5 features
    topic    v1 partitions, v2 replicas being added and removed, v3 topic id

Decoders raise RegistryError, with the path of the znode, for invalid data.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote_plus
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
    SecurityProtocol,
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
CONFIG_USERS = "/config/users"
CONFIG_CLIENTS = "/config/clients"
CONFIG_IPS = "/config/ips"
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

# Every broker creates these paths at startup. Parents come before their children.
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

# The limits of the wire protocol. Larger numbers could not be sent to brokers.
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
    """Examples: `config_path("topics", "orders")`; `config_path("brokers", DEFAULT_ENTITY)` for all brokers."""
    return f"{CONFIG}/{entity_type}/{entity}"


def sanitise(name: str | None) -> str:
    """Return the name of a user or client in a path. None is the default of all users or clients.

    >>> sanitise("CN=a b*~"), sanitise(None)
    ('CN%3Da%20b%2A%7E', '<default>')
    """
    return DEFAULT_ENTITY if name is None else quote(name, safe="").replace("~", "%7E")


def desanitise(name: str) -> str | None:
    """
    >>> desanitise("CN%3Da%20b%2A%7E"), desanitise("<default>")
    ('CN=a b*~', None)
    """
    return None if name == DEFAULT_ENTITY else unquote_plus(name)


def topic_config_path(topic: str) -> str:
    return config_path("topics", topic)


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


# ---- controller and cluster -------------------------------------------------------------------------------


def encode_controller(broker: int, *, timestamp_ms: int) -> bytes:
    return encode_json(
        {
            "version": 2,
            "brokerid": broker,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": NO_KRAFT_EPOCH,
        }
    )


def decode_controller(data: bytes) -> BrokerId:
    return BrokerId(get_integer(CONTROLLER, decode_json(CONTROLLER, data), "brokerid"))


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> ControllerEpoch:
    try:
        return ControllerEpoch(int(data))
    except ValueError as error:
        raise RegistryError(CONTROLLER_EPOCH, f"not a number: {data!r}") from error


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return get_string(CLUSTER_ID, decode_json(CLUSTER_ID, data), "id")


# ---- brokers ----------------------------------------------------------------------------------------------


def encode_broker(broker: Broker, *, timestamp_ms: int) -> bytes:
    """Encode a registration. `host` and `port` are for readers of version 1."""
    content: dict[str, object] = {
        "version": 5,
        "host": broker.endpoints[0].host,
        "port": broker.endpoints[0].port,
        "jmx_port": -1,
        "timestamp": str(timestamp_ms),
        "endpoints": [f"{endpoint.listener}://{endpoint.address}" for endpoint in broker.endpoints],
        "listener_security_protocol_map": {
            endpoint.listener: endpoint.protocol.name for endpoint in broker.endpoints
        },
    }
    if broker.rack is not None:
        content["rack"] = broker.rack
    content["features"] = {}
    return encode_json(content)


def decode_broker(broker: int, data: bytes) -> Broker:
    path = broker_path(broker)
    content = decode_json(path, data)
    version = get_integer(path, content, "version")
    if version < 1:
        raise RegistryError(path, f"unknown version {version} of a broker registration")
    rack = content.get("rack")
    if version == 1:
        host, port = get_string(path, content, "host"), get_integer(path, content, "port")
        endpoints = [Endpoint(listener=PLAINTEXT, host=host, port=port)]
    else:
        protocols = content.get("listener_security_protocol_map")
        endpoints = [
            parse_endpoint_url(path, url, protocols if isinstance(protocols, dict) else {})
            for url in get_list(path, content, "endpoints")
        ]
    if not endpoints:
        raise RegistryError(path, f"no endpoint in {content}")
    if max(endpoint.port for endpoint in endpoints) > PORT_MAX or not 0 <= broker <= INT32_MAX:
        raise RegistryError(path, f"port or broker id out of range in {content}")
    return Broker(
        id=BrokerId(broker), endpoints=tuple(endpoints), rack=None if rack is None else str(rack)
    )


def parse_endpoint_url(path: str, url: object, protocols: Mapping[str, object]) -> Endpoint:
    """Parse `NAME://host:port`. Before version 4 of the znode, the name is that of the security protocol."""
    parts = re.fullmatch(r"([^:/]+)://(?:\[(.*)\]|([^\[\]]*)):(\d+)", str(url))
    if parts is None:
        raise RegistryError(path, f"invalid endpoint: {url!r}")
    listener, bracketed_host, host, port = parts.groups()
    protocol = str(protocols.get(listener, listener))
    if protocol not in SecurityProtocol.__members__:
        raise RegistryError(path, f"unknown security protocol of listener {listener}: {protocol!r}")
    return Endpoint(
        listener=listener,
        host=bracketed_host or host or "",
        port=int(port),
        protocol=SecurityProtocol[protocol],
    )


# ---- topics and partitions --------------------------------------------------------------------------------


class ReplicaAssignment(Struct, frozen=True, kw_only=True):
    """The replicas of one partition, preferred leader first, and those that a reassignment adds or removes."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


class TopicAssignment(Struct, frozen=True, kw_only=True):
    """Content of `/brokers/topics/<topic>`. Old topics have no topic id."""

    topic_id: UUID | None
    partitions: Mapping[int, ReplicaAssignment]


def encode_topic(topic: TopicAssignment) -> bytes:
    partitions = sorted(topic.partitions.items())
    content: dict[str, object] = {"version": 3}
    if topic.topic_id is not None:
        content["topic_id"] = encode_uuid(topic.topic_id)
    content["partitions"] = {str(number): list(each.replicas) for number, each in partitions}
    content["adding_replicas"] = {
        str(number): list(each.adding) for number, each in partitions if each.adding
    }
    content["removing_replicas"] = {
        str(number): list(each.removing) for number, each in partitions if each.removing
    }
    return encode_json(content)


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    path = topic_path(topic)
    content = decode_json(path, data)
    replicas = get_replica_lists(path, content, "partitions")
    adding = get_replica_lists(path, content, "adding_replicas")
    removing = get_replica_lists(path, content, "removing_replicas")
    topic_id = content.get("topic_id")
    for number, brokers in replicas.items():
        if not brokers or len(set(brokers)) < len(brokers):
            raise RegistryError(path, f"invalid replicas of partition {number}: {list(brokers)}")
    # Thousands of partitions have the same few assignments, and share them.
    shared: dict[ReplicaAssignment, ReplicaAssignment] = {}
    partitions: dict[int, ReplicaAssignment] = {}
    for number in sorted(replicas):
        assignment = ReplicaAssignment(
            replicas=replicas[number],
            adding=adding.get(number, ()),
            removing=removing.get(number, ()),
        )
        partitions[number] = shared.setdefault(assignment, assignment)
    return TopicAssignment(
        topic_id=None if topic_id is None else decode_uuid(path, str(topic_id)),
        partitions=partitions,
    )


def encode_state(state: LeaderAndIsr) -> bytes:
    """Encode a state. Without a JSON encoder, for speed: a new controller may write ten thousand states."""
    recovering = ',"leader_recovery_state":1' if state.recovering else ""
    return (
        f'{{"version":1,"leader":{state.leader},"leader_epoch":{state.leader_epoch},'
        f'"controller_epoch":{state.controller_epoch},"isr":[{",".join(map(str, state.isr))}]'
        f"{recovering}}}"
    ).encode()


NUMBER = r"(?:0|[1-9]\d{0,8})"
PLAIN_STATE = re.compile(
    rf'{{"version":1,"leader":(-1|{NUMBER}),"leader_epoch":({NUMBER}),'
    rf'"controller_epoch":({NUMBER}),"isr":\[({NUMBER}(?:,{NUMBER})*)\]}}'.encode()
)
"""A state as `encode_state` writes it, without a recovery state. Other writers may format it differently."""


@lru_cache(maxsize=4096)
def decode_plain_state(data: bytes, version: int) -> LeaderAndIsr | None:
    """Decode a state in the format of `encode_state`, or return None. Cached: partitions share a few hundred states."""
    match = PLAIN_STATE.fullmatch(data)
    if match is None:
        return None
    leader, leader_epoch, controller_epoch, isr = match.groups()
    return LeaderAndIsr(
        leader=BrokerId(int(leader)),
        isr=tuple(BrokerId(int(broker)) for broker in isr.split(b",")),
        leader_epoch=LeaderEpoch(int(leader_epoch)),
        controller_epoch=ControllerEpoch(int(controller_epoch)),
        partition_epoch=ZnodeVersion(version),
    )


def decode_state(partition: TopicPartition, data: bytes, *, version: int) -> LeaderAndIsr:
    """Decode a state. `version` is the data version of the znode, which is the partition epoch."""
    state = decode_plain_state(data, version)
    if state is not None:
        return state
    path = state_path(partition)
    content = decode_json(path, data)
    return LeaderAndIsr(
        leader=BrokerId(get_integer(path, content, "leader")),
        isr=tuple(parse_broker_ids(path, get_list(path, content, "isr"))),
        leader_epoch=LeaderEpoch(get_integer(path, content, "leader_epoch")),
        controller_epoch=ControllerEpoch(get_integer(path, content, "controller_epoch")),
        partition_epoch=ZnodeVersion(version),
        recovering=content.get("leader_recovery_state", 0) == 1,
    )


def encode_uuid(value: UUID) -> str:
    """Encode a topic id as Kafka does: 22 characters of base64url."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(path: str, encoded: str) -> UUID:
    try:
        return UUID(bytes=base64.b64decode(encoded + "==", altchars=b"-_", validate=True))
    except ValueError as error:
        raise RegistryError(path, f"invalid topic id: {encoded!r}") from error


# ---- configs ----------------------------------------------------------------------------------------------


def encode_config(config: Mapping[str, str]) -> bytes:
    return encode_json({"version": 1, "config": dict(sorted(config.items()))})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Decode the config of an entity. Returns {} for a znode without data."""
    config = decode_json(path, data).get("config", {}) if data else {}
    if not isinstance(config, dict):
        raise RegistryError(path, '"config" is not an object')
    return {str(key): str(value) for key, value in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    """Encode a notification of a config change. `entity_path` is like `topics/orders`."""
    return encode_json({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    """Return (entity type, entity), such as ("topics", "orders")."""
    content = decode_json(path, data)
    if get_integer(path, content, "version") == 1:
        return get_string(path, content, "entity_type"), get_string(path, content, "entity_name")
    entity_type, slash, entity = get_string(path, content, "entity_path").partition("/")
    if not slash:
        raise RegistryError(path, "entity_path has no entity")
    return entity_type, entity


# ---- requests and notifications for the controller --------------------------------------------------------


def encode_partitions(partitions: Sequence[TopicPartition]) -> bytes:
    """Encode a preferred election request, or a notification of ISR changes."""
    entries = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return encode_json({"version": 1, "partitions": entries})


def decode_partitions(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    return tuple(
        parse_partition(path, entry)
        for entry in get_list(path, decode_json(path, data), "partitions")
    )


def encode_reassignment(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    entries = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(replicas)}
        for each, replicas in targets.items()
    ]
    return encode_json({"version": 1, "partitions": entries})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    path = REASSIGN_PARTITIONS
    return {
        parse_partition(path, entry): tuple(
            parse_broker_ids(path, get_list(path, entry, "replicas"))
        )
        for entry in get_list(path, decode_json(path, data), "partitions")
    }


def encode_log_dir_event(broker: int) -> bytes:
    return encode_json({"version": 1, "broker": broker, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: bytes) -> BrokerId:
    return BrokerId(get_integer(path, decode_json(path, data), "broker"))


# ---- producer ids and features ----------------------------------------------------------------------------


class ProducerIdBlock(Struct, frozen=True, kw_only=True):
    """Producer ids from `start` to `end`, both inclusive, that `broker` may hand out."""

    broker: BrokerId
    start: int
    end: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return encode_json(
        {
            "version": 1,
            "broker": block.broker,
            "block_start": str(block.start),
            "block_end": str(block.end),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    path = PRODUCER_ID_BLOCK
    content = decode_json(path, data)
    return ProducerIdBlock(
        broker=BrokerId(get_integer(path, content, "broker")),
        start=get_integer(path, content, "block_start", at_most=INT64_MAX),
        end=get_integer(path, content, "block_end", at_most=INT64_MAX),
    )


class FeatureLevels(Struct, frozen=True, kw_only=True):
    """Content of `/feature`. Without `is_enabled`, feature versioning is disabled."""

    is_enabled: bool
    levels: Mapping[str, int]


def encode_features(levels: Mapping[str, int] = {}) -> bytes:
    """Encode finalized features. Status 1 means that feature versioning is enabled."""
    features = {name: {"max_version_level": level} for name, level in levels.items()}
    return encode_json({"version": 2, "status": 1, "features": features})


def decode_features(data: bytes) -> FeatureLevels:
    content = decode_json(FEATURE, data)
    features = content.get("features")
    if not isinstance(features, dict):
        raise RegistryError(FEATURE, '"features" is not an object')
    return FeatureLevels(
        is_enabled=get_integer(FEATURE, content, "status") == 1,
        levels={
            name: get_integer(FEATURE, versions, "max_version_level")
            for name, versions in features.items()
        },
    )


# ---- JSON -------------------------------------------------------------------------------------------------

Content = dict[str, Any]
SENSITIVE_PATHS = ("/config/users", "/config/brokers", "/delegation_token", "/barnabas")
"""Znodes in these paths may contain secrets. Errors do not quote them."""


def encode_json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def decode_json(path: str, data: bytes) -> Content:
    try:
        content = json.loads(data)
        if b"\\u" in data:
            json.dumps(content, ensure_ascii=False).encode()  # rejects lone surrogates
    except (ValueError, RecursionError) as error:
        raise RegistryError(path, f"not JSON: {quote_data(path, data)}") from error
    if not isinstance(content, dict):
        raise RegistryError(path, f"not a JSON object: {quote_data(path, data)}")
    return content


def quote_data(path: str, data: bytes) -> str:
    """Return the start of the data for an error, or only its size if it may contain secrets."""
    is_sensitive = any(path == each or path.startswith(f"{each}/") for each in SENSITIVE_PATHS)
    return f"{len(data)} bytes" if is_sensitive else repr(data[:80])


def get_integer(path: str, content: Any, key: str, *, at_most: int = INT32_MAX) -> int:
    try:
        number = int(content[key])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RegistryError(path, f'"{key}" is not a number in {content}') from error
    if abs(number) > at_most:
        raise RegistryError(path, f'"{key}" is out of range in {content}')
    return number


def get_string(path: str, content: Content, key: str) -> str:
    value = content.get(key)
    if not isinstance(value, str):
        raise RegistryError(path, f'"{key}" is not a string in {content}')
    return value


def get_list(path: str, content: Content, key: str) -> list[Any]:
    value = content.get(key)
    if not isinstance(value, list):
        raise RegistryError(path, f'"{key}" is not a list in {content}')
    return value


def parse_broker_ids(path: str, values: Sequence[object]) -> list[BrokerId]:
    if not all(isinstance(value, int) and 0 <= value <= INT32_MAX for value in values):
        raise RegistryError(path, f"invalid broker ids: {values}")
    return [BrokerId(value) for value in values if isinstance(value, int)]


def get_replica_lists(path: str, content: Content, key: str) -> dict[int, tuple[BrokerId, ...]]:
    """Decode `{"0":[1,2]}` to partition → brokers. Returns {} without the key, which older versions do not have."""
    try:
        found = {
            int(number): tuple(parse_broker_ids(path, replicas))
            for number, replicas in content.get(key, {}).items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise RegistryError(path, f'"{key}" is not a map of replica lists in {content}') from error
    if not all(0 <= number <= INT32_MAX for number in found):
        raise RegistryError(path, f"invalid partition numbers: {sorted(found)}")
    return found


def parse_partition(path: str, content: object) -> TopicPartition:
    if not isinstance(content, dict):
        raise RegistryError(path, f"invalid partition: {content!r}")
    return TopicPartition(
        get_string(path, content, "topic"), get_integer(path, content, "partition")
    )
