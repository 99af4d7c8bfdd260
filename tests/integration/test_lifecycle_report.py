"""`barnabas lifecycle report` on a real cluster: a topic is created, loses its leader, and is deleted. The history also
has malformed events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from barnabas import LocalCluster
from barnabas.cli.main import cli
from barnabas.cli.terminal.failure import explain
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer
from barnabas.errors import BarnabasError, ConfigError, ErrorCode
from barnabas.metadata.topic_names import STATE_CHANGES
from barnabas.model import TopicPartition
from support.waiting import eventually
from tests.compatibility.raw import Raw
from tests.integration.forged_events import FORGED, produce_as

ON = {"barnabas.history.topic.enable": True}
WITHOUT_SPARK = """
import sys
for module in ("pyspark", "pyarrow", "jinja2", "numpy"):
    sys.modules[module] = None  # as if it were not installed
from barnabas.cli.main import main
main()
"""
REPORT = ("lifecycle", "report")
COMMAND = [sys.executable, "-m", "barnabas.cli.main", *REPORT]
TABLES = {
    *("elections", "topics", "creations", "deletions", "brokers"),
    *("outages", "incidents", "leader_moves", "steps"),
}


def create(servers: str, name: str, *, assignment: list[list[int]]) -> None:
    with Cluster(servers) as client:
        topic = NewTopic(name=name, assignment=tuple(map(tuple, assignment)))
        (outcome,) = Admin(client).create_topics([topic])
        assert outcome.error is None, outcome.error


def delete(servers: str, name: str) -> None:
    with Cluster(servers) as client:
        (outcome,) = Admin(client).delete_topics([name])
        assert outcome.error is None, outcome.error


def published_events(servers: str) -> list[dict[str, Any]]:
    with Cluster(servers) as client:
        if STATE_CHANGES not in client.refresh(None).topics:
            return []
        consumer = Consumer(client, {TopicPartition(STATE_CHANGES, 0): Beginning()})
        return [json.loads(record.value or b"{}") for record in consumer.records(stop_at_end=True)]


def forge_events(servers: str) -> None:
    """Write malformed events to the leader of the history, with the client id of a broker."""
    with Cluster(servers) as client:
        view = client.refresh([STATE_CHANGES])
    leader = view.topics[STATE_CHANGES].partitions[0].leader
    broker = view.brokers[leader]
    with Raw(f"{broker.host}:{broker.port}") as raw:
        assert produce_as(raw, "broker-1-history", *FORGED).error_code == ErrorCode.NONE


def wait_for(servers: str, **wanted: Any) -> None:
    def is_published() -> bool:
        return any(wanted.items() <= event.items() for event in published_events(servers))

    eventually(is_published, f"{wanted} in the history", seconds=60)


def run(servers: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        env={**os.environ, "BARNABAS_BOOTSTRAP_SERVERS": servers},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.usefixtures("trained_spark")
def test_report_covers_creation_failover_and_deletion_and_skips_malformed_events(
    tmp_path: Path,
) -> None:
    with LocalCluster(brokers=3, settings=ON) as cluster:
        servers = cluster.bootstrap_servers
        controller = cluster.controller_id
        assert controller is not None
        leader, other = (broker for broker in cluster.brokers if broker != controller)
        create(servers, "orders", assignment=[[leader, other], [other, leader]])
        create(servers, "stuck", assignment=[[other, leader]])
        create(servers, "gone", assignment=[[other, controller]])
        delete(servers, "gone")
        wait_for(servers, topic="gone", after="NonExistentReplica")
        cluster.brokers[leader].kill()
        wait_for(servers, id="orders-0", before="OfflinePartition", after="OnlinePartition")
        delete(servers, "stuck")
        wait_for(servers, topic="stuck", after="ReplicaDeletionSuccessful")
        forge_events(servers)
        table, page = tmp_path / "report.parquet", tmp_path / "report.html"
        done = run(servers, [*COMMAND, "-o", "json", "--to", str(table), "--html", str(page)])
        plain = run(servers, [sys.executable, "-c", WITHOUT_SPARK, *REPORT]).stdout
        on_spark = json.loads(run(servers, [*COMMAND, "-o", "json", "--master", "local[2]"]).stdout)
    document = json.loads(done.stdout)
    # The other tables have durations until now.
    for name in ("history", "elections", "creations", "outages", "incidents", "leader_moves"):
        assert on_spark[name] == document[name], name
    (election,) = document["elections"]
    assert (election["controller"], election["previous"]) == (controller, None)
    (move,) = document["leader_moves"]
    assert (move["topic"], move["partition"]) == ("orders", 0)
    assert (move["before"], move["after"]) == (leader, other)
    assert move["reason"] == f"broker {leader} failed"
    (outage,) = document["outages"]
    assert (outage["topic"], outage["partition"], outage["until"] is None) == ("orders", 0, False)
    assert outage["cause"].startswith("BrokersChanged")
    assert outage["lost_leader"] == leader
    assert outage["unnoticed_ms"] == 18_000  # the default of zookeeper.session.timeout.ms
    assert document["incidents"][0]["lost_leaders"] == [leader]
    assert 0 <= outage["ms"] < 60_000
    assert {row["broker"]: row["state"] for row in document["brokers"]} == {
        controller: "up",
        leader: "failed",
        other: "up",
    }
    states = {row["topic"]: (row["state"], row["waits_for"]) for row in document["deletions"]}
    assert states == {"gone": ("done", []), "stuck": ("stuck", [leader])}
    creations = {row["topic"]: row for row in document["creations"]}
    assert set(creations) == {"orders", "gone", "stuck"}
    assert all(row["ms"] is not None and row["by"] == "barnabas" for row in creations.values())
    assert creations["orders"]["partitions"] == 2
    assert {path.name for path in table.iterdir()} == {f"{name}.parquet" for name in TABLES}
    assert parquet.read_table(table / "topics.parquet").num_rows == len(document["topics"]) == 3
    assert parquet.read_table(table / "leader_moves.parquet").to_pylist()[0]["after"] == other
    assert f"start broker {leader} again" in page.read_text()
    assert f"broker {leader} failed" in page.read_text()
    assert f"broker {leader} failed" in plain
    assert "up to +18 s" in plain
    notes = f"skipped {len(FORGED)} malformed events\nwritten to {table}\nwritten to {page}\n"
    assert done.stderr == notes


# ---- errors that are reported before the analysis -------------------------------------------------------------------


def run_rejected(servers: str, *arguments: str) -> str:
    error = CliRunner().invoke(cli, ["lifecycle", "report", *arguments, "-b", servers]).exception
    assert isinstance(error, BarnabasError)
    return f"error: {error}" if isinstance(error, ConfigError) else explain(error)


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LocalCluster(data=tmp_path_factory.mktemp("silent")) as cluster:
        yield cluster.bootstrap_servers


def test_disabled_history_is_reported(silent: str) -> None:
    assert "the history is disabled (barnabas.history.topic.enable=false)" in run_rejected(silent)


def test_empty_or_missing_history_is_reported() -> None:
    with LocalCluster(settings=ON) as cluster:
        servers = cluster.bootstrap_servers
        assert "it starts when the first topic is created" in run_rejected(servers)
    with LocalCluster() as cluster:
        servers = cluster.bootstrap_servers
        with Cluster(servers) as client:
            (outcome,) = Admin(client).create_topics([NewTopic(name=STATE_CHANGES)])
            assert outcome.error is None, outcome.error
        assert f"error: there is nothing to report: {STATE_CHANGES} is empty" in run_rejected(
            servers
        )


def test_unreachable_cluster_is_reported() -> None:
    error = run_rejected("127.0.0.1:1", "--timeout", "0.5")
    assert "no broker answers" in error
    assert "127.0.0.1:1" in error


def test_existing_output_is_not_overwritten(silent: str, tmp_path: Path) -> None:
    assert run_rejected(silent, "--to", str(tmp_path)) == (
        f"error: --to: {tmp_path} exists already; choose another, or remove it"
    )
    nowhere = tmp_path / "nowhere" / "report.html"
    assert run_rejected(silent, "--html", str(nowhere)) == (
        f"error: --html: there is no directory {nowhere.parent}"
    )


def test_missing_modules_are_reported_with_the_extra_that_has_them(
    silent: str, tmp_path: Path
) -> None:
    for option, module in (("--html", "jinja2"), ("--to", "pyarrow")):
        command = [sys.executable, "-c", WITHOUT_SPARK, *REPORT, option, str(tmp_path / "new")]
        done = subprocess.run(
            [*command, "-b", silent], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2
        assert f"{option}: needs {module}, which is not installed; pip install" in done.stderr
        assert "[spark]" in done.stderr
