"""`barnabas registry watch`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click

from barnabas.cli.registry.access import open_registry, registry_options
from barnabas.cli.registry.source import ZnodeChange
from barnabas.cli.terminal.exit_codes import INTERRUPTED
from barnabas.cli.terminal.output import OutputFormat, print_lines, print_note, to_json


@click.command()
@registry_options
@click.option("--count", type=click.IntRange(min=1), help="Stop after N changes.")
def watch(path: str, data: str, zookeeper: str | None, output: str, count: int | None) -> None:
    """Watch a node and its descendants for changes, until Ctrl-C."""
    try:
        with open_registry(data, zookeeper) as found:
            for number, change in enumerate(found.follow(path)):
                if change is None:
                    print_note(f"Watching {path}; Ctrl-C stops.")
                else:
                    print_lines(change_line(change, OutputFormat(output)))
                if number == count:
                    return
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def change_line(change: ZnodeChange, output: OutputFormat) -> str:
    moment = datetime.fromtimestamp(change.time_ms / 1000, UTC)
    written = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if output is OutputFormat.TEXT:
        return f"{written} {change.kind} {change.path}"
    document = {"time": written, "zxid": change.zxid, "kind": change.kind, "path": change.path}
    line = to_json(document, separators=(",", ":"))
    return f"--- {line}" if output is OutputFormat.YAML else line
