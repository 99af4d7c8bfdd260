"""Build a BrokerConfig from properties: look up names, parse values, then check combinations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from barnabas.config.broker import BROKER_SETTINGS, DEFAULT_PROTOCOLS, BrokerConfig
from barnabas.config.listeners import (
    check_advertised,
    check_distinct_ports,
    parse_http_listener,
    parse_listeners,
    parse_protocols,
    split_by_comma,
    split_pairs,
)
from barnabas.config.open_listeners import open_listeners_warning
from barnabas.config.security import SECURITY_SETTINGS
from barnabas.config.setting import Setting, Value, unknown_setting_error
from barnabas.config.without_effect import WITHOUT_EFFECT, is_plugin_setting
from barnabas.errors import ConfigError

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
CODEC_MAX = 4
ALL_SETTINGS = BROKER_SETTINGS | SECURITY_SETTINGS | WITHOUT_EFFECT
AUTHORIZER_SETTINGS = ("super.users", "allow.everyone.if.no.acl.found")
"""Settings of the authorizer. Kafka does not declare them."""
POLICY_PREFIX = "barnabas.policy."
LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.(.+)")


def load_broker_config(
    properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> tuple[BrokerConfig, list[str]]:
    """Return the configuration, and warnings for the operator.

    `overrides` take precedence over `properties`, as command-line options do over a file. Raises ConfigError if a
    setting is unknown or invalid.
    """
    properties = {**properties, **(overrides or {})}
    values: dict[str, Any] = {}
    security: dict[str, Value] = {}
    ignored = []
    for name, text in properties.items():
        declared = find_setting(name)
        if declared is None and name.startswith(POLICY_PREFIX):
            continue  # for the create or alter policy, which gets all properties
        if declared is None and not is_plugin_setting(name):
            raise unknown_setting_error(name, list(ALL_SETTINGS), "broker setting")
        value = None if declared is None else replace(declared, name=name).parse(text)
        if declared is not None and name in BROKER_SETTINGS:
            values[declared.field] = value
        elif declared is not None and declared.name in SECURITY_SETTINGS:
            security[normalize_prefix(name)] = value
        elif declared is not None or name not in AUTHORIZER_SETTINGS:
            ignored.append(name)
    config = build_config({**values, "security": security}, properties)
    check_combinations(config, set(properties))
    return config, build_warnings(config, ignored)


def find_setting(name: str) -> Setting | None:
    """Return the declaration of a setting, also with a `listener.name.<name>.` prefix. None if it is unknown."""
    prefixed = LISTENER_PREFIX.fullmatch(name)
    # SASL settings of a listener may include the mechanism: listener.name.x.plain.sasl.jaas.config
    candidates = (name,) if not prefixed else (prefixed[1], prefixed[1].partition(".")[2])
    for candidate in candidates:
        if candidate in ALL_SETTINGS:
            return ALL_SETTINGS[candidate]
    return None


def normalize_prefix(name: str) -> str:
    """Convert the listener and the mechanism in a name to lower case: `listener.name.EXTERNAL.ssl.client.auth`."""
    return name.lower() if LISTENER_PREFIX.fullmatch(name) else name


def build_config(values: dict[str, Any], properties: Mapping[str, str]) -> BrokerConfig:
    """Build the BrokerConfig. Converts listeners, log directories, connection limits and the broker id first."""
    protocols = parse_protocols(
        "listener.security.protocol.map",
        values.get("listener_security_protocol_map", DEFAULT_PROTOCOLS),
    )
    listeners = values.get("listeners", BROKER_SETTINGS["listeners"].default)
    values["listeners"] = parse_listeners("listeners", str(listeners), protocols)
    if "advertised_listeners" in values:
        values["advertised_listeners"] = parse_listeners(
            "advertised.listeners", values["advertised_listeners"], protocols
        )
    if values.get("barnabas_http_listener") is not None:
        values["barnabas_http_listener"] = parse_http_listener(
            "barnabas.http.listener", values["barnabas_http_listener"]
        )
    if "log_dirs" in values or "log_dir" in values:
        values["log_dirs"] = split_by_comma(values.get("log_dirs", values.get("log_dir", "")))
    if "max_connections_per_ip_overrides" in values:
        values["max_connections_per_ip_overrides"] = parse_connection_limits(
            values["max_connections_per_ip_overrides"]
        )
    broker_id = values.get("broker_id", values.get("node_id", -1))
    if values.get("node_id", broker_id) != broker_id:
        raise ConfigError("node.id", f"{values['node_id']} differs from broker.id, {broker_id}")
    values["broker_id"] = values["node_id"] = broker_id
    return BrokerConfig(**values, properties=dict(properties))


def parse_connection_limits(text: str) -> tuple[tuple[str, int], ...]:
    name = "max.connections.per.ip.overrides"
    limits = []
    for host, count in split_pairs(name, text):
        if not re.fullmatch(r"[0-9a-zA-Z\-%._:]+", host):
            raise ConfigError(name, f"{host!r} is not an address")
        if not re.fullmatch(r"\d{1,9}", count):
            raise ConfigError(name, f"{count!r} of {host} is not a number of connections")
        limits.append((host, int(count)))
    return tuple(limits)


def check_combinations(config: BrokerConfig, names_set: set[str]) -> None:
    """Validate combinations of settings, as Kafka does at startup. Raises ConfigError."""
    check_identity(config)
    check_reachability(config, names_set)
    check_logs(config)
    check_replication(config)
    check_offsets(config)


def check_at_least(name: str, value: int, lowest: int) -> None:
    if value < lowest:
        raise ConfigError(name, f"{value} is not allowed, it must be at least {lowest}")


def check_identity(config: BrokerConfig) -> None:
    check_at_least("broker.id", config.broker_id, -1 if config.broker_id_generation_enable else 0)
    if config.broker_id_generation_enable and config.broker_id > config.reserved_broker_max_id:
        why = f"{config.broker_id} is above reserved.broker.max.id, {config.reserved_broker_max_id}"
        raise ConfigError("broker.id", why + "; set broker.id.generation.enable=false to allow it")


def check_reachability(config: BrokerConfig, names_set: set[str]) -> None:
    check_distinct_ports("listeners", config.listeners)
    advertised = config.advertised_listeners or config.listeners
    check_advertised(advertised, config.listeners)
    by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if by_name in names_set and by_protocol in names_set:
        raise ConfigError(by_name, f"cannot be set together with {by_protocol}")
    names = [endpoint.listener for endpoint in advertised]
    if config.inter_broker_listener not in names:
        why = f"{config.inter_broker_listener} is not advertised; it must be one of {', '.join(names)}"
        raise ConfigError(by_protocol if by_protocol in names_set else by_name, why)
    control_plane = config.security_value("control.plane.listener.name")
    if control_plane:
        check_control_plane(config, str(control_plane).upper(), names)
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        why = f"{config.queued_max_request_bytes} is less than socket.request.max.bytes,"
        why += f" which is {config.socket_request_max_bytes}"
        raise ConfigError("queued.max.request.bytes", why)
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        raise ConfigError("max.connections.per.ip", "0 needs max.connections.per.ip.overrides")


def check_control_plane(config: BrokerConfig, listener: str, names: list[str]) -> None:
    name = "control.plane.listener.name"
    if listener not in names:
        raise ConfigError(
            name, f"{listener} is not advertised; it must be one of {', '.join(names)}"
        )
    if listener == config.inter_broker_listener:
        raise ConfigError(name, f"{listener} is the listener between brokers; use another one")


def check_logs(config: BrokerConfig) -> None:
    if not config.log_dirs:
        raise ConfigError("log.dirs", "no directory: set log.dirs or log.dir")
    defaults = config.topic_defaults()
    check_at_least("log.roll.ms", defaults.segment_ms, 1)
    check_at_least("log.roll.jitter.ms", defaults.segment_jitter_ms, 0)
    check_at_least("log.flush.interval.ms", defaults.flush_ms, 0)
    if defaults.retention_ms == 0:
        raise ConfigError("log.retention.ms", "0 is not allowed: -1 for no limit, or at least 1")
    if defaults.min_compaction_lag_ms > defaults.max_compaction_lag_ms:
        why = f"{defaults.min_compaction_lag_ms} is more than log.cleaner.max.compaction.lag.ms"
        raise ConfigError("log.cleaner.min.compaction.lag.ms", why)
    thread_bytes = config.log_cleaner_dedupe_buffer_size // max(config.log_cleaner_threads, 1)
    if thread_bytes <= 1024 * 1024:
        why = f"{thread_bytes} bytes per thread; must be more than 1 MiB"
        raise ConfigError("log.cleaner.dedupe.buffer.size", why)


def check_replication(config: BrokerConfig) -> None:
    wait_ms = config.replica_fetch_wait_max_ms
    for name, limit_ms in (
        ("replica.socket.timeout.ms", config.replica_socket_timeout_ms),
        ("replica.lag.time.max.ms", config.replica_lag_time_max_ms),
    ):
        if wait_ms > limit_ms:
            why = f"{wait_ms} is more than {name}, {limit_ms}"
            raise ConfigError("replica.fetch.wait.max.ms", why)
    selector = config.replica_selector_class
    if selector not in (None, RACK_AWARE_SELECTOR):
        why = f"{selector} cannot be loaded; leave it out, or set it to {RACK_AWARE_SELECTOR}"
        raise ConfigError("replica.selector.class", why)


def check_offsets(config: BrokerConfig) -> None:
    acks, replicas = config.offsets_commit_required_acks, config.offsets_topic_replication_factor
    if not -1 <= acks <= replicas:
        why = f"{acks} is not allowed, it must be from -1 to offsets.topic.replication.factor"
        raise ConfigError("offsets.commit.required.acks", f"{why}, {replicas}")
    codec = config.offsets_topic_compression_codec
    if not 0 <= codec <= CODEC_MAX:
        why = f"{codec} is not allowed: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd"
        raise ConfigError("offsets.topic.compression.codec", why)


def build_warnings(config: BrokerConfig, ignored: list[str]) -> list[str]:
    warnings = []
    if ignored:
        warnings.append(f"settings without effect: {', '.join(sorted(ignored))}")
    warning = open_listeners_warning(config)
    if warning is not None:
        warnings.append(warning)
    return warnings
