"""Execution of a plan with a scripted controller: signals, failures, and the throttle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import click
import pytest

from barnabas.cli.connection import connection_options
from barnabas.cli.reassign import execution
from barnabas.cli.reassign.execution import PlanExecution, result_text
from barnabas.cli.reassign.throttling import BrokerRates, ThrottleState
from barnabas.client.cluster import Cluster
from barnabas.client.reassignment_admin import OngoingReassignment, ReassignmentAdmin
from barnabas.client.view import ClusterView, PartitionView, TopicView
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, TopicPartition
from barnabas.reassignment.plan import build_plan
from barnabas.reassignment.throttles import PartitionMove
from tests.unit.reassignment.layouts import layout_of, tp

LAYOUT = layout_of("a-0 1,2 · a-1 1,2", brokers=dict.fromkeys([1, 2, 3]))
PLAN = build_plan(LAYOUT, {tp("a-0"): (1, 3), tp("a-1"): (3, 2)})
THROTTLES = ThrottleState(topics={}, brokers={7: {"leader.replication.throttled.rate": "1"}})


class ScriptedAdmin(ReassignmentAdmin):
    """Completes reassignments at once. `failure` is raised after a request was carried out."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.requests: list[list[TopicPartition]] = []
        self.rejected: dict[TopicPartition, ApiError] = {}
        self.failure: BaseException | None = None

    def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, ApiError | None]:
        self.requests.append(list(targets))
        if self.failure is not None:
            raise self.failure
        return {each: self.rejected.get(each) for each in targets}

    def list_partition_reassignments(
        self, partitions: object = None, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        return {}


class ScriptedCluster(Cluster):
    """Metadata in which the plan is complete."""

    def refresh(self, topics: Iterable[str] | None = None) -> ClusterView:
        partitions = tuple(
            PartitionView(
                partition=each.partition,
                leader=BrokerId(target[0]),
                leader_epoch=0,
                replicas=target,
                isr=target,
            )
            for each, target in PLAN.targets.items()
        )
        return ClusterView(topics={"a": TopicView(name="a", partitions=partitions)})


class Setup:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.throttled: list[list[TopicPartition]] = []
        self.removals = 0
        self.cluster = ScriptedCluster("localhost:1")
        self.admin = ScriptedAdmin(self.cluster)
        monkeypatch.setattr(execution, "read_throttles", lambda _: THROTTLES)
        monkeypatch.setattr(execution, "set_throttle", self.set_throttle)
        monkeypatch.setattr(execution, "remove_finished_throttles", self.remove)
        monkeypatch.setattr(execution, "elect_leaders", lambda *_: {})
        monkeypatch.setattr(execution, "raise_on_signals", lambda: None)

    def set_throttle(
        self, _cluster: Cluster, moves: Mapping[TopicPartition, PartitionMove], rate: int
    ) -> None:
        assert rate == 1000
        self.throttled.append(list(moves))

    def remove(self, _cluster: Cluster, *, rates_before: BrokerRates) -> list[str]:
        assert rates_before == THROTTLES.brokers
        self.removals += 1
        return ["topic a"]

    def execution(self, batch_size: int | None = None) -> PlanExecution:
        created = PlanExecution(self.cluster, PLAN, throttle=1000, batch_size=batch_size)
        created.admin = self.admin
        return created


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Setup:
    return Setup(monkeypatch)


@pytest.fixture(autouse=True)
def in_command() -> Iterator[click.Context]:
    """The notes contain the option that names the brokers."""

    @click.command
    @connection_options
    def command(bootstrap_servers: str) -> None:
        """A command with brokers."""

    with command.make_context("command", []) as context:
        yield context


def test_each_batch_is_throttled_and_the_throttle_is_removed_once(setup: Setup) -> None:
    result = setup.execution(batch_size=1).execute()
    assert setup.admin.requests == [[tp("a-0")], [tp("a-1")]]
    before_and_after_the_start = [tp("a-0")], [tp("a-0")], [tp("a-1")], [tp("a-1")]
    assert setup.throttled == list(before_and_after_the_start)
    assert setup.removals == 1
    assert (result["started"], result["completed"], result["failed"]) == (2, 2, [])
    assert result_text(result).endswith("\nremoved the throttle of topic a")


def test_rejected_partition_is_reported_and_the_throttle_is_removed(setup: Setup) -> None:
    setup.admin.rejected[tp("a-1")] = ApiError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker"
    )
    result = setup.execution().execute()
    assert (result["started"], result["completed"]) == (1, 1)
    assert "a-1 failed: INVALID_REPLICA_ASSIGNMENT: no such broker" in result_text(result)
    assert setup.removals == 1


@pytest.mark.parametrize(
    "failure", [KeyboardInterrupt(), ApiError(ErrorCode.NETWORK_EXCEPTION, "connection lost")]
)
def test_interrupted_request_counts_as_started(
    setup: Setup, failure: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    setup.admin.failure = failure
    with pytest.raises(type(failure)):
        setup.execution(batch_size=1).execute()
    noted = capsys.readouterr().err
    assert "the reassignment continues; `barnabas reassign status --watch` follows it" in noted
    assert "1 partition of later batches was not started" in noted
    assert setup.removals == 1


def test_interrupt_before_the_first_request_starts_nothing(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(execution, "set_throttle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        setup.execution().execute()
    assert "no reassignment was started" in capsys.readouterr().err
    assert setup.removals == 1


def test_broker_that_must_come_back_is_reported_once(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    ongoing = {tp("a-0"): OngoingReassignment(replicas=(9, 1), adding=(9,), removing=())}
    execution = setup.execution()
    execution.warn_of_stalls(ongoing)
    execution.warn_of_stalls(ongoing)
    noted = " ".join(capsys.readouterr().err.split())
    assert noted.count("a-0 waits for broker 9, not alive") == 1
    assert "`barnabas reassign cancel a`" in noted
