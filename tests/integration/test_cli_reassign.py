"""`barnabas reassign`, `brokers drain` and kafka-reassign-partitions with four brokers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigResource
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.client.producer import Producer
from barnabas.client.reassignment_admin import ReassignmentAdmin
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, TopicPartition
from barnabas.reassignment.throttles import RATES, TOPIC_THROTTLES
from barnabas.wire.messages.describe_configs import ConfigSource, ResourceType
from support.command import COMMAND, run
from support.process import ENVIRONMENT
from support.waiting import eventually
from tests.terminal import on_terminal

NUMBERS = count()
SLOW = "20KB/s"
ASSIGNMENT = "1:2,2:3,3:1,1:3,2:1,3:2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    # Small fetches and short quota windows: a throttle takes effect after a few kilobytes.
    settings = {"replication.quota.window.num": 2, "replica.fetch.max.bytes": 20_000}
    with LocalCluster(brokers=4, settings=settings) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Cluster]:
    with Cluster(cluster.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic(cluster: LocalCluster, client: Cluster) -> Iterator[str]:
    """A topic with six partitions on brokers 1 to 3. Each has 500 KB in batches of 10 KB."""
    name = f"orders{next(NUMBERS)}"
    assignment = tuple(tuple(map(int, each.split(":"))) for each in ASSIGNMENT.split(","))
    (created,) = Admin(client).create_topics([NewTopic(name=name, assignment=assignment)])
    assert created.error is None, created.error
    with Producer(client) as producer:
        for _ in range(50):
            for partition in range(6):
                producer.send(name, b"x" * 10_000, partition=partition)
            producer.flush()
    yield name
    if moving(client) or throttles(client):
        ok(cluster, "reassign", "cancel", "--all", "--yes")
    (deleted,) = Admin(client).delete_topics([name])
    assert deleted.error is None, deleted.error


def ok(cluster: LocalCluster, *arguments: str) -> str:
    ended = run(*arguments, "-b", cluster.bootstrap_servers)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def document(cluster: LocalCluster, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ok(cluster, *arguments, "-o", "json"))
    return found


def replicas(client: Cluster, topic: str) -> list[tuple[int, ...]]:
    return [each.replicas for each in client.refresh([topic]).topic(topic).partitions]


def throttles(client: Cluster) -> list[tuple[str, str]]:
    """Return (resource, setting) of every throttle that is set."""
    view = client.refresh(None)
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in view.topics]
    resources += [ConfigResource(ResourceType.BROKER, str(each)) for each in view.brokers]
    found = []
    for resource, entries in ConfigAdmin(client).describe_configs(resources).items():
        assert not isinstance(entries, ApiError)
        found += [
            (resource.name, entry.name)
            for entry in entries
            if entry.name in (*TOPIC_THROTTLES, *RATES)
            and entry.source in (ConfigSource.TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)
        ]
    return found


def moving(client: Cluster) -> list[TopicPartition]:
    return list(ReassignmentAdmin(client).list_partition_reassignments())


def start_slow_move(cluster: LocalCluster, topic: str) -> None:
    plan = ("reassign", "run", "--add-broker", "4", "--topic", topic, "--throttle", SLOW)
    ok(cluster, *plan, "--no-wait", "--yes")


# ---- plan and run


def test_plan_changes_nothing_and_its_file_is_executed(
    cluster: LocalCluster, client: Cluster, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    options = ("--add-broker", "4", "--topic", topic, "--throttle", "50MB/s")
    before = replicas(client, topic)
    planned = run(
        "reassign", "plan", *options, "--save", str(file), "-b", cluster.bootstrap_servers
    )
    text = planned.stdout
    assert f"barnabas reassign run {file} --throttle 50MB/s -b" in planned.stderr
    assert re.match(
        r"\d partitions change: copy 3 replicas, 1\.\d MB; takes 1 s or more at 50 MB/s", text
    )
    assert replicas(client, topic) == before

    result = document(cluster, "reassign", "run", str(file), "--throttle", "50MB/s", "--yes")[
        "result"
    ]
    assert (result["completed"], result["failed"]) == (result["started"], [])
    planned = json.loads(file.read_text())["partitions"]
    after = replicas(client, topic)
    assert all(after[each["partition"]] == tuple(each["replicas"]) for each in planned)
    assert sum(4 in each for each in after) == 3
    assert throttles(client) == []
    leaders = [each.leader for each in client.refresh([topic]).topic(topic).partitions]
    assert leaders == [each[0] for each in after], "the preferred leaders were elected"


def test_run_in_batches_reaches_the_plan(
    cluster: LocalCluster, client: Cluster, topic: str
) -> None:
    goal = ("--brokers", "3,4", "--topic", topic)
    result = document(cluster, "reassign", "run", *goal, "--batch", "2", "--yes")["result"]
    assert result["completed"] == result["started"] >= 5
    assert all(set(each) == {3, 4} for each in replicas(client, topic))


def test_plan_with_fewer_replicas_than_writes_need_is_a_warning(
    cluster: LocalCluster, topic: str
) -> None:
    ok(cluster, "configs", "alter", "--topic", topic, "min.insync.replicas=2")
    options = ("--replication-factor", "1", "--topic", topic, "-b", cluster.bootstrap_servers)
    noted = " ".join(run("reassign", "plan", *options).stderr.split())
    assert f"topic {topic} would have 1 replica, but min.insync.replicas=2" in noted


def test_dry_run_starts_nothing(cluster: LocalCluster, client: Cluster, topic: str) -> None:
    shown = document(cluster, "reassign", "run", "--drain", "1", "--topic", topic, "--dry-run")
    assert shown["dry_run"]
    assert len(shown["plan"]["partitions"]) == 4
    assert moving(client) == []


def test_run_asks_on_a_terminal(cluster: LocalCluster, client: Cluster, topic: str) -> None:
    command = [*COMMAND, "reassign", "run", "--drain", "1", "--topic", topic]
    code, seen = on_terminal(
        [*command, "-b", cluster.bootstrap_servers], environment=ENVIRONMENT, typed="n\n"
    )
    assert code == 1
    assert "Reassign 4 partitions and copy" in seen
    assert "nothing was changed" in seen
    refused = run(*command[3:], "-b", cluster.bootstrap_servers)
    assert refused.returncode == 2
    assert "--yes: required to move replicas without a terminal" in refused.stderr


def test_progress_is_drawn_on_a_terminal(cluster: LocalCluster, topic: str) -> None:
    command = [*COMMAND, "reassign", "run", "--add-broker", "4", "--topic", topic, "--yes"]
    code, seen = on_terminal(
        [*command, "--throttle", "400KB/s", "-b", cluster.bootstrap_servers],
        environment=ENVIRONMENT,
    )
    assert code == 0, seen
    assert re.search(rf"{topic}-\d +[█▏▎▍▌▋▊▉ ]+ .* of .*waits for broker 4 to catch up", seen)
    assert re.search(r"total +[█▏▎▍▌▋▊▉ ]+", seen)


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--brokers", "1,9"], 1, "INVALID_REPLICA_ASSIGNMENT: broker 9 does not exist"),
        (["--replication-factor", "5"], 1, "replication factor 5 needs 5 live brokers"),
        (["--balance", "--topic", "missing"], 1, "there is no topic 'missing'"),
        (["--balance", "--drain", "1"], 2, "give exactly one of"),
        (["--balance", "--throttle", "fast"], 2, "'fast' is not a rate"),
        (["--drain", "x"], 2, "'x' is not a broker id"),
        (["--drain", "1", "--batch", "2", "--no-wait"], 2, "cannot be combined with --no-wait"),
        (["/no/such/plan.json"], 2, "cannot be read: No such file"),
    ],
)
def test_impossible_plans_are_refused_with_the_reason(
    cluster: LocalCluster, options: list[str], code: int, problem: str
) -> None:
    ended = run("reassign", "run", *options, "-b", cluster.bootstrap_servers)
    assert ended.returncode == code
    assert problem in ended.stderr
    assert "Traceback" not in ended.stderr


# ---- status, cancel and interrupts


def test_status_shows_the_move_and_cancel_restores_the_replicas(
    cluster: LocalCluster, client: Cluster, topic: str
) -> None:
    before = replicas(client, topic)
    start_slow_move(cluster, topic)
    shown = document(cluster, "reassign", "status")
    assert {row["waiting_for"] for row in shown["moving"]} == {"broker 4 to catch up"}
    assert all(row["adding"] == [4] for row in shown["moving"])
    assert shown["throttles"]["topics"][0]["topic"] == topic
    assert shown["throttles_removed"] == []
    text = ok(cluster, "reassign", "status")
    assert "partitions are moving" in text
    assert re.search(r"throttle: 20 KB/s on brokers 1,2,3,4 for 1 topic; .* or more left", text)
    again = run("reassign", "run", "--balance", "--yes", "-b", cluster.bootstrap_servers)
    assert again.returncode == 1
    assert again.stderr.startswith(
        "error: REASSIGNMENT_IN_PROGRESS: 3 partitions are being reassigned"
    )

    first = shown["moving"][0]["partition"]
    assert f"would cancel {topic}-{first}" in ok(
        cluster, "reassign", "cancel", f"{topic}:{first}", "--dry-run"
    )
    assert len(moving(client)) == 3
    ok(cluster, "reassign", "cancel", f"{topic}:{first}", "--yes")
    assert len(moving(client)) == 2
    cancelled = ok(cluster, "reassign", "cancel", topic, "--yes")
    assert f"removed the throttle of topic {topic} and brokers 1,2,3,4" in cancelled
    assert [set(each) for each in replicas(client, topic)] == [set(each) for each in before]
    assert throttles(client) == []
    none = run("reassign", "cancel", topic, "--yes", "-b", cluster.bootstrap_servers)
    assert none.returncode == 1
    assert "NO_REASSIGNMENT_IN_PROGRESS" in none.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_reassignment_continues_after_a_signal_and_status_removes_the_throttle(
    cluster: LocalCluster, client: Cluster, topic: str, number: int, code: int
) -> None:
    command = ("reassign", "run", "--add-broker", "4", "--topic", topic, "--throttle", "500KB/s")
    with subprocess.Popen(
        [*COMMAND, *command, "--yes", "-b", cluster.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        eventually(lambda: len(moving(client)) == 3, "the reassignment is started")
        # The command prints nothing between its start and its first poll; a signal may arrive before that.
        process.send_signal(number)
        _, stderr = process.communicate(timeout=30)
        assert process.returncode == code
    assert "the reassignment continues; `barnabas reassign status --watch" in stderr
    assert "removes the throttle when it is done" in stderr
    assert throttles(client) != []
    watched = ok(cluster, "reassign", "status", "--watch")
    assert "no partition is moving" in watched
    assert f"removed the throttle of topic {topic} and brokers 1,2,3,4" in watched
    assert throttles(client) == []
    assert sum(4 in each for each in replicas(client, topic)) == 3


def test_next_command_removes_the_throttle_of_a_killed_one(
    cluster: LocalCluster, client: Cluster, topic: str
) -> None:
    goal = ("--add-broker", "4", "--topic", topic)
    command = [*COMMAND, "reassign", "run", *goal, "--throttle", "500KB/s", "--yes"]
    with subprocess.Popen(
        [*command, "-b", cluster.bootstrap_servers],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    ) as process:
        eventually(lambda: len(moving(client)) == 3, "the reassignment is started")
        process.kill()
    eventually(lambda: moving(client) == [], "the reassignment is complete")
    assert throttles(client) != []

    left = f"topic {topic} and brokers 1,2,3,4"
    healthy = run("cluster", "health", "-b", cluster.bootstrap_servers)
    assert ": a replication throttle is set, but no partition is being" in healthy.stdout
    assert "`barnabas reassign status -b" in healthy.stdout
    for options in (["plan", *goal], ["run", *goal, "--dry-run"]):
        shown = run("reassign", *options, "-b", cluster.bootstrap_servers)
        assert f"warning: an earlier reassignment left a throttle on {left}" in shown.stderr
        assert throttles(client) != []
    ended = run("reassign", "run", *goal, "--yes", "-b", cluster.bootstrap_servers)
    assert ended.returncode == 0
    assert f"removed the throttle of {left}, which an earlier reassignment left" in ended.stderr
    assert throttles(client) == []
    assert "throttle" not in run("cluster", "health", "-b", cluster.bootstrap_servers).stdout


def test_throttle_of_the_operator_survives_a_run(
    cluster: LocalCluster, client: Cluster, topic: str
) -> None:
    rate, replicas_setting = RATES[0], TOPIC_THROTTLES[0]
    ok(cluster, "configs", "alter", "--topic", topic, f"{replicas_setting}=*")
    ok(cluster, "configs", "alter", "--broker", "1", f"{rate}=900000")
    ok(
        cluster,
        "reassign",
        "run",
        "--add-broker",
        "4",
        "--topic",
        topic,
        "--throttle",
        "50MB/s",
        "--yes",
    )
    assert throttles(client) == [(topic, replicas_setting), ("1", rate)]
    found = document(cluster, "reassign", "status")["throttles"]
    assert found["topics"] == [{"topic": topic, replicas_setting: "*"}]
    assert found["brokers"] == [{"broker": 1, rate: "900000"}]
    ok(cluster, "configs", "reset", "--topic", topic, replicas_setting)
    ok(cluster, "configs", "reset", "--broker", "1", rate)


# ---- drain and decommission


def test_drained_broker_has_no_replicas(cluster: LocalCluster, client: Cluster, topic: str) -> None:
    text = ok(cluster, "brokers", "drain", "1", "--yes")
    assert "reassigned" in text
    view = client.refresh(None)
    left = [
        each for found in view.topics.values() for each in found.partitions if 1 in each.replicas
    ]
    assert left == []
    assert "nothing to move" in ok(cluster, "brokers", "drain", "1", "--yes")
    unknown = run("brokers", "drain", "9", "--yes", "-b", cluster.bootstrap_servers)
    assert unknown.returncode == 1
    assert "broker 9 is not alive and has no replica; live brokers: 1, 2, 3, 4" in unknown.stderr


def test_decommission_waits_until_the_broker_is_empty(cluster: LocalCluster, topic: str) -> None:
    found = document(cluster, "brokers", "decommission", "2", "--yes")
    assert (found["alive"], found["logs"], found["pid"]) == (True, 0, None)
    text = ok(cluster, "brokers", "decommission", "2", "--yes")
    assert "broker 2 is empty and can be stopped" in text
    stop = run("brokers", "decommission", "3", "--stop", "--yes", "-b", cluster.bootstrap_servers)
    assert stop.returncode == 1
    assert "--stop: broker 3 is not a process of its own on this machine" in stop.stderr
    assert stop.stdout == "", "the broker is not drained"


def test_broker_that_is_down_is_drained_and_reported() -> None:
    with LocalCluster(brokers=3) as cluster, Cluster(cluster.bootstrap_servers) as client:
        ok(cluster, "topics", "create", "copied", "--replica-assignment", "3:1,1:3")
        cluster.brokers[3].kill()
        eventually(lambda: 3 not in client.refresh([]).brokers, "broker 3 has left the cluster")
        alive = f"{cluster.brokers[1].address},{cluster.brokers[2].address}"
        ended = run("brokers", "decommission", "3", "--yes", "-b", alive)
        assert ended.returncode == 0, ended.stderr
        assert "broker 3 is down and has no replicas: it need not come back" in ended.stdout
        assert all(set(each) == {1, 2} for each in replicas(client, "copied"))


# ---- kafka-reassign-partitions


def kafka(cluster: LocalCluster, *arguments: str, code: int = 0) -> list[str]:
    ended = run(
        "kafka-reassign-partitions", "--bootstrap-server", cluster.bootstrap_servers, *arguments
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


def test_kafkas_command_generates_executes_and_verifies(
    cluster: LocalCluster, client: Cluster, topic: str, tmp_path: Path
) -> None:
    topics_file, file = tmp_path / "topics.json", tmp_path / "plan.json"
    topics_file.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    generate = (
        "--generate",
        "--topics-to-move-json-file",
        str(topics_file),
        "--broker-list",
        "3,4",
    )
    lines = kafka(cluster, *generate)
    assert (lines[0], lines[2]) == ("Current partition replica assignment", "")
    assert lines[3] == "Proposed partition reassignment configuration"
    assert json.loads(lines[1])["partitions"][0] == {
        "topic": topic, "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"],
    }  # fmt: skip
    file.write_text(lines[4])
    names = ",".join(f"{topic}-{number}" for number in range(6))
    with_file = ("--reassignment-json-file", str(file))

    executed = kafka(cluster, "--execute", *with_file, "--throttle", "20000")
    assert executed[4:] == [
        "Save this to use as the --reassignment-json-file option during rollback",
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is"
        " removed.",
        "The inter-broker throttle limit was set to 20000 B/s",
        f"Successfully started partition reassignments for {names}",
    ]
    listed = kafka(cluster, "--list")
    assert listed[0] == "Current partition reassignments:"
    assert re.fullmatch(
        rf"{topic}-0: replicas: [34],[34],1,2\. adding: [34],[34]\. removing: 1,2\.", listed[1]
    )
    assert f"Reassignment of partition {topic}-0 is still in progress." in kafka(
        cluster, "--verify", *with_file
    )
    assert kafka(cluster, "--execute", *with_file, code=1)[0].startswith(
        "Cannot execute because there is an existing partition assignment.  Use --additional"
    )
    faster = kafka(cluster, "--execute", "--additional", *with_file, "--throttle", "100000000")
    assert "The inter-broker throttle limit was set to 100000000 B/s" in faster
    eventually(lambda: moving(client) == [], "the reassignment is complete")
    assert throttles(client) != []
    assert kafka(cluster, "--verify", *with_file) == [
        "Status of partition reassignment:",
        *(f"Reassignment of partition {topic}-{number} is completed." for number in range(6)),
        "",
        "Clearing broker-level throttles on brokers 1,2,3,4",
        f"Clearing topic-level throttles on topic {topic}",
    ]
    assert throttles(client) == []


def test_kafkas_command_cancels(
    cluster: LocalCluster, client: Cluster, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    partition = {"topic": topic, "partition": 0, "replicas": [4, 1]}
    file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    with_file = ("--reassignment-json-file", str(file))
    kafka(cluster, "--execute", *with_file, "--throttle", "20000")
    assert kafka(cluster, "--cancel", *with_file) == [
        f"Successfully cancelled partition reassignment for: {topic}-0",
        "None of the specified partition moves are active.Clearing broker-level throttles on brokers 1,2,3,4",
        f"Clearing topic-level throttles on topic {topic}",
    ]
    assert kafka(cluster, "--list") == ["No partition reassignments found."]
    assert kafka(cluster, "--cancel", *with_file, "--preserve-throttles") == [
        "None of the specified partition reassignments are active.",
        "None of the specified partition moves are active.",
    ]
    assert throttles(client) == []


def test_kafkas_command_reports_errors_on_standard_output(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    with_file = ("--reassignment-json-file", str(file))

    def executed(replicas: list[int], number: int = 0, name: str = topic) -> str:
        partition = {"topic": name, "partition": number, "replicas": replicas}
        file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        return kafka(cluster, "--execute", *with_file, code=1)[0]

    assert executed([9]) == "Error: Unknown broker id 9"
    assert executed([]) == "Error: Partition replica list cannot be empty"
    assert executed([1, 1]).startswith("Error: Partition replica lists may not contain duplicate")
    unknown = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
    assert executed([1], name="missing") == f"Error: {unknown}: Topic missing not found."
    assert executed([1], number=6) == f"Error: {unknown}: Unable to find partition: {topic}-6"


def test_kafkas_command_moves_replicas_between_directories(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    dirs = [str(tmp_path / name) for name in ("one", "two")]
    with LocalCluster(brokers=1, settings={"log.dirs": ",".join(dirs)}) as cluster:
        with Cluster(cluster.bootstrap_servers) as client:
            ok(cluster, "topics", "create", "stored", "--replica-assignment", "1")
            views = LogDirAdmin(client).describe_log_dirs()
            (current,) = [each.path for each in views[BrokerId(1)] if each.logs]
        (target,) = set(dirs) - {current}
        partition = {"topic": "stored", "partition": 0, "replicas": [1], "log_dirs": [target]}
        file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        with_file = ("--reassignment-json-file", str(file))
        assert kafka(cluster, "--verify", *with_file, "--preserve-throttles")[2] == (
            f"Partition stored-0 on broker 1 is not being moved from log dir {current} to {target}."
        )
        throttle = ("--replica-alter-log-dirs-throttle", "1000000")
        executed = kafka(cluster, "--execute", *with_file, *throttle)
        assert executed[-3:] == [
            "The replica-alter-dir throttle limit was set to 1000000 B/s",
            "Successfully started partition reassignment for stored-0",
            f"Successfully started moving log directory to {target} for replica stored-0 with broker 1 ",
        ]

        def verified() -> list[str]:
            return kafka(cluster, "--verify", *with_file)

        eventually(
            lambda: verified()[2] == "Reassignment of replica stored-0-1 completed successfully.",
            "the replica has moved",
        )
        assert verified()[3:] == [
            "Clearing broker-level throttles on broker 1",
            "Clearing topic-level throttles on topic stored",
        ]


# ---- client


def test_client_reports_the_error_of_each_partition(
    cluster: LocalCluster, client: Cluster, topic: str
) -> None:
    admin = ReassignmentAdmin(client)
    outcomes = admin.alter_partition_reassignments(
        {
            TopicPartition(topic, 0): (9,),
            TopicPartition(topic, 1): None,
            TopicPartition("missing", 0): (1,),
            TopicPartition(topic, 2): (3, 1),
        }
    )
    codes = [None if error is None else error.code for error in outcomes.values()]
    assert codes == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        None,
    ]
    assert admin.list_partition_reassignments([TopicPartition(topic, 0)]) == {}
