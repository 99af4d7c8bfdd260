"""`barnabas bench produce`, `consume` and `latency`. Each creates a topic, uses it, and deletes it at the end.

The client is the package's own: synchronous, and with one batch per partition in flight. The figures show what this
client reaches with the cluster, not the limit of the brokers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click
from msgspec import Struct

from barnabas.batch.compression import Compression
from barnabas.byte_units import bytes_text
from barnabas.cli.bench.measurement import Measurement, measured_fields
from barnabas.cli.cluster_command import cluster_command
from barnabas.cli.options import dry_run_option
from barnabas.cli.records.produce import ACKS
from barnabas.cli.terminal.output import OutputFormat, plural, print_warning, show
from barnabas.cli.terminal.signals import raise_on_signals
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer
from barnabas.client.producer import Producer
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition

TOPIC_PREFIX = "barnabas-bench-"
FLUSH_BYTES = 512 << 10
PAYLOADS = 100
"""Number of different values. They are random, so that compression does not make them small."""


class BenchOptions(Struct, frozen=True, kw_only=True):
    """`seconds` limits the measured part; the run ends at the first limit."""

    records: int
    size: int
    seconds: float
    partitions: int
    replication_factor: int | None
    acks: str
    compression: str


Benchmark = Callable[[Cluster, str, BenchOptions], Measurement]


def bench_command(records: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the common options; `records` is the default number of records."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option(
            "--records",
            type=click.IntRange(min=1),
            default=records,
            show_default=True,
            help="Stop after this number of records.",
        )
        @click.option(
            "--size",
            type=click.IntRange(0, 16 << 20),
            default=100,
            show_default=True,
            help="Bytes of each record's value.",
        )
        @click.option(
            "--seconds",
            type=click.FloatRange(min=0, min_open=True),
            default=10.0,
            show_default=True,
            help="Stop after this time.",
        )
        @click.option(
            "--partitions",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="Partitions of the topic.",
        )
        @click.option(
            "--replication-factor",
            type=click.IntRange(min=1),
            help="Replicas of each partition; default: the cluster's default.",
        )
        @click.option(
            "--acks",
            type=click.Choice(list(ACKS)),
            default="all",
            show_default=True,
            help="Replicas that must acknowledge a record.",
        )
        @click.option(
            "-z",
            "--compression",
            type=click.Choice([codec.name.lower() for codec in Compression]),
            default="none",
            show_default=True,
            help="Compression codec.",
        )
        @dry_run_option
        @cluster_command
        @wraps(command)
        def run(cluster: Cluster, dry_run: bool, output: OutputFormat, **options: Any) -> None:
            command(cluster, BenchOptions(**options), dry_run, output)

        return run

    return decorate


@click.group("bench")
def bench() -> None:
    """Measure a cluster with the package's own client. The topic of a benchmark is deleted at the end."""


@bench.command("produce")
@bench_command(records=100_000)
def bench_produce(
    cluster: Cluster, options: BenchOptions, dry_run: bool, output: OutputFormat
) -> None:
    """Measure the writing of records. p50 and p99 are the times until a batch is acknowledged."""
    run_benchmark("produce", measure_produce, cluster, options, dry_run, output)


@bench.command("consume")
@bench_command(records=100_000)
def bench_consume(
    cluster: Cluster, options: BenchOptions, dry_run: bool, output: OutputFormat
) -> None:
    """Measure the reading of records, which are written first. p50 and p99 are the times of a fetch."""
    run_benchmark("consume", measure_consume, cluster, options, dry_run, output)


@bench.command("latency")
@bench_command(records=1_000)
def bench_latency(
    cluster: Cluster, options: BenchOptions, dry_run: bool, output: OutputFormat
) -> None:
    """Measure single records, one after the other: the time from sending a record to receiving it."""
    run_benchmark("latency", measure_latency, cluster, options, dry_run, output)


def run_benchmark(
    name: str,
    measure: Benchmark,
    cluster: Cluster,
    options: BenchOptions,
    dry_run: bool,
    output: OutputFormat,
) -> None:
    raise_on_signals()  # SIGTERM, too, ends with the deletion of the topic
    topic = f"{TOPIC_PREFIX}{os.urandom(4).hex()}"
    found = Measurement()
    with bench_topic(cluster, topic, options, dry_run=dry_run):
        if not dry_run:
            found = measure(cluster, topic, options)
    document = {
        "benchmark": name,
        "topic": topic,
        "dry_run": dry_run,
        "partitions": options.partitions,
        "size": options.size,
        "limit_records": options.records,
        "limit_seconds": options.seconds,
        **measured_fields(found),
    }
    show(output, document, bench_text)


@contextmanager
def bench_topic(
    cluster: Cluster, name: str, options: BenchOptions, *, dry_run: bool
) -> Iterator[None]:
    """Create the topic, and delete it at the end, also after an error or Ctrl-C."""
    wanted = NewTopic(
        name=name,
        partitions=options.partitions,
        replication_factor=options.replication_factor or -1,
    )
    admin = Admin(cluster)
    cluster.refresh([])  # raises Unreachable, before there is anything to delete
    try:
        (outcome,) = admin.create_topics([wanted], validate_only=dry_run)
        if outcome.error is not None:
            raise outcome.error
        yield
    finally:
        if not dry_run:
            remove_topic(admin, name)


def remove_topic(admin: Admin, name: str) -> None:
    """Delete the topic. A failure is only reported: it must not hide an earlier error or the result."""
    # A response may have been read in part, if Ctrl-C interrupted a request.
    admin.cluster.close()
    try:
        (outcome,) = admin.delete_topics([name])
        error = outcome.error
    except ApiError as failed:
        error = failed
    if error is not None and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        print_warning(
            f"topic {name} was not deleted ({error}); see `barnabas topics delete --help`"
        )


def random_values(size: int) -> list[bytes]:
    return [os.urandom(size) for _ in range(PAYLOADS)]


def new_producer(cluster: Cluster, options: BenchOptions) -> Producer:
    codec = Compression[options.compression.upper()]
    return Producer(cluster, acks=ACKS[options.acks], compression=codec)


def measure_produce(cluster: Cluster, topic: str, options: BenchOptions) -> Measurement:
    return write_records(cluster, topic, options, options.seconds)


def write_records(
    cluster: Cluster, topic: str, options: BenchOptions, seconds: float
) -> Measurement:
    """Write records until the first limit, in batches of about FLUSH_BYTES per partition."""
    producer = new_producer(cluster, options)
    producer.ensure_identity()
    values = random_values(options.size)
    per_flush = max(1, FLUSH_BYTES * options.partitions // (options.size + 24))
    found = Measurement()
    limit = Deadline(seconds)
    began = time.perf_counter()
    while found.records < options.records and not limit.passed:
        count = min(per_flush, options.records - found.records)
        for at in range(found.records, found.records + count):
            value = values[at % PAYLOADS]
            producer.send(topic, value, partition=at % options.partitions)
        sent = time.perf_counter()
        producer.flush()
        found.times_s.append(time.perf_counter() - sent)
        found.records += count
    found.seconds = time.perf_counter() - began
    found.size = found.records * options.size
    return found


def measure_consume(cluster: Cluster, topic: str, options: BenchOptions) -> Measurement:
    written = write_records(cluster, topic, options, options.seconds)
    starts = {TopicPartition(topic, number): Beginning() for number in range(options.partitions)}
    found = Measurement()
    limit = Deadline(options.seconds)
    began = time.perf_counter()
    consumer = Consumer(cluster, starts)
    while found.records < written.records and not limit.passed:
        polled = time.perf_counter()
        records = consumer.poll(1.0)
        found.times_s.append(time.perf_counter() - polled)
        found.records += len(records)
    found.seconds = time.perf_counter() - began
    found.size = found.records * options.size
    return found


def measure_latency(cluster: Cluster, topic: str, options: BenchOptions) -> Measurement:
    values = random_values(options.size)
    starts = {TopicPartition(topic, number): Beginning() for number in range(options.partitions)}
    found = Measurement()
    # Two clients: a Fetch that waits would delay the responses of the producer.
    with cluster.with_new_connections(timeout_s=cluster.timeout_s) as reading:
        producer, consumer = new_producer(cluster, options), Consumer(reading, starts)
        producer.ensure_identity()
        limit = Deadline(options.seconds)
        began = time.perf_counter()
        while found.records < options.records and not limit.passed:
            consumer.send_fetches()  # so that the broker has a waiting Fetch
            sent = time.perf_counter()
            at = found.records
            producer.send(topic, values[at % PAYLOADS], partition=at % options.partitions)
            producer.flush()
            wait_for_record(consumer, at, cluster.timeout_s)
            found.times_s.append(time.perf_counter() - sent)
            found.records += 1
        found.seconds = time.perf_counter() - began
    found.size = found.records * options.size
    return found


def wait_for_record(consumer: Consumer, number: int, timeout_s: float) -> None:
    """Wait until a record arrives. Raises ApiError after the timeout."""
    deadline = Deadline(timeout_s)
    while not consumer.poll(min(1.0, deadline.left_s())):
        if deadline.passed:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"record {number} did not arrive")


def bench_text(document: dict[str, Any]) -> str:
    size = bytes_text(document["size"])
    shape = f"{plural(document['partitions'], 'partition')}, values of {size}"
    if document["dry_run"]:
        most = plural(document["limit_records"], "record")
        limits = f"at most {most} and {document['limit_seconds']:g} s"
        return f"would run {document['benchmark']} on a new topic ({shape}), {limits}"
    lines = [
        f"{document['benchmark']}: {plural(document['records'], 'record')} in "
        f"{document['seconds']:.2f} s ({shape})",
        f"  {document['records_per_second'] or 0:,.0f} records/s, "
        f"{document['mb_per_second'] or 0:,.1f} MB/s",
    ]
    if document["p50_ms"] is not None:
        lines.append(f"  p50 {document['p50_ms']:.2f} ms, p99 {document['p99_ms']:.2f} ms")
    return "\n".join(lines)
