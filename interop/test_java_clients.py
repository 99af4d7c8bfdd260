"""Calls of the Java client that no command-line tool makes, with the clients of Kafka 3.9 and 4."""

from __future__ import annotations

import subprocess
from base64 import urlsafe_b64encode
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.java.find import Java
from interop.harness import jvm
from interop.harness.jars import INTEROP, Jars
from interop.harness.tools import RELEASES
from support.broker import BrokerProcess
from support.process import die_with_parent
from tests.compatibility.raw import Raw

TIMEOUT_S = 120


def java_uuid(topic_id: UUID) -> str:
    """A topic id as Kafka writes it."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


@pytest.mark.parametrize("release", RELEASES)
def test_topics_are_described_by_id(
    java: Java, kafka_jars: Jars, ours: BrokerProcess, tmp_path: Path, release: str
) -> None:
    name = f"by-id-{release}"
    with Raw(ours.bootstrap_servers) as raw:
        known = java_uuid(raw.create_topic(name, partitions=3))
    unknown = java_uuid(UUID(int=77))
    done = subprocess.run(
        jvm.command(
            java,
            kafka_jars.class_path(release),
            str(INTEROP / "java" / "DescribeTopicsById.java"),
            *(ours.bootstrap_servers, known, unknown),
            scratch=tmp_path,
        ),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        preexec_fn=die_with_parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{known} {name} 3", f"{unknown} UnknownTopicIdException"]
