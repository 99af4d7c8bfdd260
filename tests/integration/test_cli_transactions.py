"""Transactions on the command line: list, describe, abort, hanging transactions, produce and consume."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from barnabas import LocalCluster, TopicPartition
from barnabas.cli import main
from barnabas.cli.records.produce import abort
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.client.transactional_producer import ProducerPhase, TransactionalProducer
from barnabas.errors import ApiError
from barnabas.explain import partitions
from support.command import COMMAND, run
from support.process import ENVIRONMENT
from support.waiting import eventually

SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    # Otherwise the brokers prevent hanging transactions.
    "transaction.partition.verification.enable": False,
}


class Transactions:
    """Runs commands in this process, which is faster, and `consume` and `produce` in their own."""

    def __init__(self, servers: str, cluster: Cluster) -> None:
        self.servers = servers
        self.cluster = cluster

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        if arguments[0] in ("consume", "produce"):
            return run(*arguments, "-b", self.servers)
        out, err = TextIOWrapper(BytesIO(), encoding="utf-8"), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main.run_command([*arguments, "-b", self.servers])
        out.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.getvalue())

    def ok(self, *arguments: str) -> str:
        ended = self.run(*arguments)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout

    def document(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ok("transactions", *arguments, "-o", "json"))
        return found

    def refused(self, *arguments: str, code: int = 1) -> str:
        ended = self.run(*arguments)
        assert (ended.returncode, ended.stdout) == (code, "")
        return ended.stderr

    def state(self, transactional_id: str) -> str:
        (found,) = self.document("describe", transactional_id)["transactions"]
        return str(found["state"])

    def make_topic(self, name: str) -> TopicPartition:
        (made,) = Admin(self.cluster).create_topics([NewTopic(name=name, partitions=1)])
        assert made.error is None
        return TopicPartition(name, 0)

    def begin(self, transactional_id: str, topic: str) -> TransactionalProducer:
        """Begin a transaction with one record."""
        producer = TransactionalProducer(self.cluster, transactional_id)
        producer.begin()
        producer.send(topic, b"open")
        producer.flush()
        return producer

    def hang(self, transactional_id: str, partition: TopicPartition) -> TransactionalProducer:
        """Write a record of a transaction without telling the coordinator."""
        producer = TransactionalProducer(self.cluster, transactional_id)
        producer.begin()
        producer.partitions.add(partition)
        producer.send(partition.topic, b"hanging", timestamp=1_000)
        producer.flush()
        return producer

    def initialize(self, number: int) -> TransactionalProducer | None:
        """Return a producer with a transactional id of this number, or None if broker 2 does not coordinate it."""
        producer = TransactionalProducer(self.cluster, f"awaited-{number}")
        (listed,) = self.document("list", "--producer-id", str(producer.link.identity[0]))[
            "transactions"
        ]
        return producer if listed["coordinator"] == 2 else None

    def stable_end(self, partition: TopicPartition) -> int:
        return latest_offsets(self.cluster, [partition], committed=True)[partition]


@pytest.fixture(scope="module")
def transactions() -> Iterator[Transactions]:
    with (
        LocalCluster(brokers=2, settings=SETTINGS) as running,
        Cluster(running.bootstrap_servers, timeout_s=15) as cluster,
    ):
        yield Transactions(running.bootstrap_servers, cluster)


def test_list_and_describe_show_open_transactions(transactions: Transactions) -> None:
    transactions.make_topic("listed")
    producer = transactions.begin("listed-1", "listed")
    (listed,) = [
        each
        for each in transactions.document("list", "--state", "ongoing")["transactions"]
        if each["transactional_id"] == "listed-1"
    ]
    assert listed["state"] == "Ongoing"
    assert transactions.document("list", "--producer-id", str(listed["producer_id"])) == {
        "transactions": [listed]
    }
    assert "no transactional id matches" in transactions.ok(
        "transactions", "list", "--longer-than", "1h"
    )
    (described,) = transactions.document("describe", "listed-1")["transactions"]
    assert described["partitions"] == [{"topic": "listed", "partition": 0}]
    assert described["timeout_ms"] == 60_000
    assert described["open_ms"] >= 0
    text = transactions.ok("transactions", "describe", "listed-1")
    assert text.startswith("transactional id listed-1: Ongoing for ")
    assert text.endswith("  partitions listed 0\n")
    producer.commit()
    eventually(lambda: transactions.state("listed-1") == "CompleteCommit", "it is committed")
    assert "listed-1" in transactions.ok("transactions", "list")
    assert "listed-1" in transactions.ok("transactions", "describe")


def test_explain_names_the_transaction_that_consumers_wait_for(
    transactions: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions.make_topic("awaited")
    explain = ("partitions", "explain", "awaited-0", "-o", "json")
    producer = transactions.begin("awaited-1", "awaited")
    producer.send("awaited", b"another")
    producer.flush()
    assert json.loads(transactions.ok(*explain))["findings"] == [], "it is open for a short time"
    monkeypatch.setattr(partitions, "TRANSACTION_OPEN_MS", 0)
    (found,) = json.loads(transactions.ok(*explain))["findings"]
    assert (found["cause"], found["lag"]) == ("transaction_open", 2)
    assert found["details"]["transactional_id"] == "awaited-1"
    assert found["since"].startswith("since ")
    producer.commit()

    def is_healthy() -> bool:
        return not json.loads(transactions.ok(*explain))["findings"]

    eventually(is_healthy, "nothing is left to explain")


def test_abort_by_id_fences_the_producer(transactions: Transactions) -> None:
    partition = transactions.make_topic("fenced")
    producer = transactions.begin("fenced-1", "fenced")
    abort = ("transactions", "abort", "fenced-1")
    assert transactions.ok(*abort, "--dry-run") == (
        "would abort the transaction of fenced-1 in 1 partition\n"
    )
    assert transactions.state("fenced-1") == "Ongoing"
    assert "--yes: required to abort" in transactions.refused(*abort, code=2)
    assert transactions.ok(*abort, "-y") == "aborted the transaction of fenced-1 in 1 partition\n"
    eventually(lambda: transactions.stable_end(partition) == 2, "the marker is written")
    with pytest.raises(Exception, match="another producer uses it"):
        producer.commit()
    assert "has no open transaction: it is" in transactions.refused(*abort, "-y")


def test_hanging_transaction_is_found_and_aborted(transactions: Transactions) -> None:
    partition = transactions.make_topic("hanging")
    producer = transactions.hang("hanging-1", partition)
    assert transactions.stable_end(partition) == 0
    found = transactions.document("find-hanging", "--topic", "hanging")
    assert found["partitions_searched"] == 1
    (hanging,) = found["hanging"]
    assert (hanging["topic"], hanging["start_offset"]) == ("hanging", 0)
    assert hanging["producer_id"] == producer.identity[0]  # type: ignore[index]  # initialized
    text = transactions.ok("transactions", "find-hanging")
    assert "abort --partition hanging-0 --start-offset 0" in text
    why = transactions.ok("topics", "explain", "hanging")
    assert "at offset 0 that no coordinator has" in " ".join(why.split())
    abort = ("transactions", "abort", "--partition", "hanging-0", "--start-offset")
    wrong = transactions.refused(*abort, "7", "-y")
    assert "error: no transaction is open in hanging-0 from offset 7 on\n" in wrong
    assert "hint:  open transactions begin at 0\n" in wrong
    other = ("transactions", "abort", "--partition", "hanging-9", "--start-offset", "0")
    assert "hanging has no partition 9" in transactions.refused(*other)
    assert "would abort" in transactions.ok(*abort, "0", "--dry-run")
    assert transactions.stable_end(partition) == 0
    document = transactions.document("abort", *abort[2:], "0", "-y")
    assert document["aborted"]
    assert transactions.stable_end(partition) == 2
    assert "no hanging transactions in 1 partition\n" in transactions.ok(
        "transactions", "find-hanging", "--topic", "hanging"
    )
    assert "hint:  the partition has none\n" in transactions.refused(*abort, "0", "-y")
    assert transactions.ok("consume", "hanging", "-e") == "hanging\n"
    assert transactions.ok("consume", "hanging", "-e", "--isolation-level", "read_committed") == ""


def test_transaction_of_a_coordinator_is_not_hanging(transactions: Transactions) -> None:
    transactions.make_topic("healthy")
    producer = transactions.begin("healthy-1", "healthy")
    find = ("find-hanging", "--topic", "healthy", "--longer-than", "0ms")
    assert transactions.document(*find)["hanging"] == []
    abort = ("transactions", "abort", "--partition", "healthy-0", "--start-offset", "0", "-y")
    refused = transactions.refused(*abort)
    assert "it belongs to 'healthy-1', which is Ongoing" in refused
    assert "barnabas transactions abort healthy-1" in refused
    producer.abort()


def test_transaction_of_missing_coordinator_is_not_hanging() -> None:
    settings = {**SETTINGS, "transaction.state.log.replication.factor": 1}
    with (
        LocalCluster(brokers=2, settings=settings) as running,
        Cluster(running.bootstrap_servers, timeout_s=15) as cluster,
    ):
        live = Transactions(running.bootstrap_servers, cluster)
        topic = NewTopic(name="awaited", assignment=[[1]])
        assert Admin(cluster).create_topics([topic])[0].error is None
        producer = next(each for each in map(live.initialize, range(100)) if each is not None)
        producer.begin()
        producer.send("awaited", b"open", timestamp=1_000)
        producer.flush()
        running.kill(2)
        short = ("--timeout", "2")
        find = ("transactions", "find-hanging", "--longer-than", "0ms", *short)
        unknown = "COORDINATOR_NOT_AVAILABLE: it is unknown which transactions hang"
        eventually(lambda: unknown in live.run(*find).stderr, "the partition has no leader")
        refused = live.refused(*find)
        assert "has no leader" in refused
        assert "`barnabas topics explain __transaction_state` shows why\n" in refused
        abort = ("transactions", "abort", "--partition", "awaited-0", "--start-offset", "0", *short)
        assert "; --force skips this check\n" in live.refused(*abort, "-y")
        assert "would abort" in live.ok(*abort, "--force", "--dry-run")
        assert "topic awaited: healthy" in live.run("topics", "explain", "awaited").stdout
        running.restore()
        eventually(lambda: live.run(*find).returncode == 0, "the coordinator is back")
        assert "no hanging transactions" in live.ok(*find)


def test_produce_writes_one_transaction(transactions: Transactions, tmp_path: Path) -> None:
    partition = transactions.make_topic("lines")
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("one\ntwo\n")
    bad.write_text('{"a": 1}\nnot json\n')
    produce = ("produce", "lines", "--transactional-id", "lines-1")
    assert transactions.ok(*produce, str(good)) == ""
    eventually(lambda: transactions.stable_end(partition) == 3, "the transaction is committed")
    read = ("consume", "lines", "-e", "--isolation-level", "read_committed")
    assert transactions.ok(*read) == "one\ntwo\n"
    assert transactions.ok(*read, "-g", "reader") == "one\ntwo\n"
    refused = transactions.refused(*produce, str(bad), "--value-format", "json", code=2)
    assert "the transaction was aborted" in refused
    assert transactions.ok(*read) == "one\ntwo\n"
    assert json.loads(transactions.ok(*produce, str(good), "--dry-run", "-o", "json"))["dry_run"]
    refused = transactions.refused(*produce, str(good), "--transaction-timeout", "2000000")
    assert "error: INVALID_TRANSACTION_TIMEOUT: " in refused
    assert "is more than transaction.max.timeout.ms of the brokers" in refused


def test_produce_aborts_on_interrupt(transactions: Transactions) -> None:
    partition = transactions.make_topic("interrupted")
    process = subprocess.Popen(
        [*COMMAND, "produce", "interrupted", "--transactional-id", "i", "-b", transactions.servers],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    with process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("one\n")
        process.stdin.flush()

        def is_sent() -> bool:
            return latest_offsets(transactions.cluster, [partition])[partition] == 1

        eventually(is_sent, "the record is written")
        process.terminate()
        assert "the transaction was aborted" in process.stderr.read()
    assert process.returncode == 143
    eventually(lambda: transactions.stable_end(partition) == 2, "the abort marker is written")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["describe", "listd-9"], 1, "there is no transactional id 'listd-9'"),
        (["describe", ""], 1, "error: INVALID_REQUEST: "),
        (["abort", "nobody", "-y"], 1, "there is no transactional id 'nobody'"),
        (["find-hanging", "--topic", "nowhere"], 1, "there is no topic 'nowhere'"),
        (
            ["abort", "--partition", "nowhere-0", "--start-offset", "0"],
            1,
            "there is no topic 'nowhere'",
        ),
        (["abort", "--partition", "nowhere", "--start-offset", "0"], 2, "is not a partition"),
        (["abort"], 2, "write ID, or both --partition and --start-offset"),
        (["abort", "id", "--force"], 2, "cannot be combined with"),
        (["list", "--longer-than", "soon"], 2, "'soon' is not a duration"),
        (["list", "--state", "Asleep"], 2, "'Asleep' is not one of"),
    ],
)
def test_wrong_arguments_are_explained(
    transactions: Transactions, arguments: list[str], code: int, text: str
) -> None:
    assert text in transactions.refused("transactions", *arguments, code=code)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--transactional-id", ""], "at least one character"),
        (["--transactional-id", "caf\udce9"], "at least one character"),
        (["--transactional-id", "a", "--transaction-timeout", "0"], "is not in the range"),
        (["--transaction-timeout", "5"], "needs --transactional-id"),
        (["--transactional-id", "a", "--acks", "1"], "cannot be combined with --acks 1"),
    ],
)
def test_produce_rejects_wrong_transactions(
    transactions: Transactions, options: list[str], text: str
) -> None:
    assert text in transactions.refused("produce", "lines", *options, code=2)


def test_unknown_topic_is_rejected_before_the_transaction(transactions: Transactions) -> None:
    produce = ("produce", "nowhere", "--transactional-id", "never-created")
    assert "there is no topic 'nowhere'" in transactions.refused(*produce)
    refused = transactions.refused("transactions", "describe", "never-created")
    assert "there is no transactional id" in refused


def test_failed_produce_reports_the_result_of_its_transaction(transactions: Transactions) -> None:
    transactions.make_topic("results")
    producer = transactions.begin("results-1", "results")
    transactions.begin("results-1", "results").abort()
    with pytest.raises(ApiError):
        producer.commit()
    assert abort(producer) == "the cluster has aborted the transaction"
    producer = transactions.begin("results-1", "results")
    producer.commit()
    assert abort(producer) == "the transaction was committed"
    producer.phase = ProducerPhase.ENDING  # as after a commit whose response was lost
    assert abort(producer) == "the result of the transaction is unknown"


def test_transaction_of_a_lost_cluster_ends_after_its_timeout() -> None:
    with (
        LocalCluster(settings=SETTINGS) as running,
        Cluster(running.bootstrap_servers, timeout_s=5) as cluster,
    ):
        lost = Transactions(running.bootstrap_servers, cluster)
        lost.make_topic("lost")
        producer = lost.begin("lost-1", "lost")
        running.brokers[1].kill()
        cluster.timeout_s = 0.1
        assert abort(producer) == (
            "the transaction could not be aborted; the cluster does so after 60 s"
        )
