"""Directories that a deleted topic leaves on disk, and how long they stay."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from barnabas.metadata.znodes import delete_topic_path
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw, recent_batch_of

SOON, LATE = {"file.delete.delay.ms": "0"}, {"file.delete.delay.ms": "600000"}
DELETED = re.compile(r"(.*)-\d+\.[0-9a-f]{32}-delete")
LONG = "x" * 249


def delete(cluster: LocalCluster, *topics: str) -> None:
    """Delete topics and wait until the registry has removed them. Clients get their response, and directories are
    renamed, before that. A broker killed in between restarts the deletion."""
    assert cluster.controller_id is not None
    wanted = tuple(DeleteTopicState(topic) for topic in topics)
    with Raw(cluster.brokers[cluster.controller_id].address) as raw:
        request = DeleteTopicsRequest(topics=wanted, timeout_ms=10_000)
        for result in raw.ask(request, DeleteTopicsResponse).responses:
            assert result.error_code == ErrorCode.NONE
    registry, keeper = cluster.cluster.open_registry()

    def is_removed(topic: str) -> bool:
        return keeper.call(lambda: registry.tree.find(delete_topic_path(topic))) is None

    eventually(lambda: all(map(is_removed, topics)), "the controller has finished the deletion")


def write(cluster: LocalCluster, topic: str, **configs: str) -> None:
    with Raw(cluster.brokers[1].address) as raw:
        raw.create_topic(topic, partitions=2, configs=configs)
        assert raw.produce(topic, recent_batch_of(b"x")).error_code == ErrorCode.NONE


def remaining_directories(data: Path, topic: str) -> list[Path]:
    """The topic's directories, renamed or not."""
    start = topic[:100]
    return [
        path for path in data.glob("broker-*/*") if path.is_dir() and path.name.startswith(start)
    ]


def are_renamed(data: Path, topic: str) -> bool:
    return all(DELETED.fullmatch(path.name) for path in remaining_directories(data, topic))


def test_deleted_directories_are_renamed_then_removed_after_delay(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        write(cluster, "soon", **SOON)
        write(cluster, "late", **LATE)
        delete(cluster, "soon", "late")
        eventually(lambda: are_renamed(tmp_path, "late"), "renamed")
        eventually(lambda: not remaining_directories(tmp_path, "soon"), "removed")
        assert len(remaining_directories(tmp_path, "late")) == 2
        assert any(path.glob("*.log") for path in remaining_directories(tmp_path, "late"))


@pytest.mark.parametrize("is_killed", [False, True])
def test_deleted_directories_are_removed_after_restart(tmp_path: Path, is_killed: bool) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        write(cluster, "old", **LATE)
        delete(cluster, "old")
        eventually(lambda: are_renamed(tmp_path, "old"), "renamed")
        if is_killed:
            cluster.brokers[1].kill()
    assert len(remaining_directories(tmp_path, "old")) == 2
    # By now the topic and its settings are deleted, so the broker's own setting applies.
    with LocalCluster(data=tmp_path, settings={"log.segment.delete.delay.ms": "600000"}) as cluster:
        write(cluster, "old")
        with Raw(cluster.brokers[1].address) as raw:
            assert raw.produce("old", recent_batch_of(b"y")).base_offset == 1, "a new log"
        assert len(remaining_directories(tmp_path, "old")) == 4
    with LocalCluster(data=tmp_path, settings={"log.segment.delete.delay.ms": "100"}):
        eventually(lambda: len(remaining_directories(tmp_path, "old")) == 2, "removed")
        assert {path.name for path in remaining_directories(tmp_path, "old")} == {"old-0", "old-1"}


def test_longest_topic_name_is_truncated_in_deleted_directory(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        write(cluster, LONG, **LATE)
        delete(cluster, LONG)
        eventually(lambda: are_renamed(tmp_path, LONG), "renamed")
        assert {len(path.name) for path in remaining_directories(tmp_path, LONG)} == {255}
        write(cluster, LONG)
        assert len(remaining_directories(tmp_path, LONG)) == 4


def test_deletion_removes_directories_on_all_brokers(tmp_path: Path) -> None:
    with LocalCluster(brokers=3, data=tmp_path) as cluster:
        assert cluster.controller_id is not None
        configs = tuple(CreatableTopicConfig(*pair) for pair in SOON.items())
        topic = CreatableTopic("soon", 2, 3, configs=configs)
        with Raw(cluster.brokers[cluster.controller_id].address) as raw:
            raw.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse)
        eventually(lambda: len(remaining_directories(tmp_path, "soon")) == 6, "two on each broker")
        delete(cluster, "soon")
        eventually(lambda: not remaining_directories(tmp_path, "soon"), "removed")
