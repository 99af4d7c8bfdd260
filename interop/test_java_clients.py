"""Java clients of Kafka 3.9 and 4, and the new consumer protocol in librdkafka."""

from __future__ import annotations

import subprocess
from base64 import urlsafe_b64encode
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer

from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.errors import ErrorCode
from barnabas.java.find import Java
from interop.harness import jvm
from interop.harness.jars import INTEROP, Jars
from interop.harness.tools import RELEASES
from support.broker import BrokerProcess
from support.process import die_with_parent
from support.waiting import eventually
from tests.compatibility.raw import Raw, recent_batch_of

TIMEOUT_S = 120


def java_uuid(topic_id: UUID) -> str:
    """A topic id as Kafka writes it."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def run_java(
    java: Java, class_path: str, program: str, *arguments: str, scratch: Path
) -> list[str]:
    """Run a program to its end, and return the lines that it prints."""
    source = str(INTEROP / "java" / program)
    done = subprocess.run(
        jvm.command(java, class_path, source, *arguments, scratch=scratch),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        preexec_fn=die_with_parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("release", RELEASES)
def test_topics_are_described_by_id(
    java: Java, kafka_jars: Jars, ours: BrokerProcess, tmp_path: Path, release: str
) -> None:
    name = f"by-id-{release}"
    with Raw(ours.bootstrap_servers) as raw:
        known = java_uuid(raw.create_topic(name, partitions=3))
    unknown = java_uuid(UUID(int=77))
    lines = run_java(
        java,
        kafka_jars.class_path(release),
        "DescribeTopicsById.java",
        *(ours.bootstrap_servers, known, unknown),
        scratch=tmp_path,
    )
    assert lines == [f"{known} {name} 3", f"{unknown} UnknownTopicIdException"]


@pytest.mark.parametrize("release", RELEASES)
def test_members_of_the_new_consumer_protocol_share_a_topic(
    java: Java, kafka_jars: Jars, ours: BrokerProcess, tmp_path: Path, release: str
) -> None:
    name = f"shared-{release}"
    with Raw(ours.bootstrap_servers) as raw:
        raw.create_topic(name, partitions=4)
        for partition in range(4):
            values = [b"%d-%d" % (partition, number) for number in range(25)]
            code = raw.produce(name, recent_batch_of(*values), partition=partition).error_code
            assert code == ErrorCode.NONE
    lines = run_java(
        java,
        kafka_jars.class_path(release),
        "ConsumeTogether.java",
        *(ours.bootstrap_servers, name, f"group-{release}", "100"),
        scratch=tmp_path,
    )
    assert lines == ["2 2 100"]
    with Cluster(ours.bootstrap_servers) as client:
        committed = GroupAdmin(client).committed_offsets(f"group-{release}")
    # A member that has just got its partitions has no position to commit.
    assert {each.offset for each in committed.values()} == {25}


def test_librdkafka_uses_the_new_consumer_protocol(ours: BrokerProcess) -> None:
    with Raw(ours.bootstrap_servers) as raw:
        raw.create_topic("rd-shared", partitions=4)
        for partition in range(4):
            assert (
                raw.produce("rd-shared", recent_batch_of(b"v"), partition=partition).error_code == 0
            )
    settings = {
        "bootstrap.servers": ours.bootstrap_servers,
        "group.id": "rd-group",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    members = [Consumer(settings), Consumer(settings)]
    seen: set[int] = set()

    def is_shared() -> bool:
        for member in members:
            found = member.poll(0.1)
            if found is not None and found.error() is None:
                seen.add(found.partition())
        return len(seen) == 4 and all(len(member.assignment()) == 2 for member in members)

    try:
        for member in members:
            member.subscribe(["rd-shared"])
        eventually(is_shared, "both members have two partitions", 60.0)
    finally:
        for member in members:
            member.close()
