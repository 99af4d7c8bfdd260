from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.config import BrokerConfig
from barnabas.config.load import load_broker_config
from barnabas.errors import ConfigError
from barnabas.model import Endpoint

LOOPBACK = {"listeners": "PLAINTEXT://127.0.0.1:9092"}
"""A listener without a warning."""


def load(**properties: str) -> BrokerConfig:
    config, _ = load_broker_config({k.replace("_", "."): v for k, v in properties.items()})
    return config


def error_of(properties: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        load_broker_config(properties)
    return str(refused.value)


def test_empty_properties_give_kafka_defaults_and_a_warning_about_the_open_listener() -> None:
    config, (warning,) = load_broker_config({})
    assert config == BrokerConfig()
    assert "without authentication: PLAINTEXT://:9092" in warning
    assert config.listeners == (Endpoint(listener="PLAINTEXT", host="", port=9092),)
    assert config.log_dirs == ("/tmp/kafka-logs",)


def test_overrides_take_precedence_over_file() -> None:
    config, _ = load_broker_config({"num.partitions": "2", "broker.id": "1"}, {"broker.id": "7"})
    assert (config.num_partitions, config.broker_id) == (2, 7)
    assert config.properties == {"num.partitions": "2", "broker.id": "7"}


def test_settings_without_effect_give_one_warning() -> None:
    _, warnings = load_broker_config(
        {
            **LOOPBACK,
            "num.network.threads": "3",
            "listener.name.inside.ssl.keystore.password": "secret",
            "listener.name.inside.sasl.kerberos.kinit.cmd": "kinit",
            "super.users": "User:admin",
            "rsm.config.bucket": "b",
        }
    )
    assert warnings == [
        "settings without effect: listener.name.inside.sasl.kerberos.kinit.cmd,"
        " num.network.threads, rsm.config.bucket"
    ]


def test_settings_without_effect_are_validated_and_warned_about() -> None:
    settings = {**LOOPBACK, "socket.listen.backlog.size": "4", "num.partitions": "2"}
    _, warnings = load_broker_config(settings)
    assert warnings == ["settings without effect: socket.listen.backlog.size"]
    with pytest.raises(ConfigError, match="at least 1"):
        load_broker_config({"socket.listen.backlog.size": "0"})


def test_most_specific_security_setting_applies() -> None:
    config, _ = load_broker_config(
        {
            "sasl.jaas.config": "all",
            "listener.name.INSIDE.sasl.jaas.config": "inside",
            "listener.name.inside.plain.sasl.jaas.config": "plain",
        }
    )
    name = "sasl.jaas.config"
    assert config.security_value(name, "INSIDE", "PLAIN") == "plain"
    assert config.security_value(name, "Inside", "SCRAM-SHA-256") == "inside"
    assert config.security_value(name, "OUTSIDE", "PLAIN") == "all"
    assert config.security_value("ssl.client.auth", "OUTSIDE") == "none"


def test_kraft_properties_start_a_broker_with_node_id() -> None:
    config, warnings = load_broker_config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
    )
    assert config.broker_id == 1
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        (
            {"num.partitons": "1"},
            "num.partitons: no such broker setting; did you mean num.partitions?",
        ),
        ({"xyzzy": "1"}, "xyzzy: no such broker setting"),
        (
            {"listener.name.a.ssl.protocl": "1"},
            "listener.name.a.ssl.protocl: no such broker setting",
        ),
        (
            {"num.io.threads": "none"},
            "num.io.threads: 'none' is not allowed, it must be a 32-bit integer",
        ),
        (
            {"listener.name.a.max.connections": "-1"},
            "listener.name.a.max.connections: '-1' is not allowed, it must be at least 0",
        ),
        ({"broker.id": "-2"}, "broker.id: -2 is not allowed, it must be at least -1"),
        (
            {"broker.id": "-1", "broker.id.generation.enable": "false"},
            "broker.id: -1 is not allowed, it must be at least 0",
        ),
        (
            {"broker.id": "1001"},
            "broker.id: 1001 is above reserved.broker.max.id, 1000; set broker.id.generation.enable=false to allow it",
        ),
        ({"broker.id": "1", "node.id": "2"}, "node.id: 2 differs from broker.id, 1"),
        ({"log.dirs": " , "}, "log.dirs: no directory: set log.dirs or log.dir"),
        ({"log.roll.ms": "0"}, "log.roll.ms: 0 is not allowed, it must be at least 1"),
        (
            {"log.roll.jitter.ms": "-1"},
            "log.roll.jitter.ms: -1 is not allowed, it must be at least 0",
        ),
        (
            {"log.retention.hours": "0"},
            "log.retention.ms: 0 is not allowed: -1 for no limit, or at least 1",
        ),
        (
            {"log.flush.interval.ms": "-1"},
            "log.flush.interval.ms: -1 is not allowed, it must be at least 0",
        ),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "log.cleaner.min.compaction.lag.ms: 2 is more than log.cleaner.max.compaction.lag.ms",
        ),
        (
            {"log.cleaner.threads": "128"},
            "log.cleaner.dedupe.buffer.size: 1048576 bytes per thread; must be more than 1 MiB",
        ),
        (
            {"replica.fetch.wait.max.ms": "30001"},
            "replica.fetch.wait.max.ms: 30001 is more than replica.socket.timeout.ms, 30000",
        ),
        (
            {"replica.lag.time.max.ms": "499"},
            "replica.fetch.wait.max.ms: 500 is more than replica.lag.time.max.ms, 499",
        ),
        (
            {"queued.max.request.bytes": "10"},
            "queued.max.request.bytes: 10 is less than socket.request.max.bytes,"
            " which is 104857600",
        ),
        (
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip: 0 needs max.connections.per.ip.overrides",
        ),
        (
            {"max.connections.per.ip.overrides": "localhost"},
            "max.connections.per.ip.overrides: 'localhost' is not of the form key:value",
        ),
        (
            {"max.connections.per.ip.overrides": f"localhost:{'1' * 5000}"},
            f"max.connections.per.ip.overrides: '{'1' * 5000}' of localhost is not a number of connections",
        ),
        (
            {"max.connections.per.ip.overrides": "localhost:many"},
            "max.connections.per.ip.overrides: 'many' of localhost is not a number of connections",
        ),
        (
            {"max.connections.per.ip.overrides": "a/b:1"},
            "max.connections.per.ip.overrides: 'a/b' is not an address",
        ),
        (
            {"offsets.commit.required.acks": "4"},
            "offsets.commit.required.acks: 4 is not allowed,"
            " it must be from -1 to offsets.topic.replication.factor, 3",
        ),
        (
            {"offsets.topic.compression.codec": "5"},
            "offsets.topic.compression.codec: 5 is not allowed:"
            " 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd",
        ),
    ],
)
def test_invalid_properties_are_rejected_in_one_line(
    properties: dict[str, str], error: str
) -> None:
    assert error_of(properties) == error


def test_secret_is_not_in_repr() -> None:
    config = load(ssl_keystore_password="hunter2")
    assert "hunter2" not in repr(config)


def test_log_dirs_override_log_dir() -> None:
    assert load(log_dir="/one").log_dirs == ("/one",)
    assert load(log_dir="/one", log_dirs="/two, /three,").log_dirs == ("/two", "/three")


def test_registry_dir_is_next_to_first_log_dir() -> None:
    assert load(log_dirs="/data/broker-1/,/other").registry_dir == "/data/registry"
    assert load(log_dirs="/tmp/kafka-logs").registry_dir == "/tmp/kafka-logs-registry"
    assert load(log_dirs="broker-2").registry_dir == "registry"
    assert load(log_dirs="/data/logs", barnabas_registry_dir="/r").registry_dir == "/r"


def test_connection_limits_may_name_ipv6() -> None:
    config = load(max_connections_per_ip_overrides="127.0.0.1:5, ::1:7")
    assert config.max_connections_per_ip_overrides == (("127.0.0.1", 5), ("::1", 7))


def test_importing_config_imports_no_slow_module() -> None:
    # difflib, asyncio and the table of settings without effect are imported on demand.
    slow = "{'difflib', 'asyncio', 'pathlib', 'barnabas.config.without_effect'}"
    script = f"import sys, barnabas.config; print(sorted({slow} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{script}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_custom_replica_selector_is_rejected_in_one_line() -> None:
    own = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    config, warnings = load_broker_config({**LOOPBACK, "replica.selector.class": own})
    assert config.replica_selector_class == own
    assert not warnings
    with pytest.raises(ConfigError) as refused:
        load_broker_config({"replica.selector.class": "com.example.Nearest"})
    assert str(refused.value) == (
        f"replica.selector.class: com.example.Nearest cannot be loaded; leave it out, or set it to {own}"
    )
