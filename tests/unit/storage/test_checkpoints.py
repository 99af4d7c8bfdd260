from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage.checkpoints import (
    check_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_offsets,
    encode_partition_metadata,
    is_damaged_copy,
    read_offsets,
)
from tests.unit.storage.builders import forgetful_disk

OFFSETS = {TopicPartition("orders", 1): 42, TopicPartition("a.b-c_d", 0): 0}


def test_offset_checkpoint_has_kafka_format() -> None:
    assert encode_offsets(OFFSETS) == b"0\n2\na.b-c_d 0 0\norders 1 42\n"
    assert decode_offsets(encode_offsets(OFFSETS)) == (OFFSETS, None)
    assert decode_offsets(b"") == ({}, None)


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0",
        b"0\n",
        b"0\n1\norders 1\n",
        b"0\n1\norders 1 x\n",
        b"0\n1\norders 1 -5\n",
        b"0\n1\norders 1 4_2\n",
        b"0\n1\norders 1 9223372036854775808\n",
        b"0\n1\norders 1 " + b"9" * 5000 + b"\n",
        b"0\n1\norders 1 \xd9\xa3\n",
        b"0\n1\norders 1 42",
        b"\xff\xfe\0",
        bytes(100),
        b"\n" * 100,
    ],
)
def test_checkpoint_without_valid_line_gives_one_warning(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = forgetful_disk()
    disk.replace_bytes("/data/checkpoint", data)
    assert read_offsets(disk, "/data/checkpoint").offsets == {}
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "/data/checkpoint" in record.getMessage()
    assert len(record.getMessage()) < 400
    assert read_offsets(disk, "/data/missing") == ({}, None)


@pytest.mark.parametrize(
    ("data", "offsets"),
    [
        (b"0\n3\norders 1 42\n", {"orders": 42}),
        (b"0\nx\norders 1 42\n", {"orders": 42}),
        (b"0\n2\nbills 1 -1\norders 1 42\n", {"orders": 42}),
        (b"0\n2\n\xff\xfe\0\norders 1 42\n", {"orders": 42}),
        (b"0\n2\nbills 1 7\norders 1 4", {"bills": 7}),
        (b"0\n2\norders 1 42\norders 1 40\n", {"orders": 40}),
        (b"0\n1\norders 1 42\n" * 2, {"orders": 42}),
        (b"0\n1\norders 1 42\n" + bytes(1000), {"orders": 42}),
    ],
)
def test_corrupt_line_does_not_discard_the_others(data: bytes, offsets: dict[str, int]) -> None:
    found = decode_offsets(data)
    assert found.offsets == {TopicPartition(topic, 1): at for topic, at in offsets.items()}
    assert found.problem is not None


def test_corrupt_topic_id_differs_from_another_topic() -> None:
    topic_id = UUID(bytes=bytes(range(16)))
    assert not is_damaged_copy(topic_id, topic_id)
    assert is_damaged_copy(UUID(int=topic_id.int ^ 1 << 77), topic_id)
    random = Random(1)
    for _ in range(1000):
        other = UUID(int=random.getrandbits(128), version=4)
        assert not is_damaged_copy(other, UUID(int=random.getrandbits(128), version=4))


def test_new_directory_is_marked_and_recognised() -> None:
    disk = forgetful_disk()
    check_meta_properties(disk, "/data", broker_id=3, cluster_id="c-1")
    text = disk.read_bytes("/data/meta.properties").decode()
    assert {"version=0", "broker.id=3", "cluster.id=c-1"} <= set(text.splitlines())
    check_meta_properties(disk, "/data", broker_id=3, cluster_id="c-1")
    assert disk.read_bytes("/data/meta.properties").decode() == text


@pytest.mark.parametrize(("broker_id", "cluster_id"), [(4, "c-1"), (3, "c-2")])
def test_directory_of_another_broker_is_rejected_in_one_line(
    broker_id: int, cluster_id: str
) -> None:
    disk = forgetful_disk()
    check_meta_properties(disk, "/data", broker_id=3, cluster_id="c-1")
    with pytest.raises(StorageError) as caught:
        check_meta_properties(disk, "/data", broker_id=broker_id, cluster_id=cluster_id)
    assert "\n" not in str(caught.value)
    assert "log.dirs" in str(caught.value)


def test_other_cluster_suggests_no_cluster_id_setting() -> None:
    disk = forgetful_disk()
    check_meta_properties(disk, "/data", broker_id=3, cluster_id="c-1")
    with pytest.raises(
        StorageError, match="use the registry or ZooKeeper of that cluster"
    ) as raised:
        check_meta_properties(disk, "/data", broker_id=3, cluster_id="c-2")
    assert "set cluster.id" not in str(raised.value)
    with pytest.raises(StorageError, match=r"set broker\.id to 3"):
        check_meta_properties(disk, "/data", broker_id=4, cluster_id="c-1")


def test_topic_id_has_kafka_format() -> None:
    topic_id = UUID(bytes=bytes(range(16)))
    data = encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert decode_partition_metadata(data) == topic_id
    assert decode_partition_metadata(b"version: 0\n") is None
    assert decode_partition_metadata(b"topic_id: !!\n") is None
