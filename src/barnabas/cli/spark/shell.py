"""`barnabas spark`: a Python prompt with a Spark session and the topics of a cluster as tables."""

from __future__ import annotations

import code
import sys
from contextlib import suppress
from typing import Any

import click

from barnabas.cli.connection import connect, connection_options
from barnabas.cli.options import master_option, timeout_option
from barnabas.cli.spark.failure import translate
from barnabas.cli.spark.session import spark_session, translate_errors
from barnabas.cli.terminal.failure import CommandError
from barnabas.cli.terminal.output import plural, print_lines, print_note
from barnabas.progress_line import progress_paused
from barnabas.spark.class_archive import find_archive
from barnabas.spark.connect import uses_connect
from barnabas.spark.tables import register_topics

TABLES_MAX = 100
"""Topics that become tables at the start. Each delays the prompt by a tenth of a second."""


@click.command()
@click.option("-c", "--command", metavar="CODE", help="Run this Python code and exit.")
@click.option(
    "--prepare",
    is_flag=True,
    help="Only write a file of 180 MB to the cache that makes Spark start faster. Takes a minute, once.",
)
@master_option
@connection_options
@timeout_option
def spark(
    command: str | None,
    prepare: bool,
    master: str | None,
    bootstrap_servers: str,
    timeout_s: float,
) -> None:
    """Open a PySpark shell with `spark` and the topics as tables.

    \b
    >>> spark.sql("select key, count(*) from orders group by key").show()
    >>> topic("orders").where("value_json:paid::boolean").count()
    """
    if prepare:
        prepare_spark()
        return
    with connect(bootstrap_servers, timeout_s=timeout_s) as cluster:
        topics = sorted(cluster.refresh(None).topics)
    with spark_session(master, cluster, app_name="barnabas spark", short=False) as session:
        with translate_errors(topics):
            register_topics(session, topics[:TABLES_MAX], cluster)

        def topic(name: str) -> Any:
            """Return a topic as a DataFrame, and create its table."""
            register_topics(session, [name], cluster)
            return session.table(f"`{name}`")

        namespace = {
            "__name__": "__main__",
            "spark": session,
            "topic": topic,
        }
        if not uses_connect(session):
            namespace["sc"] = session.sparkContext
        if command is not None:
            run_code(command, namespace, topics)
            return
        print_note(*banner(session.version, topics))
        run_prompt(namespace)


def prepare_spark() -> None:
    """Build the class-data archive. Raises NoJava, NoSpark and ConfigError."""
    from barnabas.spark.training import train

    archive = find_archive()
    if not archive.exists:
        print_note(f"writing {archive.path} ...")
        if not train():
            hint = "another process may be writing the file; try again in a minute"
            raise CommandError("the file was not written", hint)
    print_lines(f"Spark is prepared: {archive.path}")


def run_code(command: str, namespace: dict[str, Any], topics: list[str]) -> None:
    """Run the code. A Python error prints a traceback and exits with 1. Errors of Spark are translated and raised."""
    from pyspark.errors import PySparkException

    try:
        exec(compile(command, "<command>", "exec"), namespace)
    except PySparkException as error:
        raise translate(error, topics) from None
    except Exception:  # noqa: BLE001 - whatever the code raises
        code.InteractiveInterpreter(namespace).showtraceback()
        raise click.exceptions.Exit(1) from None


def banner(version: str, topics: list[str]) -> list[str]:
    lines = [
        f"Spark {version}. `spark` is the session; topics are tables, topic(NAME) a DataFrame."
    ]
    if len(topics) > TABLES_MAX:
        lines.append(
            f"{plural(len(topics), 'topic')}: the first {TABLES_MAX} are tables; topic(NAME) adds another."
        )
    return lines


def run_prompt(namespace: dict[str, Any]) -> None:
    try:
        import readline
        import rlcompleter
    except ImportError:
        pass
    else:
        readline.set_completer(rlcompleter.Completer(namespace).complete)
        readline.parse_and_bind("tab: complete")
    if not sys.stdin.isatty():
        sys.ps1, sys.ps2 = "", ""
    Prompt(namespace).interact(banner="", exitmsg="")


class Prompt(code.InteractiveConsole):
    """Python prompt that pauses the progress line while the user types."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        super().__init__(namespace)
        self.session = namespace["spark"]

    def raw_input(self, prompt: str = "") -> str:
        with progress_paused():
            return super().raw_input(prompt)

    def showtraceback(self) -> None:
        """Show an error. A KeyboardInterrupt cancels Spark's jobs and is shown without a traceback."""
        with progress_paused():
            if not isinstance(sys.exception(), KeyboardInterrupt):
                super().showtraceback()
                return
            with suppress(Exception):
                self.cancel_jobs()
            self.write("KeyboardInterrupt\n")

    def cancel_jobs(self) -> None:
        if uses_connect(self.session):
            self.session.interruptAll()
        else:
            self.session.sparkContext.cancelAllJobs()
