"""Settings of the brokers of a node, derived from one file."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.cluster.node_settings import derive_node_brokers
from barnabas.config.load import load_broker_config
from barnabas.errors import ConfigError

FILE = {
    "broker.id": "11",
    "listeners": "PLAINTEXT://10.0.0.1:9092",
    "log.dirs": "/data/a,/data/b/",
    "zookeeper.connect": "zk:2181/dev",
    "num.partitions": "7",
}


def overrides(properties: Mapping[str, str], count: int) -> list[dict[str, str]]:
    brokers, _ = derive_node_brokers(properties, count, machine="rhine")
    return [each.overrides for each in brokers]


def values(name: str, properties: Mapping[str, str], count: int) -> list[str]:
    return [each[name] for each in overrides(properties, count)]


def error(properties: Mapping[str, str], count: int) -> str:
    with pytest.raises(ConfigError) as raised:
        derive_node_brokers(properties, count, machine="rhine")
    return str(raised.value)


def test_ids_and_ports_count_up_from_those_of_the_file() -> None:
    assert values("broker.id", FILE, 3) == ["11", "12", "13"]
    assert values("listeners", FILE, 3) == [
        "PLAINTEXT://10.0.0.1:9092",
        "PLAINTEXT://10.0.0.1:9093",
        "PLAINTEXT://10.0.0.1:9094",
    ]


def test_every_broker_has_a_sub_directory_of_each_log_directory() -> None:
    assert values("log.dirs", FILE, 2) == [
        "/data/a/broker-11,/data/b/broker-11",
        "/data/a/broker-12,/data/b/broker-12",
    ]
    alone = {name: value for name, value in FILE.items() if name != "log.dirs"}
    assert values("log.dirs", {**alone, "log.dir": "/data"}, 1) == ["/data/broker-11"]
    assert values("log.dirs", {**FILE, "log.dirs": "/"}, 1) == ["/broker-11"]


def test_all_brokers_have_one_rack() -> None:
    assert values("broker.rack", FILE, 2) == ["rhine", "rhine"]
    assert values("broker.rack", {**FILE, "broker.rack": "row 3"}, 2) == ["row 3", "row 3"]
    assert values("broker.rack", {**FILE, "broker.rack": ""}, 1) == ["rhine"]


def test_every_listener_counts_up() -> None:
    several = {
        **FILE,
        "listeners": "INSIDE://[::1]:9092,OUTSIDE://:9192",
        "advertised.listeners": "INSIDE://[::1]:9092,OUTSIDE://proxy:19000",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    assert values("listeners", several, 2)[1] == "INSIDE://[::1]:9093,OUTSIDE://:9193"
    advertised = values("advertised.listeners", several, 2)
    assert advertised[1] == "INSIDE://[::1]:9093,OUTSIDE://proxy:19001"


def test_port_0_stays_0() -> None:
    free = {
        **FILE,
        "listeners": "PLAINTEXT://:0",
        "advertised.listeners": "PLAINTEXT://rhine:0",
    }
    assert values("listeners", free, 2) == ["PLAINTEXT://:0"] * 2
    assert values("advertised.listeners", free, 2) == ["PLAINTEXT://rhine:0"] * 2


def test_unset_advertised_listeners_stay_unset() -> None:
    assert all("advertised.listeners" not in each for each in overrides(FILE, 2))


def test_node_id_may_replace_broker_id() -> None:
    by_node_id = {name: value for name, value in FILE.items() if name != "broker.id"}
    assert values("broker.id", {**by_node_id, "node.id": "4"}, 2) == ["4", "5"]


def test_file_with_overrides_is_the_configuration_of_the_broker() -> None:
    config, _ = load_broker_config(FILE, overrides(FILE, 2)[1])
    assert (config.broker_id, config.broker_rack, config.num_partitions) == (12, "rhine", 7)
    assert config.listeners[0].port == 9093


@pytest.mark.parametrize(
    ("change", "count", "said"),
    [
        ({}, 0, "--brokers: must be at least 1, not 0"),
        ({"broker.id": "-1"}, 2, "broker.id: not set; choose the id of the first broker"),
        ({"broker.id": "999"}, 3, "broker.id: 1001 is above reserved.broker.max.id"),
        ({"listeners": "PLAINTEXT://:65534"}, 3, "3 brokers need 3 ports from 65534 on"),
        ({"num.partitionz": "1"}, 2, "num.partitionz"),
        ({"num.partitions": "many"}, 2, "num.partitions"),
    ],
)
def test_invalid_settings_are_rejected(change: dict[str, str], count: int, said: str) -> None:
    assert said in error({**FILE, **change}, count)


def test_listeners_that_are_too_close_are_rejected() -> None:
    close = {
        **FILE,
        "listeners": "INSIDE://:9092,OUTSIDE://:9094",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    assert values("broker.id", close, 2) == ["11", "12"]
    assert error(close, 3) == (
        "listeners: port 9094 is for OUTSIDE of broker 11 and for INSIDE of broker 13: "
        "3 brokers need 3 ports from each port on"
    )


def test_listeners_of_both_address_families_share_ports() -> None:
    both = {
        **FILE,
        "listeners": "FOUR://127.0.0.1:9092,SIX://[::1]:9092",
        "listener.security.protocol.map": "FOUR:PLAINTEXT,SIX:PLAINTEXT",
        "inter.broker.listener.name": "FOUR",
    }
    assert values("listeners", both, 2)[1] == "FOUR://127.0.0.1:9093,SIX://[::1]:9093"


def test_missing_zookeeper_names_the_next_step() -> None:
    embedded = {name: value for name, value in FILE.items() if name != "zookeeper.connect"}
    message = error(embedded, 2)
    assert message.startswith("zookeeper.connect: not set")
    assert "`barnabas zookeeper`" in message
    assert "`barnabas up --brokers N`" in message
