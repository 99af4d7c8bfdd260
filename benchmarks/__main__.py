"""`python -m benchmarks`: see the package."""

from __future__ import annotations

import statistics

import click

from benchmarks import frames
from benchmarks.broker_process import BrokerProcess
from benchmarks.loads import KB, MB, Load, parse_size


class Size(click.ParamType[int]):
    """16k, 1m, 2g or a plain number of bytes."""

    name = "size"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            return value if isinstance(value, int) else parse_size(value)
        except ValueError:
            self.fail(f"'{value}' is no size, as 16k or 1m are", param, ctx)


@click.group()
def cli() -> None:
    """Measure a broker."""


@cli.command("produce")
@click.option("--batch", "batch_bytes", type=Size(), default=16 * KB)
@click.option("--record", "record_bytes", type=Size(), default=KB)
@click.option("--partitions", default=1)
@click.option("--total", "total_bytes", type=Size(), default=512 * MB)
@click.option("--in-flight", default=5)
@click.option("--repeat", default=3)
def one_load(
    batch_bytes: int,
    record_bytes: int,
    partitions: int,
    total_bytes: int,
    in_flight: int,
    repeat: int,
) -> None:
    """Produce prebuilt frames, then fetch them: MB/s and the broker's CPU-seconds per GB."""
    load = Load(
        batch_bytes=batch_bytes,
        record_bytes=record_bytes,
        partitions=partitions,
        total_bytes=total_bytes,
        in_flight=in_flight,
    )
    runs = []
    for _ in range(repeat):
        with BrokerProcess() as broker:
            runs.append(frames.run_produce_and_fetch(broker, load))
    for name, costs in zip(("produce", "fetch"), zip(*runs, strict=True), strict=True):
        speed = [cost.mb_per_s for cost in costs]
        cpu = [cost.cpu_s_per_gb for cost in costs]
        click.echo(
            f"{name:8} {load}: {statistics.median(speed):6.0f} MB/s ({min(speed):.0f}–{max(speed):.0f}), "
            f"{statistics.median(cpu):.2f} CPU-s/GB ({min(cpu):.2f}–{max(cpu):.2f})"
        )


if __name__ == "__main__":
    cli()
