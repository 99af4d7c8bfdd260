"""`barnabas`: the entry point and the list of commands. cli/terminal/exit_codes.py lists the exit codes.

A command is imported when it is used. `barnabas --help` imports none, and a broker imports no other command.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

import click

import barnabas
from barnabas.cli.lazy_group import LazyGroup
from barnabas.errors import BarnabasError

COMMANDS = {
    "topics": (
        "topics.commands:topics",
        "Create, list, describe, alter, copy, trim and delete topics.",
    ),
    "configs": (
        "configs.commands:configs",
        "Describe, alter and reset settings of topics and brokers, and quotas.",
    ),
    "quotas": (
        "quotas.commands:quotas",
        "Set, list and unset quotas of users, client ids and IP addresses.",
    ),
    "partitions": ("explain.commands:partitions", "Explain the state of single partitions."),
    "brokers": (
        "brokers.commands:brokers",
        "List the brokers and their disks, explain their problems, and drain or decommission one.",
    ),
    "cluster": (
        "explain.cluster_group:cluster_group",
        "Describe the cluster, check its health, and explain its problems.",
    ),
    "top": ("brokers.top:top", "Show what each broker does now: traffic, requests, latency."),
    "controller": ("brokers.controller:controller", "Show which broker is the controller."),
    "elect-leaders": (
        "elections.elect_leaders:elect_leaders_command",
        "Move leadership back to the preferred leaders, or elect unclean leaders.",
    ),
    "produce": (
        "records.produce:produce",
        "Write records to a topic from standard input or files.",
    ),
    "consume": ("records.consume:consume", "Read records of topics to standard output."),
    "groups": (
        "groups.commands:groups",
        "List, describe and delete consumer groups, and reset their offsets.",
    ),
    "users": ("users.commands:users", "Create, list and delete users that log in with SCRAM."),
    "acls": (
        "acls.commands:acls",
        "Add, list and remove permissions, and check which one decides.",
    ),
    "tokens": ("tokens.commands:tokens", "Create, list, renew and expire delegation tokens."),
    "transactions": (
        "transactions.commands:transactions",
        "List, describe and abort transactions, and find hanging ones.",
    ),
    "reassign": (
        "reassign.commands:reassign",
        "Move replicas between brokers: plan, run, follow and cancel.",
    ),
    "sql": ("spark.sql:sql", "Query topics with Spark SQL, once or as a stream."),
    "spark": ("spark.shell:spark", "Open a PySpark shell with the topics as tables."),
    "jobs": ("spark.jobs:jobs", "Show the Spark streams that run on this machine."),
    "pipeline": (
        "pipelines.commands:pipeline",
        "Create, check, run and stop pipelines that are written as files.",
    ),
    "lifecycle": (
        "history.report:lifecycle",
        "Report on topics: creations, leadership, outages, deletions.",
    ),
    "up": ("brokers.up:up", "Start a cluster on this machine and run it until Ctrl-C."),
    "broker": ("brokers.broker:broker", "Run one broker."),
    "node": ("brokers.node:node", "Run several brokers on this machine, one process per core."),
    "zookeeper": ("zookeeper:zookeeper", "Start a ZooKeeper and run it until Ctrl-C."),
    "registry": (
        "registry.commands:registry",
        "Inspect the registry: the znodes with the cluster metadata.",
    ),
    "bench": (
        "bench.commands:bench",
        "Measure the rates and the latency that a client reaches with the cluster.",
    ),
    "doctor": ("setup.doctor:doctor", "Check this machine, and say what to fix."),
    "profile": (
        "setup.profile_commands:profile",
        "Keep connections to clusters under names, and choose one.",
    ),
    "completion": ("setup.completion:completion", "Print the completion script for a shell."),
    "kafka-topics": (
        "kafka.topics:kafka_topics",
        "Kafka's kafka-topics command, with the same options and output.",
    ),
    "kafka-configs": (
        "kafka.configs:kafka_configs",
        "Kafka's kafka-configs command, with the same options and output.",
    ),
    "kafka-acls": (
        "kafka.acls:kafka_acls",
        "Kafka's kafka-acls command, with the same options and output.",
    ),
    "kafka-leader-election": (
        "kafka.leader_election:kafka_leader_election",
        "Kafka's kafka-leader-election command, with the same options and output.",
    ),
    "kafka-reassign-partitions": (
        "kafka.reassign:kafka_reassign_partitions",
        "Kafka's kafka-reassign-partitions command, with the same options and output.",
    ),
    "zookeeper-security-migration": (
        "kafka.security_migration:zookeeper_security_migration",
        "Kafka's zookeeper-security-migration command, with the same options.",
    ),
}
"""Command → (`module:attribute` in barnabas.cli, help line)."""


class RootGroup(LazyGroup):
    """The group of all commands. It shows its help without importing a command."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        from barnabas.log_lines import PrintableFormatter

        if logging.lastResort is not None:
            # Commands that configure no logging print warnings of the client through this handler.
            logging.lastResort.setFormatter(PrintableFormatter())
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would report it as a failure
            from barnabas.cli.terminal.exit_codes import discard_output

            raise click.exceptions.Exit(discard_output()) from None


@click.group(
    cls=RootGroup,
    modules={name: f"barnabas.cli.{module}" for name, (module, _) in COMMANDS.items()},
    epilog='To enable completion in bash: eval "$(barnabas completion bash)"',
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(f"{barnabas.__version__} ({barnabas.code_mode})", prog_name="barnabas")
def cli() -> None:
    """Barnabas: a streaming platform that speaks Apache Kafka's wire protocol."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code. Standard error gets a few lines for a failure, a traceback for a bug."""
    open_missing_streams()
    try:
        code = run_command(arguments)
    except Exception:  # noqa: BLE001 - a bug in Barnabas
        from barnabas.cli.terminal.exit_codes import report_crash

        code = report_crash()
    try:
        sys.stdout.flush()
    except OSError as error:
        from barnabas.cli.terminal.exit_codes import FAILED, discard_output

        closed = discard_output()
        code = closed if isinstance(error, BrokenPipeError) else code or FAILED
    sys.exit(code)


def open_missing_streams() -> None:
    """Open /dev/null instead of standard streams that are closed, as after `>&-`. Python sets them to None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - open until the end


def run_command(arguments: Sequence[str] | None) -> int:
    try:
        result = cli.main(args=arguments, prog_name="barnabas", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except (click.ClickException, click.Abort, KeyboardInterrupt, BarnabasError) as error:
        from barnabas.cli.terminal.exit_codes import report_failure

        return report_failure(error)
    except ModuleNotFoundError as error:
        from barnabas.cli.terminal.exit_codes import report_failure
        from barnabas.spark.installation import explain_missing

        explained = explain_missing(error)
        if explained is None:
            raise
        return report_failure(explained)


if __name__ == "__main__":
    main()
