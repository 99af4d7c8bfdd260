"""`barnabas topics archive`: copy the records of a topic to Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import connect, connection_options
from barnabas.cli.options import (
    dry_run_option,
    master_option,
    output_option,
    timeout_option,
    verify_option,
)
from barnabas.cli.spark.job_session import job_session
from barnabas.cli.terminal.output import OutputFormat, format_table, plural, show
from barnabas.cli.topics.deletion import report_deletion
from barnabas.cli.topics.lookup import complete_topics, find_topic
from barnabas.jobs.archive_directory import ArchiveDirectory, parse_directory

if TYPE_CHECKING:
    from barnabas.jobs.archive import ArchiveRun


@click.command("archive")
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="DIR",
    help="Directory for archives. The files of the topic are written to DIR/NAME.",
)
@verify_option
@dry_run_option
@master_option
@connection_options
@timeout_option
@output_option
def archive_topic(
    name: str,
    target: str,
    verify: bool,
    dry_run: bool,
    master: str | None,
    bootstrap_servers: str,
    timeout_s: float,
    output: OutputFormat,
) -> None:
    """Copy the records of topic NAME to Parquet files, by date and partition.

    The next run adds only new records. A run that was killed can be repeated.

    \b
    barnabas topics archive orders --to /backup
    barnabas topics restore /backup/orders --to orders-restored
    """
    from barnabas.jobs.archive import run_archive

    archive = ArchiveDirectory(parse_directory("--to", target).absolute() / name)
    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        found = find_topic(cluster, name)
        with report_deletion(cluster, name, found.id):
            run = run_archive(
                job_session(master, cluster, f"archive {name}"),
                cluster,
                name,
                archive,
                verify=verify,
                dry_run=dry_run,
            )
    show(output, {**archive_document(archive, run), "dry_run": dry_run}, archive_text)


def archive_document(archive: ArchiveDirectory, run: ArchiveRun) -> dict[str, Any]:
    added = dict.fromkeys(range(run.state.partition_count), 0)
    for file in run.files:
        added[file.partition] += file.records
    return {
        "topic": run.state.name,
        "directory": str(archive.path),
        "records": sum(added.values()),
        "files": len(run.files),
        "bytes": sum(file.bytes for file in run.files),
        "verified": run.is_verified,
        "archived_records": run.manifest.records if run.manifest else 0,
        "archived_files": len(run.manifest.files) if run.manifest else 0,
        "partitions": [
            {
                "partition": number,
                "start": run.spans[number].earliest if number in run.spans else found.latest,
                "end": found.latest,
                "records": added[number],
            }
            for number, found in enumerate(run.state.spans)
        ],
    }


def archive_text(document: dict[str, Any]) -> str:
    topic, directory = document["topic"], document["directory"]
    rows = [
        [each["partition"], each["start"], each["end"], each["records"]]
        for each in document["partitions"]
    ]
    new = sum(each["end"] - each["start"] for each in document["partitions"])
    if not new:
        return f"topic {topic}: no new records; {directory} has {plural(document['archived_records'], 'record')}"
    if document["dry_run"]:
        table = format_table(["partition", "start", "end"], [row[:3] for row in rows])
        return f"would archive {plural(new, 'offset')} of topic {topic} to {directory}\n{table}"
    lines = [
        f"archived {plural(document['records'], 'record')} of topic {topic} to {directory}: "
        f"{plural(document['files'], 'file')}, {document['bytes']:,} bytes"
        f"{', verified' if document['verified'] else ', not verified'}",
        format_table(["partition", "start", "end", "records"], rows),
    ]
    return "\n".join(lines)
