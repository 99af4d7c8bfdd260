"""`barnabas topics resize`: copy a topic to a new one with another number of partitions."""

from __future__ import annotations

from typing import Any

import click

from barnabas.batch.compression import Compression
from barnabas.cli.options import (
    bootstrap_option,
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
from barnabas.cli.topics.lookup import complete_topics, explain_rejected_name, find_topic
from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError
from barnabas.jobs.copy_topic import NewCopy
from barnabas.jobs.resize import ResizeRun, run_resize
from barnabas.jobs.topic_state import count_offsets, look_up_state


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
@copy_options
@verify_option
@dry_run_option
@master_option
@bootstrap_option
@timeout_option
@output_option
def resize_topic(
    name: str,
    partitions: int,
    new_name: str,
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

    Example: barnabas topics resize orders --partitions 3 --to orders-3
    """
    with Cluster(bootstrap_servers, timeout_s=timeout_s) as cluster:
        find_topic(cluster, name)
        source = look_up_state(cluster, name)
        new = NewCopy(
            name=new_name,
            partition_count=partitions,
            settings={**source.settings, **parse_topic_configs(configs)},
            replication_factor=replication_factor or source.replication_factor,
            compression=compression,
        )
        try:
            run = run_resize(
                job_session(master, bootstrap_servers, f"resize {name}"),
                cluster,
                bootstrap_servers,
                source,
                new,
                verify=verify,
                dry_run=dry_run,
            )
        except ApiError as error:
            raise explain_rejected_name(error, new_name) from None
    show(output, resize_document(name, new, run, verify=verify, dry_run=dry_run), resize_text)


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


def resize_text(document: dict[str, Any]) -> str:
    if not document["dry_run"]:
        return copied_text(document, f"topic {document['source']}")
    verb = "continue" if document["existed"] else "create"
    return (
        f"would {verb} topic {document['topic']} with {plural(len(document['partitions']), 'partition')} "
        f"and copy {plural(document['source_offsets'], 'offset')} of topic {document['source']}, "
        f"which has {plural(document['source_partitions'], 'partition')}"
    )
