from __future__ import annotations

from barnabas.cli.topics.offsets import offsets_document, offsets_text
from barnabas.model import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_partition_without_leader_has_no_offsets() -> None:
    document = offsets_document([FIRST, SECOND], {FIRST: 3}, {FIRST: 8}, 7, {FIRST: None})
    assert [row["offsets"] for row in document["partitions"]] == [5, None]
    *table, remark = offsets_text(document).splitlines()
    assert table[1].split() == ["orders", "0", "3", "8", "5", "-"]
    assert table[2].split() == ["orders", "1", "-", "-", "-", "-"]
    assert remark.startswith("1 partition has no leader")


def test_time_is_shown_only_if_requested() -> None:
    document = offsets_document([FIRST], {FIRST: 0}, {FIRST: 1}, None, None)
    assert "AT TIME" not in offsets_text(document)
    assert "at_time" not in document["partitions"][0]
    assert "topics create" in offsets_text(offsets_document([], {}, {}, None, None))
