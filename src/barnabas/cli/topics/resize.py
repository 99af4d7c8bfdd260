"""`barnabas topics resize`: copy a topic to a new one with another number of partitions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from barnabas.batch.compression import Compression
from barnabas.cli.connection import connect, connection_options
from barnabas.cli.options import (
    dry_run_option,
    master_option,
    output_option,
    timeout_option,
    verify_option,
)
from barnabas.cli.spark.job_session import job_session
from barnabas.cli.terminal.output import OutputFormat, format_table, plural, print_note, show
from barnabas.cli.topics.copy_options import copied_rows, copied_text, copy_options
from barnabas.cli.topics.create import parse_topic_configs
from barnabas.cli.topics.deletion import report_deletion
from barnabas.cli.topics.lookup import complete_topics, explain_rejected_name, find_topic
from barnabas.errors import ApiError
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.topic_state import count_offsets, look_up_state

if TYPE_CHECKING:
    from barnabas.jobs.copy_topic import NewCopy
    from barnabas.jobs.resize import ResizeRun
    from barnabas.jobs.swap import SwapRun


@click.command("resize")
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    required=True,
    help="Number of partitions of the new topic.",
)
@click.option(
    "--to",
    "new_name",
    required=True,
    metavar="NEW",
    help="Topic for the records. It is created if it does not exist.",
)
@click.option(
    "--swap",
    is_flag=True,
    help="Copy until NAME does not grow any more, then move its consumer groups to NEW.",
)
@copy_options
@verify_option
@dry_run_option
@master_option
@connection_options
@timeout_option
@output_option
def resize_topic(
    name: str,
    partitions: int,
    new_name: str,
    swap: bool,
    replication_factor: int | None,
    configs: tuple[str, ...],
    compression: Compression,
    verify: bool,
    dry_run: bool,
    master: str | None,
    bootstrap_servers: str,
    timeout_s: float,
    output: OutputFormat,
) -> None:
    """Copy topic NAME to the new topic NEW with more or fewer partitions.

    Records with a key go to the partition of the key and keep their order. Records that are written to NAME after the
    start are not copied. A run that was killed can be repeated: it continues, and writes no record twice.

    With --swap, clients can move to NEW. Later records are copied too, until NAME does not grow any more: stop its
    producers. Then each consumer group without members gets committed offsets in NEW. It skips no record, but may get
    some again. NAME is not changed.

    Example: barnabas topics resize orders --partitions 3 --to orders-3 --swap
    """
    from barnabas.jobs.copy_topic import NewCopy
    from barnabas.jobs.resize import run_resize
    from barnabas.jobs.swap import run_swap

    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        find_topic(cluster, name)
        source = look_up_state(cluster, name)
        chosen = parse_topic_configs(configs)
        new = NewCopy(
            name=new_name,
            partition_count=partitions,
            settings={**source.settings, **chosen},
            replication_factor=replication_factor or source.replication_factor,
            compression=compression,
            chosen=chosen,
        )
        open_spark = job_session(master, cluster, f"resize {name}")
        place = (open_spark, cluster, source, new)
        swapped = None
        try:
            with report_deletion(cluster, name, source.id):
                if swap:
                    report = partial(report_growth, name)
                    swapped = run_swap(*place, report, verify=verify, dry_run=dry_run)
                    run = swapped.resize
                else:
                    run = run_resize(*place, verify=verify, dry_run=dry_run)
        except ApiError as error:
            raise explain_rejected_name(error, new_name) from None
    document = resize_document(name, new, run, verify=verify, dry_run=dry_run)
    if swapped is None:
        show(output, document, resize_text)
        return
    show(output, document | swap_document(swapped), swap_text)
    if not dry_run:
        raise_if_incomplete(name, swapped)


def report_growth(name: str, offsets: int) -> None:
    why = f"topic {name} is still written to ({plural(offsets, 'new record')})"
    print_note(f"{why}: stop its producers, or press Ctrl-C and run the command again later")


def raise_if_incomplete(name: str, run: SwapRun) -> None:
    """Raise JobRefused if a later run has something left to do."""
    from barnabas.jobs.moved_groups import ACTIVE

    active = [each.group for each in run.groups if each.status == ACTIVE]
    if run.uncopied:
        why = f"topic {name} has {plural(run.uncopied, 'offset')} that were not copied: it is still written to"
        raise JobRefused(
            f"{why}, or a transaction is open; stop its producers, and run the command again"
        )
    if active:
        have = "group {} has" if len(active) == 1 else "groups {} have"
        why = f"{have.format(', '.join(active))} active members and did not move"
        raise JobRefused(f"{why}; stop the consumers, and run the command again")


def resize_document(
    name: str, new: NewCopy, run: ResizeRun, *, verify: bool, dry_run: bool
) -> dict[str, Any]:
    return {
        "source": name,
        "topic": new.name,
        "existed": run.existed,
        "source_partitions": len(run.spans),
        "source_offsets": count_offsets(run.spans),
        "verified": verify and not dry_run,
        "dry_run": dry_run,
        "partitions": copied_rows(run.partitions),
    }


def swap_document(run: SwapRun) -> dict[str, Any]:
    return {"uncopied": run.uncopied, "groups": [each._asdict() for each in run.groups]}


def swap_text(document: dict[str, Any]) -> str:
    from barnabas.jobs.moved_groups import KEPT

    name, topic, groups = document["source"], document["topic"], document["groups"]
    lines = [resize_text(document)]
    if groups:
        columns = ["group", "status", "members", "lag", "redelivered"]
        rows = [[group[column] for column in columns] for group in groups]
        lines.append(format_table(columns, rows, null="-"))
    else:
        lines.append(f"no consumer group has committed offsets in topic {name}")
    if any(group["status"] == KEPT for group in groups):
        lines.append(f"kept: the group has offsets of its own in {topic}, which were not changed")
    if document["dry_run"]:
        lines.append("nothing was changed; a group moves when it has no members")
        return "\n".join(lines)
    return "\n".join(
        [
            *lines,
            "next steps:",
            f"  1. point the producers at {topic}",
            f"  2. subscribe the consumers to {topic}",
            f"  3. delete topic {name} when no client uses it any more",
        ]
    )


def resize_text(document: dict[str, Any]) -> str:
    if not document["dry_run"]:
        return copied_text(document, f"topic {document['source']}")
    verb = "continue" if document["existed"] else "create"
    return (
        f"would {verb} topic {document['topic']} with {plural(len(document['partitions']), 'partition')} "
        f"and copy {plural(document['source_offsets'], 'offset')} of topic {document['source']}, "
        f"which has {plural(document['source_partitions'], 'partition')}"
    )
