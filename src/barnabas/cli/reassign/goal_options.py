"""Options that name the goal of a plan, and the plan for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import click
from msgspec import Struct

from barnabas.cli.cluster_command import servers_hint
from barnabas.cli.terminal.failure import ErrorWithHint, suggest_names
from barnabas.cli.topics.lookup import complete_topics
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.reassignment.goals import (
    TooFewBrokers,
    balance_all,
    change_replication_factor,
    drain_brokers,
    fill_brokers,
    move_to_brokers,
)
from barnabas.reassignment.json_file import (
    InvalidReassignmentJson,
    check_reassignment_file,
    parse_reassignment_json,
)
from barnabas.reassignment.layout import Layout, ReplicaIds
from barnabas.reassignment.plan import ReassignmentPlan, build_plan

GOALS = "--balance, --brokers, --add-broker, --drain, --replication-factor or a plan file"


class Goal(Struct, frozen=True, kw_only=True):
    """Goal of a plan. Exactly one field is set, besides `topics` and `no_racks`."""

    file: str | None = None
    is_balance: bool = False
    brokers: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    drained: tuple[int, ...] = ()
    replication_factor: int | None = None
    topics: tuple[str, ...] = ()
    no_racks: bool = False


def broker_ids_of_option(
    _context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[int, ...]:
    """Parse broker ids from repeated options and from lists: `1,2,3`."""
    words = [word.strip() for value in values for word in value.split(",") if word.strip()]
    for word in words:
        if not word.isascii() or not word.isdigit():
            raise click.BadParameter(f"{word!r} is not a broker id", param=parameter)
    return tuple(dict.fromkeys(map(int, words)))


def broker_list_option(name: str, variable: str, about: str) -> Callable[[Any], Any]:
    return click.option(
        name, variable, multiple=True, metavar="ID,…", callback=broker_ids_of_option, help=about
    )


def goal_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a goal. The command gets them as keyword arguments for `parse_goal`."""
    for option in reversed(
        [
            click.option("--balance", is_flag=True, help="Spread replicas, leaders and bytes evenly over all brokers."),
            broker_list_option("--brokers", "brokers", "Place the partitions on these brokers only."),
            broker_list_option("--add-broker", "added", "Move a fair share to this new broker, and nothing else."),
            broker_list_option("--drain", "drained", "Move all replicas away from this broker."),
            click.option("--replication-factor", type=click.IntRange(min=1), help="New number of replicas."),
            click.option(
                "--topic", "topics", multiple=True, shell_complete=complete_topics,
                help="Only this topic; repeatable. Default: all topics.",
            ),
            click.option("--no-racks", is_flag=True, help="Ignore the racks of brokers."),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


def parse_goal(
    file: str | None,
    *,
    balance: bool,
    brokers: tuple[int, ...],
    added: tuple[int, ...],
    drained: tuple[int, ...],
    replication_factor: int | None,
    topics: tuple[str, ...],
    no_racks: bool,
) -> Goal:
    """Return the goal. Raises ConfigError unless exactly one is given."""
    given = [file, balance, brokers, added, drained, replication_factor]
    if sum(map(bool, given)) != 1:
        raise ConfigError("goal", f"give exactly one of {GOALS}")
    if file and topics:
        raise ConfigError(
            "--topic", "cannot be combined with a plan file, which names its partitions"
        )
    return Goal(
        file=file,
        is_balance=balance,
        brokers=brokers,
        added=added,
        drained=drained,
        replication_factor=replication_factor,
        topics=topics,
        no_racks=no_racks,
    )


def make_plan(layout: Layout, goal: Goal) -> ReassignmentPlan:
    """Return the plan. Raises ApiError with the reason if the goal cannot be reached."""
    unknown = set(goal.topics) - {partition.topic for partition in layout.partitions}
    if unknown:
        raise no_such_topic(min(unknown), sorted({each.topic for each in layout.partitions}))
    if goal.no_racks:
        layout = Layout(brokers=dict.fromkeys(layout.brokers), partitions=layout.partitions)
    try:
        return build_plan(layout, choose_targets(layout.only(goal.topics), goal))
    except TooFewBrokers as error:
        raise too_few_brokers(error) from None


def choose_targets(layout: Layout, goal: Goal) -> dict[TopicPartition, ReplicaIds]:
    if goal.file:
        return read_plan_file(goal.file)
    if goal.is_balance:
        return balance_all(layout)
    if goal.brokers:
        return move_to_brokers(layout, goal.brokers)
    if goal.added:
        return fill_brokers(layout, goal.added)
    if goal.drained:
        return drain_brokers(layout, goal.drained)
    assert goal.replication_factor is not None, "a goal has one field"
    return change_replication_factor(layout, goal.replication_factor)


def read_plan_file(path: str) -> dict[TopicPartition, ReplicaIds]:
    """Read a plan in Kafka's JSON format; `-` is standard input. Raises ConfigError."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        found = parse_reassignment_json(text)
        targets = check_reassignment_file(found)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            path, f"cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    except InvalidReassignmentJson as error:
        raise ConfigError(path, error.message) from None
    if found.log_dirs:
        why = "names log directories; use `barnabas kafka-reassign-partitions --execute` for these"
        raise ConfigError(path, why)
    return targets


def too_few_brokers(error: TooFewBrokers) -> ApiError:
    if not error.brokers:
        return error
    topics = "".join(f" --topic {quote(each)}" for each in error.topics)
    command = f"barnabas reassign run --replication-factor {error.brokers}{topics}{servers_hint()}"
    return ErrorWithHint(error, error.message, f"add a broker, or first run `{command}`")


def no_such_topic(name: str, names: Sequence[str]) -> ApiError:
    hint = suggest_names(name, names, "see `barnabas topics list`")
    error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return ErrorWithHint(error, f"there is no topic {name!r}", hint)
