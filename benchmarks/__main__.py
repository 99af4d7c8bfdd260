"""Command line of `python -m benchmarks`. The package describes the benchmarks."""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from benchmarks import frames, plots, profiling, report, suite
from benchmarks.broker import BenchmarkBroker
from benchmarks.loads import CLIENT_IN_FLIGHT, CODECS, KB, MB, NO_CODEC, Load, parse_size

RESULTS = Path(__file__).parent / "results"


class Size(click.ParamType[int]):
    """Size in bytes: 16k, 1m, 2g or a plain number."""

    name = "size"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            return value if isinstance(value, int) else parse_size(value)
        except ValueError:
            self.fail(f"'{value}' is not a size; try 16k or 1m", param, ctx)


class Expression(click.ParamType["re.Pattern[str]"]):
    """Regular expression."""

    name = "regex"

    def convert(
        self,
        value: str | re.Pattern[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> re.Pattern[str]:
        try:
            return re.compile(value)
        except re.error as error:
            self.fail(f"'{value}' is not a regular expression: {error}", param, ctx)


def load_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that describe a load. The command receives it as `load`."""

    def call(
        batch: int,
        record: int,
        partitions: int,
        total: int,
        in_flight: int,
        varies: bool,
        codec: str,
        **rest: Any,
    ) -> None:
        command(
            Load(
                batch_bytes=batch,
                record_bytes=record,
                partitions=partitions,
                total_bytes=total,
                in_flight=in_flight,
                varies=varies,
                codec=codec,
            ),
            **rest,
        )

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    for option in (
        click.option("--codec", type=click.Choice(CODECS), default=NO_CODEC),
        click.option("--varies", is_flag=True, help="Record sizes of 0.5 to 1.5 times --record."),
        click.option("--in-flight", default=CLIENT_IN_FLIGHT, help="Produce requests in flight."),
        click.option("--total", type=Size(), default=512 * MB, help="Bytes to produce."),
        click.option("--partitions", default=1),
        click.option("--record", type=Size(), default=KB),
        click.option("--batch", type=Size(), default=16 * KB),
    ):
        call = option(call)
    return call


@click.group(
    invoke_without_command=True,
    context_settings={"show_default": True, "help_option_names": ["-h", "--help"]},
)
@click.option("--quick", is_flag=True, help="Fewer and shorter runs: under two minutes.")
@click.option("--repeat", default=3, help="Runs of each measurement.")
@click.pass_context
def cli(context: click.Context, quick: bool, repeat: int) -> None:
    """Run all benchmarks of one broker, or the one that COMMAND names."""
    if context.invoked_subcommand is None:
        extent = suite.QUICK if quick else suite.FULL
        found = measure(list(suite.steps(extent)), repeat)
        for line in report.table(found, extent):
            click.echo(line)
        report.write_json(RESULTS / "latest.json", found, quick=quick, repeat=repeat)
        drawn = plots.draw(RESULTS, found, extent)
        names = ", ".join(["latest.json", *(path.name for path in drawn)])
        click.echo(f"written to benchmarks/results: {names}", err=True)


def measure(steps: list[suite.Step], repeat: int) -> dict[str, list[float]]:
    """Run every step once per round. The first step also runs before, as a warm-up that is not counted."""
    steps[0].run()
    found: dict[str, list[float]] = {}
    with click.progressbar(
        [step for _ in range(repeat) for step in steps],
        file=sys.stderr,
        item_show_func=lambda step: step.name if step else "",
    ) as rounds:
        for step in rounds:
            for name, value in step.run().items():
                found.setdefault(name, []).append(value)
    return found


@cli.command()
@click.option("--repeat", default=3)
@load_options
def produce(load: Load, repeat: int) -> None:
    """Produce prebuilt frames and fetch them: MB/s and CPU-seconds of the broker per GB."""
    runs = []
    for _ in range(repeat):
        with BenchmarkBroker() as broker:
            runs.append(frames.run_produce_and_fetch(broker, load))
    for name, costs in zip(("produce", "fetch"), zip(*runs, strict=True), strict=True):
        speed = [cost.mb_per_s for cost in costs]
        cpu = [cost.cpu_s_per_gb for cost in costs]
        click.echo(
            f"{name:8} {load}: {statistics.median(speed):6.0f} MB/s ({min(speed):.0f}–{max(speed):.0f}), "
            f"{statistics.median(cpu):.2f} CPU-s/GB ({min(cpu):.2f}–{max(cpu):.2f})"
        )


@cli.command()
@click.option("--quick", is_flag=True, help="Fewer rows and rounds.")
@click.option(
    "--decode-only", is_flag=True, help="Measure only the decoder, without Spark and a broker."
)
@click.option(
    "--compare", is_flag=True, help="Compare with Spark's own connector for Kafka instead."
)
@click.option(
    "--sink",
    is_flag=True,
    help="Compare at-least-once and exactly-once delivery of the sink instead.",
)
def spark(quick: bool, decode_only: bool, compare: bool, sink: bool) -> None:
    """Read topics with Spark in local mode (count, Parquet, micro-batches), and measure the decoder alone."""
    if compare:
        compare_readers(quick)
        return
    from benchmarks import spark, spark_decode  # imported here: they need the `spark` extra

    if sink:
        from benchmarks import spark_sink

        for line in spark.table(spark_sink.measure(spark.QUICK if quick else spark.FULL)):
            click.echo(line)
        return
    for line in spark_decode.table():
        click.echo(line)
    if not decode_only:
        extent = spark.QUICK if quick else spark.FULL
        click.echo(f"\n{spark.describe(extent)}")
        for line in spark.table(spark.measure(extent)):
            click.echo(line)


def compare_readers(quick: bool) -> None:
    from benchmarks import kafka_report, kafka_spark, spark

    with require_kafka():
        found = kafka_spark.measure(spark.QUICK if quick else spark.FULL)
    kafka_report.write_json(RESULTS / "spark.json", found, quick=quick)
    for line in kafka_report.table(found):
        click.echo(line)
    click.echo("written to benchmarks/results: spark.json", err=True)


@cli.command()
@click.option("--quick", is_flag=True, help="Fewer records, one round.")
def jobs(quick: bool) -> None:
    """Run the topic jobs archive, restore, resize and profile, and a query that filters by offset."""
    from benchmarks import jobs  # imported here: it needs the `spark` extra

    for line in jobs.table(jobs.measure(jobs.QUICK if quick else jobs.FULL)):
        click.echo(line)


@cli.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter runs.")
@click.option(
    "--only",
    type=Expression(),
    help="Run only the steps whose name matches, such as 'varied-lz4' or 'frames/.*/1p'.",
)
def kafka(quick: bool, only: re.Pattern[str] | None) -> None:
    """Run the same loads on Barnabas and on Apache Kafka 3.9, in turns, and print ratios and targets."""
    # Imported here: they need Java, and jars that Maven downloads once.
    from benchmarks import kafka, kafka_report, replicas, tls

    brokers, clusters = (kafka.QUICK, replicas.QUICK) if quick else (kafka.FULL, replicas.FULL)
    secured = tls.QUICK if quick else tls.FULL
    names = kafka.step_names(brokers) + tls.step_names(secured) + replicas.step_names(clusters)
    chosen = [name for name in names if only is None or only.search(name)]
    if not chosen:
        raise click.UsageError(
            f"no step matches '{only and only.pattern}'. The steps are:\n  " + "\n  ".join(names)
        )
    output = RESULTS / ("kafka.json" if only is None else "kafka-part.json")
    found: kafka.Found = {}
    with require_kafka():
        for measure_part in (
            partial(kafka.measure, brokers, chosen),
            partial(tls.measure_chosen, secured, chosen),
            partial(replicas.measure_chosen, clusters, chosen),
        ):
            # Saved after each part, so that a later failure does not lose it.
            if part := measure_part():
                found |= part
                kafka_report.write_json(output, found, quick=quick)
                kafka_report.draw(output.with_suffix(".svg"), found)
    for line in kafka_report.table(found):
        click.echo(line)
    click.echo(f"written to benchmarks/results: {output.name}, {output.stem}.svg", err=True)


@cli.command()
@click.option("--quick", is_flag=True, help="Fewer topics, fewer partitions, fewer runs.")
@click.option("--only", type=click.Choice(["ours", "kafka"]), help="Run only one side.")
def controller(quick: bool, only: str | None) -> None:
    """Measure topic creation and controller failover on three brokers with a ZooKeeper: Barnabas and Kafka."""
    from benchmarks import controller, controller_report
    from benchmarks.kafka import SIDES

    with require_kafka():
        extent = controller.QUICK if quick else controller.FULL
        found = controller.measure(extent, (only,) if only else SIDES)
    for line in controller_report.table(found):
        click.echo(line)
    controller_report.write_json(RESULTS / "controller.json", found, quick=quick)
    controller_report.draw(RESULTS / "controller.svg", found)
    click.echo("written to benchmarks/results: controller.json, controller.svg", err=True)


@cli.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter runs.")
@click.option("--only", type=click.Choice(["ours", "kafka"]), help="Run only one side.")
def replicas(quick: bool, only: str | None) -> None:
    """Measure acks=all, and idle CPU use, on three brokers with a ZooKeeper: Barnabas and Kafka."""
    from benchmarks import replicas, replicas_report
    from benchmarks.kafka import SIDES

    with require_kafka():
        extent = replicas.QUICK if quick else replicas.FULL
        found = replicas.measure(extent, (only,) if only else SIDES)
    for line in replicas_report.table(found):
        click.echo(line)
    replicas_report.write_json(RESULTS / "replicas.json", found, quick=quick)
    click.echo("written to benchmarks/results: replicas.json", err=True)


@cli.command()
@click.option("--quick", is_flag=True, help="Fewer partitions, and 1 GB instead of 10.")
@click.option("--only", type=click.Choice(["ours", "kafka"]), help="Run only one side.")
def maintenance(quick: bool, only: str | None) -> None:
    """Restart three brokers in turn under load, and move a topic with a throttle: Barnabas and Kafka."""
    from benchmarks import maintenance, maintenance_report
    from benchmarks.kafka import SIDES

    with require_kafka():
        extent = maintenance.QUICK if quick else maintenance.FULL
        found = maintenance.measure(extent, (only,) if only else SIDES)
    for line in maintenance_report.table(found):
        click.echo(line)
    maintenance_report.write_json(RESULTS / "maintenance.json", found, quick=quick)
    click.echo("written to benchmarks/results: maintenance.json", err=True)


@cli.command()
@click.option("--quick", is_flag=True, help="One shorter round.")
def groups(quick: bool) -> None:
    """Measure consumer groups: rebalance time, memory of a thousand groups, commits per second."""
    from benchmarks import groups

    found = groups.measure(groups.QUICK if quick else groups.FULL)
    for line in groups.table(found):
        click.echo(line)
    groups.write_json(RESULTS / "groups.json", found, quick=quick)
    click.echo("written to benchmarks/results: groups.json", err=True)


@cli.command()
@click.option("--quick", is_flag=True, help="One shorter round.")
@click.option("--brokers", "counts", multiple=True, type=int, help="Brokers of a node; repeatable.")
def node(quick: bool, counts: tuple[int, ...]) -> None:
    """Measure produce and fetch on several brokers of one machine: one and two, or the given numbers."""
    from dataclasses import replace

    from benchmarks import node

    extent = node.QUICK if quick else node.FULL
    found = node.measure(replace(extent, brokers=counts) if counts else extent)
    for line in node.table(found):
        click.echo(line)
    node.write_json(RESULTS / "node.json", found, quick=quick)
    click.echo("written to benchmarks/results: node.json", err=True)


@contextmanager
def require_kafka() -> Iterator[None]:
    """Report in one line if Kafka cannot run here."""
    from interop.harness.unavailable import Unavailable

    try:
        yield
    except Unavailable as error:
        raise click.ClickException(str(error)) from None


@cli.command()
@click.argument("direction", type=click.Choice(["produce", "fetch"]))
@click.option("--by", type=click.Choice(["calls", "lines"]), default="lines")
@click.option("--top", default=25)
@load_options
def profile(
    load: Load,
    direction: Literal["produce", "fetch"],
    by: Literal["calls", "lines"],
    top: int,
) -> None:
    """Profile the broker under one load: by sampled lines, or by calls (cProfile)."""
    for line in profiling.profile_lines(profiling.profile(direction, load, by), by, top):
        click.echo(line)


@cli.command(name="testkit")
@click.option("--repeat", default=9)
@click.option("--with-kafka", is_flag=True, help="Also start Apache Kafka, which Maven downloads.")
def testkit_command(repeat: int, with_kafka: bool) -> None:
    """Clusters in tests: start and stop of LocalCluster, and the pytest fixtures per test."""
    from benchmarks import testkit

    for line in testkit.table(testkit.measure(repeat, with_kafka=with_kafka)):
        click.echo(line)


if __name__ == "__main__":
    cli()
