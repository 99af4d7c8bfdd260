"""Moves of replicas between log directories, as kafka-reassign-partitions starts and reports them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from barnabas.cli.kafka.failures import ADMIN_COMMAND_FAILED, RequestRejected
from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition

RETRY_S = 0.1

ReplicaOnBroker = tuple[TopicPartition, int]


class LogDirMove(NamedTuple):
    """A requested move. `current` and `future` are the directories of the replica now, None if it has none."""

    replica: ReplicaOnBroker
    target: str
    current: str | None
    future: str | None
    is_broker_alive: bool = True

    @property
    def is_done(self) -> bool:
        return self.future is None


def find_moves(cluster: Cluster, targets: Mapping[ReplicaOnBroker, str]) -> list[LogDirMove]:
    """Return the state of the requested moves, ordered by broker and partition."""
    brokers = {broker for _, broker in targets}
    alive = brokers & set(map(int, cluster.refresh([]).brokers))
    directories = find_directories(cluster, alive, {partition for partition, _ in targets})
    return [
        LogDirMove(
            replica=replica,
            target=target,
            current=directories.get((*replica, False)),
            future=directories.get((*replica, True)),
            is_broker_alive=replica[1] in alive,
        )
        for replica, target in sorted(targets.items(), key=lambda item: (item[0][1], item[0][0]))
    ]


def find_directories(
    cluster: Cluster, brokers: Collection[int], partitions: Collection[TopicPartition]
) -> dict[tuple[TopicPartition, int, bool], str]:
    """Return (partition, broker, whether it is the future log) → directory."""
    if not brokers:
        return {}
    views = LogDirAdmin(cluster).describe_log_dirs(sorted(brokers), partitions)
    return {
        (log.partition, int(broker), log.is_future): directory.path
        for broker, found in views.items()
        for directory in found
        for log in directory.logs
    }


def move_lines(moves: Collection[LogDirMove]) -> list[str]:
    return [move_line(move) for move in moves]


def move_line(move: LogDirMove) -> str:
    partition, broker = move.replica
    name = f"{partition}-{broker}"
    if not move.is_broker_alive:
        return (
            f"Partition {partition} cannot be found in any live log directory on broker {broker}."
        )
    if move.current is None:
        return (
            f"Partition {partition} is not found in any live log dir on broker {broker}. There is likely an offline"
            " log directory on the broker."
        )
    if move.future is None and move.current == move.target:
        return f"Reassignment of replica {name} completed successfully."
    if move.future is None:
        return (
            f"Partition {partition} on broker {broker} is not being moved from log dir {move.current} to"
            f" {move.target}."
        )
    if move.future == move.target:
        return f"Reassignment of replica {name} is still in progress."
    return f"Partition {partition} on broker {broker} is being moved to log dir {move.future} instead of {move.target}."


def start_moves(
    cluster: Cluster, targets: Mapping[ReplicaOnBroker, str], timeout_s: float
) -> Iterator[str]:
    """Start the moves, and yield a line for each. Raises TimeoutError if some could not be started in time.

    A replica that is just being created on its broker cannot move yet: the request is repeated.
    """
    admin = LogDirAdmin(cluster)
    pending = dict(sorted(targets.items(), key=lambda item: (item[0][1], item[0][0])))
    deadline = Deadline(timeout_s)
    while True:
        requests = {(*partition, broker): path for (partition, broker), path in pending.items()}
        outcomes = admin.alter_replica_log_dirs(requests)
        for (partition, broker), path in list(pending.items()):
            error = outcomes.get((*partition, broker))
            if error is None:
                del pending[partition, broker]
                yield (
                    f"Successfully started moving log directory to {path} for replica {partition} with broker {broker} "
                )
            elif error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                raise RequestRejected(
                    f"Failed to alter dir for {partition}-{broker}: {error.message}",
                    ADMIN_COMMAND_FAILED,
                )
        if not pending:
            return
        if deadline.passed:
            names = ",".join(f"{partition}-{broker}" for partition, broker in pending)
            plural = "" if len(pending) == 1 else "s"
            raise TimeoutError(
                f"Timed out before log directory move{plural} could be started for: {names}"
            )
        time.sleep(RETRY_S)
