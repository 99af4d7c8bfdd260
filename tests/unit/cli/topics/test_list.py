from __future__ import annotations

from barnabas.cli.topics.list import topic_summary, topic_table
from barnabas.client.view import PartitionView, TopicView
from barnabas.model import NO_LEADER, BrokerId

ORDERS = TopicView(
    name="orders",
    partitions=(
        PartitionView(
            partition=0, leader=BrokerId(1), leader_epoch=4, replicas=(1, 2, 3), isr=(1, 3)
        ),
        PartitionView(partition=1, leader=NO_LEADER, leader_epoch=5, replicas=(2, 3, 1), isr=(2,)),
    ),
)


def test_list_shows_unhealthy_topics() -> None:
    whole = TopicView(name="whole", partitions=())
    text = topic_table({"topics": [topic_summary(ORDERS), topic_summary(whole)]})
    assert "1 offline, 2 under-replicated" in text
    assert text.splitlines()[-1].endswith("ok")
    assert "create one" in topic_table({"topics": []})
