"""`barnabas elect-leaders`: preferred elections, or unclean elections for partitions without a leader.

    barnabas elect-leaders                              preferred leaders of all partitions
    barnabas elect-leaders --topic orders:0,2 --dry-run
    barnabas elect-leaders --unclean --topic orders     a replica that is not in sync becomes leader: loses records

Only partitions that need an election are sent to the controller. An unclean election asks for confirmation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from barnabas.cli.cluster_command import cluster_command, servers_hint
from barnabas.cli.elections.partition_file import parse_partition_file
from barnabas.cli.elections.plan import PredictedElection, index_partitions, predict_elections
from barnabas.cli.groups.reset import parse_topic_partitions
from barnabas.cli.options import dry_run_option, yes_option
from barnabas.cli.terminal.failure import ErrorWithHint
from barnabas.cli.terminal.output import OutputFormat, confirm, format_table, plural, show
from barnabas.cli.terminal.wait_progress import show_progress_while
from barnabas.cli.topics.lookup import complete_topics, find_topic
from barnabas.client.cluster import Cluster
from barnabas.client.leader_elections import elect_leaders
from barnabas.client.view import ClusterView
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.messages.elect_leaders import ElectionType

FAILURES_NAMED_MAX = 3


@click.command("elect-leaders")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T[:P,…]",
    shell_complete=complete_topics,
    help="A topic, or some partitions of it; repeatable.",
)
@click.option(
    "--partition",
    "numbers",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="P",
    help="A partition of the only --topic; repeatable.",
)
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help='Partitions in JSON: {"partitions": [{"topic": "orders", "partition": 0}]}.',
)
@click.option(
    "--all", "all_partitions", is_flag=True, help="All partitions; default without --unclean."
)
@click.option(
    "--unclean",
    is_flag=True,
    help="If a partition has no leader, elect a replica that is not in sync. This loses records.",
)
@yes_option
@dry_run_option
@cluster_command
def elect_leaders_command(
    cluster: Cluster,
    topics: tuple[str, ...],
    numbers: tuple[int, ...],
    file: Path | None,
    all_partitions: bool,
    unclean: bool,
    yes: bool,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Move leadership back to the preferred leaders.

    The preferred leader is the first replica of a partition. With --unclean, elect leaders of partitions that have
    none, even if that loses records.

    Example: barnabas elect-leaders --topic orders --dry-run
    """
    election = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    specs = parse_selection(topics, numbers)
    check_selection(specs, file, all_partitions, unclean)
    listed = read_partition_file(file) if file else None
    partitions = select_partitions(cluster, specs, listed)
    predicted = predict_elections(cluster.view, partitions, election)
    outcomes: Mapping[TopicPartition, ApiError | None] = {}
    if predicted and not dry_run:
        if unclean:
            confirm(
                unclean_question(predicted),
                yes=yes,
                purpose="for unclean elections",
                if_refused="no leader was elected",
            )
        wanted = [each.partition for each in predicted]
        with show_progress_while(cluster, lambda seen: remaining_elections(seen, predicted)):
            outcomes = elect_leaders(cluster, election, wanted)
        predicted = with_elected_leaders(cluster, predicted)
    document = elections_document(election, len(partitions), predicted, outcomes, dry_run=dry_run)
    show(output, document, elections_text)
    if failure := elections_failure(document, outcomes):
        raise failure


# ---- selection -------------------------------------------------------------------------------------------------


def parse_selection(
    topics: Sequence[str], numbers: Sequence[int]
) -> list[tuple[str, Sequence[int]]]:
    """Return (topic, partitions) of each --topic; no partitions means all. --partition adds to the only topic."""
    specs: list[tuple[str, Sequence[int]]] = [parse_topic_partitions(text) for text in topics]
    if not numbers:
        return specs
    if len(specs) != 1:
        raise ConfigError(
            "--partition", "needs exactly one --topic; or use --topic T:P,… for several"
        )
    ((topic, listed),) = specs
    return [(topic, [*listed, *numbers])]


def check_selection(
    specs: Sequence[object], file: Path | None, all_partitions: bool, unclean: bool
) -> None:
    chosen = [
        option
        for option, is_used in (
            ("--topic", bool(specs)),
            ("--file", file is not None),
            ("--all", all_partitions),
        )
        if is_used
    ]
    if len(chosen) > 1:
        raise ConfigError(chosen[0], f"cannot be combined with {chosen[1]}")
    if unclean and not chosen:
        raise ConfigError(
            "--unclean", "loses records: choose the partitions with --topic, --file or --all"
        )


def read_partition_file(path: Path) -> list[TopicPartition]:
    try:
        return parse_partition_file(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ConfigError("--file", f"{path} is not JSON: {error}") from None
    except (OSError, ValueError) as error:
        raise ConfigError("--file", f"{path}: {error}") from None


def select_partitions(
    cluster: Cluster,
    specs: Sequence[tuple[str, Sequence[int]]],
    listed: Sequence[TopicPartition] | None,
) -> list[TopicPartition]:
    """Return the partitions of `specs` or `listed`; all partitions of the cluster if there are none of both.

    The metadata of their topics is in `cluster.view` afterwards.
    """
    if listed is not None:
        specs = [(each.topic, [each.partition]) for each in listed]
    elif not specs:
        return sorted(index_partitions(cluster.refresh(None)))
    names = list(dict.fromkeys(topic for topic, _ in specs))
    cluster.refresh(names)
    topics = {name: find_topic(cluster, name) for name in names}
    known = index_partitions(cluster.view)
    wanted = dict.fromkeys(
        TopicPartition(name, number)
        for name, numbers in specs
        for number in numbers or [each.partition for each in topics[name].partitions]
    )
    for partition in wanted:
        if partition not in known:
            cluster.view.partition(partition)  # raises the error
    return list(wanted)


def unclean_question(predicted: Sequence[PredictedElection]) -> str:
    lossy = sum(each.is_unclean for each in predicted)
    question = f"Elect leaders of {plural(len(predicted), 'partition')}?"
    if not lossy:
        return question
    return (
        f"{plural(lossy, 'partition')} would get a leader that is not in sync; records that it does "
        f"not have are lost. {question}"
    )


def remaining_elections(cluster: Cluster, predicted: Sequence[PredictedElection]) -> str:
    """Return `3 of 60 partitions wait for their new leader`, or an empty text if none does."""
    expected = [each for each in predicted if each.after is not None]
    seen = index_partitions(refresh_topics(cluster, expected))
    waiting = sum(
        each.partition not in seen or seen[each.partition].leader != each.after for each in expected
    )
    if not waiting:
        return ""
    return f"{waiting:,} of {plural(len(expected), 'partition')} waiting for the new leader"


def with_elected_leaders(
    cluster: Cluster, predicted: Sequence[PredictedElection]
) -> list[PredictedElection]:
    """Replace predicted leaders by those in the metadata. A broker may learn late: an old leader is ignored."""
    seen = index_partitions(refresh_topics(cluster, predicted))

    def leader(each: PredictedElection) -> int | None:
        found = seen.get(each.partition)
        if found is None or found.is_offline or found.leader == each.before:
            return each.after
        return found.leader

    return [replace(each, after=leader(each)) for each in predicted]


def refresh_topics(cluster: Cluster, predicted: Sequence[PredictedElection]) -> ClusterView:
    return cluster.refresh(list(dict.fromkeys(each.partition.topic for each in predicted)))


# ---- output ----------------------------------------------------------------------------------------------------


def elections_document(
    election: ElectionType,
    count: int,
    predicted: Sequence[PredictedElection],
    outcomes: Mapping[TopicPartition, ApiError | None],
    *,
    dry_run: bool,
) -> dict[str, Any]:
    """Build the document. Partitions that need no election are only counted."""
    rows = [election_row(each, outcomes.get(each.partition), dry_run) for each in predicted]
    shown = [row for row in rows if row["result"] != "not needed"]
    return {
        "election": election.name.lower(),
        "dry_run": dry_run,
        "not_needed": count - len(shown),
        "partitions": shown,
    }


def election_row(
    predicted: PredictedElection, error: ApiError | None, dry_run: bool
) -> dict[str, Any]:
    if dry_run:
        result = "would fail" if predicted.after is None else "would elect"
    elif error is None:
        result = "elected"
    else:
        result = "not needed" if error.code is ErrorCode.ELECTION_NOT_NEEDED else "failed"
    return {
        "topic": predicted.partition.topic,
        "partition": predicted.partition.partition,
        "before": predicted.before,
        "after": predicted.after if result in ("would elect", "elected") else predicted.before,
        "result": result,
        "unclean": predicted.is_unclean,
        "error": error.code.name if result == "failed" and error else None,
        "why": predicted.why or (error.message if result == "failed" and error else None),
    }


def elections_text(document: dict[str, Any]) -> str:
    rows = document["partitions"]
    count = document["not_needed"]
    if not rows:
        return f"no election is needed: {satisfied_text(document['election'], count)}"
    failed = sum(row["result"] in ("failed", "would fail") for row in rows)
    verb = "would elect" if document["dry_run"] else "elected"
    parts = [f"{verb} {plural(len(rows) - failed, document['election'] + ' leader')}"]
    if failed:
        parts.append(f"{failed:,} {'would fail' if document['dry_run'] else 'failed'}")
    if count:
        parts.append(satisfied_text(document["election"], count))
    cells = itemgetter("topic", "partition", "before", "after")
    table = [[*cells(row), remark(row)] for row in rows]
    return "\n".join(
        [
            "; ".join(parts),
            format_table(["topic", "partition", "before", "after", ""], table, null="none"),
        ]
    )


def satisfied_text(election: str, count: int) -> str:
    one = count == 1
    if election == "preferred":
        return f"{plural(count, 'partition')} {'has its' if one else 'have their'} preferred leader"
    return f"{plural(count, 'partition')} {'has' if one else 'have'} a leader"


def remark(row: dict[str, Any]) -> str:
    if row["result"] in ("failed", "would fail"):
        return row["why"] or row["error"] or ""
    return "not in sync: loses records" if row["unclean"] else ""


def elections_failure(
    document: Mapping[str, Any], outcomes: Mapping[TopicPartition, ApiError | None]
) -> ApiError | None:
    """Return the error of the command if an election failed: the first one, with the partitions in the message."""
    failed = [row for row in document["partitions"] if row["result"] == "failed"]
    if not failed:
        return None
    names = [f"{row['topic']}-{row['partition']}" for row in failed]
    error = outcomes[TopicPartition(failed[0]["topic"], failed[0]["partition"])]
    assert error is not None, "the election failed"
    more = (
        f" and {len(names) - FAILURES_NAMED_MAX:,} more" if len(names) > FAILURES_NAMED_MAX else ""
    )
    return ErrorWithHint(
        error,
        f"the election failed for {', '.join(names[:FAILURES_NAMED_MAX])}{more}",
        failure_hint(error.code, failed[0]["topic"]),
    )


def failure_hint(code: ErrorCode, topic: str) -> str:
    servers = servers_hint()
    if code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
        return (
            "a preferred leader must be alive and in sync; "
            f"`barnabas topics describe {topic}{servers}` shows which replicas are missing"
        )
    if code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
        return f"start a broker with a replica; `barnabas brokers list{servers}` shows the live brokers"
    return f"see `barnabas topics describe {topic}{servers}`"
