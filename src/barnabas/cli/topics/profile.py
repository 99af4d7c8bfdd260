"""`barnabas topics profile`: rates, sizes, keys, duplicates, gaps and balance of a topic, with Spark.

Errors that do not depend on Spark (no broker, no such topic, no records, a bad --html) are reported before it starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import connect, connection_options
from barnabas.cli.options import (
    master_option,
    output_option,
    timeout_option,
)
from barnabas.cli.records.start_position import parse_time
from barnabas.cli.spark.session import spark_session, translate_errors
from barnabas.cli.terminal.failure import CommandError
from barnabas.cli.terminal.output import OutputFormat, format_table, plural, print_note, show
from barnabas.cli.topics.deletion import find_deletion, report_deletion
from barnabas.cli.topics.lookup import complete_topics, find_topic
from barnabas.client.blocking import now_ms
from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError
from barnabas.jobs.topic_range import TopicRange, look_up_range
from barnabas.progress_line import progress_paused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.jobs.topic_profile import TopicProfile

SHORT_JOB_OFFSETS = 1_000_000
"""A job with fewer offsets takes a few seconds. Java's optimizing compiler would cost more than it saves."""


@click.command("profile")
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--from",
    "from_time",
    metavar="TIME",
    help="Read from the first record at or after this time: -1h, 2024-05-01T08:00 or ms since 1970.",
)
@click.option(
    "--to", "to_time", metavar="TIME", help="Read up to the first record at or after this time."
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write an HTML page with charts; an existing file is replaced.",
)
@click.option(
    "--dry-run", is_flag=True, help="Show the offsets that would be read, without starting Spark."
)
@master_option
@connection_options
@timeout_option
@output_option
def profile_topic(
    name: str,
    from_time: str | None,
    to_time: str | None,
    html: Path | None,
    dry_run: bool,
    master: str | None,
    bootstrap_servers: str,
    timeout_s: float,
    output: OutputFormat,
) -> None:
    """Profile topic NAME: rates, sizes, key skew, duplicates, gaps and partition balance.

    Reads all records twice. Needs Spark.

    \b
    barnabas topics profile orders
    barnabas topics profile orders --from -1h --html orders.html
    """
    check_html(html)
    from_ms, to_ms = parse_bounds(from_time, to_time)
    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        wanted = look_up_range(cluster, find_topic(cluster, name), from_ms=from_ms, to_ms=to_ms)
    if dry_run:
        show(output, range_document(wanted), range_text)
        return
    if not wanted.offsets:
        raise no_records(name, bounded=from_ms is not None or to_ms is not None)
    is_short = wanted.offsets < SHORT_JOB_OFFSETS
    with spark_session(
        master, cluster, app_name="barnabas topics profile", short=is_short
    ) as spark:
        # Imported after the start of Spark, which reports missing packages.
        from barnabas.cli.topics.profile_table import profile_text
        from barnabas.jobs.profile_page import render_profile
        from barnabas.jobs.profile_text import findings
        from barnabas.jobs.topic_profile import profile_document

        found = read_profile(spark, cluster, wanted)
        with progress_paused():
            if html is not None:
                write_profile_page(html, render_profile(found, bootstrap_servers, now_ms()))
            document = {**profile_document(found), "findings": findings(found)}
            show(output, document, lambda _: profile_text(found))
            if html is not None:
                print_note(f"written to {html}")


def read_profile(spark: SparkSession, cluster: Cluster, wanted: TopicRange) -> TopicProfile:
    """Run the job. Raises ApiError if the topic was deleted, or deleted and created again, while it was read.

    Raises CommandError if there are offsets, but no records.
    """
    from barnabas.jobs.profile import profile

    place = (cluster, wanted.topic, wanted.topic_id)
    with report_deletion(*place), translate_errors([wanted.topic]):
        found = profile(spark, cluster, wanted)
    check_profile(found, cluster, wanted)
    return found


def check_profile(found: TopicProfile, cluster: Cluster, wanted: TopicRange) -> None:
    """Raise an error if the topic is another one now, or if all its records were deleted while it was read.

    Records that are deleted meanwhile are left out of the figures, so the job succeeds.
    """
    deleted = find_deletion(cluster, wanted.topic, wanted.topic_id)
    if deleted is not None:
        raise deleted
    if not found.records:
        raise no_records(wanted.topic, bounded=False)


def check_html(html: Path | None) -> None:
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError("--html", f"there is no directory {html.absolute().parent}")


def write_profile_page(html: Path, page: str) -> None:
    """Write the page in one step: a command that is killed leaves no part of a page. Raises ConfigError."""
    try:
        if html.exists() and not html.is_file():
            html.write_text(page, "utf-8")  # a device or a pipe, such as /dev/stdout
            return
        target = html.resolve()
        new = target.with_name(f"{target.name}.new")
        new.write_text(page, "utf-8")
        new.replace(target)
    except OSError as error:
        raise ConfigError("--html", f"cannot write {html}: {error.strerror}") from None


def parse_bounds(from_time: str | None, to_time: str | None) -> tuple[int | None, int | None]:
    now = now_ms()
    from_ms = None if from_time is None else parse_time(from_time, now, "--from")
    to_ms = None if to_time is None else parse_time(to_time, now, "--to")
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise ConfigError("--to", f"{to_time!r} is not after --from {from_time!r}")
    return from_ms, to_ms


def no_records(name: str, *, bounded: bool) -> CommandError:
    if bounded:
        why = f"topic {name!r} has no records in this time span"
        return CommandError(why, "choose other times for --from and --to, or leave them out")
    return CommandError(
        f"topic {name!r} has no records", "a profile needs at least one; see `barnabas produce`"
    )


# ---- dry run ----------------------------------------------------------------------------------------------------


def range_document(wanted: TopicRange) -> dict[str, Any]:
    return {
        "topic": wanted.topic,
        "records_at_most": wanted.offsets,
        "partitions": [
            {
                "partition": partition,
                "first_offset": wanted.starts[partition],
                "end_offset": wanted.ends[partition],
                "records_at_most": wanted.ends[partition] - wanted.starts[partition],
            }
            for partition in wanted.partitions
        ],
    }


def range_text(document: dict[str, Any]) -> str:
    partitions = document["partitions"]
    table = format_table(
        ["partition", "from offset", "to, excluded", "records at most"],
        [list(each.values()) for each in partitions],
    )
    count = plural(document["records_at_most"], "record")
    return f"would read up to {count} of {document['topic']}, twice\n{table}"
