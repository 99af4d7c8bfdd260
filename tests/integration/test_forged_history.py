"""Only brokers may write to the history topic, and its readers skip malformed records."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from barnabas import LocalCluster
from barnabas.cli.main import cli
from barnabas.cli.terminal.failure import CommandError
from barnabas.errors import ErrorCode
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.wire.apis import APIS
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from support.waiting import eventually
from tests.compatibility.raw import Raw, recent_batch_of
from tests.integration.forged_events import FORGED, produce_as

ON = {"barnabas.history.topic.enable": True}
PRODUCE_VERSIONS = [version for version in APIS[0].versions if version >= 3]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=ON) as running:
        with Raw(running.bootstrap_servers) as raw:
            raw.create_topic("orders")
        eventually(lambda: "answered" in show_history(running).output, "a history", seconds=30)
        yield running


@pytest.fixture
def raw(cluster: LocalCluster) -> Iterator[Raw]:
    with Raw(cluster.bootstrap_servers) as connection:
        yield connection


def run(cluster: LocalCluster, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "-b", cluster.bootstrap_servers])


def show_history(cluster: LocalCluster) -> Result:
    return run(cluster, "topics", "history", "orders", "-v")


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_client_cannot_produce_to_history_topic(raw: Raw, version: int) -> None:
    end = raw.list_offset(STATE_CHANGES, -1).offset
    for _ in range(2):  # the second may take the fast path for repeated requests
        answer = raw.produce(STATE_CHANGES, recent_batch_of(b"{}"), version=version)
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert raw.list_offset(STATE_CHANGES, -1).offset == end


@pytest.mark.parametrize("client_id", ["", "broker", "my-broker-1-history", "broker-1-history-2"])
def test_only_broker_client_ids_may_produce_to_history(raw: Raw, client_id: str) -> None:
    answer = produce_as(raw, client_id, b"{}")
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_invalid_acks_error_precedes_topic_error(raw: Raw) -> None:
    answer = raw.produce(STATE_CHANGES, recent_batch_of(b"{}"), acks=7)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_delete_records_of_history_is_rejected(raw: Raw) -> None:
    wanted = DeleteRecordsTopic(STATE_CHANGES, (DeleteRecordsPartition(0, -1),))
    request = DeleteRecordsRequest(topics=(wanted,), timeout_ms=5000)
    (topic,) = raw.ask(request, DeleteRecordsResponse).topics
    assert topic.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_brokers_continue_publishing(cluster: LocalCluster, raw: Raw) -> None:
    raw.create_topic("later")
    eventually(
        lambda: "answered" in run(cluster, "topics", "history", "later", "-v").output,
        "the next topic in the history",
        seconds=30,
    )


def test_history_command_skips_malformed_events(cluster: LocalCluster, raw: Raw) -> None:
    before = show_history(cluster).stdout
    assert produce_as(raw, "broker-1-history", *FORGED).error_code == ErrorCode.NONE
    result = show_history(cluster)
    assert result.exit_code == 0, result.exception
    assert result.stdout == before
    assert result.stderr == f"skipped {len(FORGED)} malformed events\n"
    shown = run(cluster, "controller", "show", "-o", "json")
    assert shown.exit_code == 0, shown.exception
    assert json.loads(shown.output)["epoch"] == 1


def test_report_needs_one_valid_event() -> None:
    with LocalCluster(settings={"barnabas.history.topic.enable": False}) as running:
        running.create_topic(STATE_CHANGES)
        with Raw(running.bootstrap_servers) as raw:
            assert produce_as(raw, "broker-1-history", *FORGED).error_code == ErrorCode.NONE
        result = run(running, "lifecycle", "report")
    assert isinstance(result.exception, CommandError)
    assert str(result.exception) == (
        f"there is nothing to report: {STATE_CHANGES} has no valid events"
    )
    assert f"skipped {len(FORGED)} malformed events\n" in result.stderr
