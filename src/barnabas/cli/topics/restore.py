"""`barnabas topics restore`: write the records of an archive to a topic."""

from __future__ import annotations

from pathlib import Path
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
from barnabas.cli.terminal.output import OutputFormat, plural, show
from barnabas.cli.topics.copy_options import copied_rows, copied_text, copy_options
from barnabas.cli.topics.create import parse_topic_configs
from barnabas.cli.topics.lookup import complete_topics, explain_rejected_name
from barnabas.errors import ApiError
from barnabas.jobs.archive_directory import find_archive, parse_directory

if TYPE_CHECKING:
    from barnabas.jobs.restore import RestoreRun


@click.command("restore")
@click.argument("directory", metavar="DIR")
@click.option(
    "--to",
    "name",
    required=True,
    metavar="NAME",
    shell_complete=complete_topics,
    help="Topic for the records. It is created if it does not exist.",
)
@copy_options
@verify_option
@dry_run_option
@master_option
@connection_options
@timeout_option
@output_option
def restore_topic(
    directory: str,
    name: str,
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
    """Write the records of the archive in DIR to topic NAME.

    The topic gets the partitions and settings of the archived topic. Its offsets begin at 0.
    A run that was killed can be repeated: it continues, and writes no record twice.

    Example: barnabas topics restore /backup/orders --to orders-restored
    """
    from barnabas.jobs.copy_topic import NewCopy
    from barnabas.jobs.restore import read_archive, run_restore

    archive = find_archive(parse_directory("DIR", directory).absolute())
    manifest = read_archive(archive)
    chosen = parse_topic_configs(configs)
    new = NewCopy(
        name=name,
        partition_count=manifest.partition_count,
        settings={**manifest.settings, **chosen},
        replication_factor=replication_factor or -1,
        compression=compression,
        chosen=chosen,
    )
    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        try:
            run = run_restore(
                job_session(master, cluster, f"restore {name}"),
                cluster,
                archive,
                new,
                verify=verify,
                dry_run=dry_run,
            )
        except ApiError as error:
            raise explain_rejected_name(error, name) from None
    document = restore_document(archive.path, name, run, verify=verify, dry_run=dry_run)
    show(output, document, restore_text)


def restore_document(
    directory: Path, name: str, run: RestoreRun, *, verify: bool, dry_run: bool
) -> dict[str, Any]:
    return {
        "topic": name,
        "directory": str(directory),
        "existed": run.existed,
        "records": run.manifest.records,
        "verified": verify and not dry_run,
        "dry_run": dry_run,
        "partitions": copied_rows(run.partitions),
    }


def restore_text(document: dict[str, Any]) -> str:
    if not document["dry_run"]:
        return copied_text(document, document["directory"])
    counts = f"{plural(document['records'], 'record')} in {plural(len(document['partitions']), 'partition')}"
    verb = "continue" if document["existed"] else "create"
    return f"would {verb} topic {document['topic']} with {counts} from {document['directory']}"
