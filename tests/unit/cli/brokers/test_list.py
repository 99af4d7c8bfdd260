"""Output of `barnabas brokers list` and `barnabas controller show`, rendered from views."""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.cli.brokers.controller import controller_text
from barnabas.cli.brokers.list import broker_table, brokers_document
from barnabas.client.view import BrokerView, ClusterView, PartitionView, TopicView
from barnabas.model import NO_LEADER, BrokerId


def broker(number: int, rack: str | None = None) -> BrokerView:
    return BrokerView(id=BrokerId(number), host="127.0.0.1", port=9090 + number, rack=rack)


VIEW = ClusterView(
    cluster_id="x",
    controller=BrokerId(2),
    brokers={BrokerId(1): broker(1), BrokerId(2): broker(2)},
    topics={
        "orders": TopicView(
            name="orders",
            partitions=(
                PartitionView(
                    partition=0, leader=BrokerId(1), leader_epoch=0, replicas=(1, 3), isr=(1,)
                ),
                PartitionView(
                    partition=1, leader=BrokerId(1), leader_epoch=0, replicas=(2, 1), isr=(2, 1)
                ),
            ),
        )
    },
)


def test_list_shows_every_broker_including_dead_ones() -> None:
    document = brokers_document(VIEW)
    assert document["controller"] == 2
    assert [row["broker"] for row in document["brokers"]] == [1, 2, 3]
    first, second, third = document["brokers"]
    assert (first["leads"], first["replicas"], first["in_sync"]) == (2, 2, 2)
    assert second["controller"] is True
    assert (second["host"], second["port"]) == ("127.0.0.1", 9092)
    assert third == {
        "broker": 3,
        "host": None,
        "port": None,
        "rack": None,
        "alive": False,
        "controller": False,
        "leads": 0,
        "replicas": 1,
        "in_sync": 0,
    }
    assert broker_table(document).splitlines() == [
        "BROKER  ADDRESS         LEADS  REPLICAS  IN SYNC",
        "     1  127.0.0.1:9091      2         2        2",
        "     2  127.0.0.1:9092      0         1        1  controller",
        "     3  not alive           0         1        0",
    ]


def test_rack_column_is_shown_only_if_a_broker_has_a_rack() -> None:
    with_rack = replace(VIEW, brokers={BrokerId(1): broker(1, "east"), BrokerId(2): broker(2)})
    assert "RACK" in broker_table(brokers_document(with_rack))
    assert "RACK" not in broker_table(brokers_document(VIEW))


def test_missing_controller_is_reported() -> None:
    document = brokers_document(replace(VIEW, controller=NO_LEADER))
    assert document["controller"] is None
    assert "no controller now" in broker_table(document)
    assert "no controller now" in controller_text({"controller": None})


def test_controller_is_shown_with_known_epoch_and_rack() -> None:
    shown = {"controller": 2, "host": "h", "port": 9092, "rack": None, "epoch": None}
    assert controller_text(shown) == "broker 2 at h:9092"
    assert controller_text({**shown, "epoch": 7}) == "broker 2 at h:9092, epoch 7"
    assert controller_text({**shown, "rack": "east"}) == "broker 2 at h:9092, rack east"
