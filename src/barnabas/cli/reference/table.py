"""All commands, what kind of command each is, and the common options that each kind must have."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import click

from barnabas.cli.main import COMMANDS, cli


class Kind(StrEnum):
    SHOW = "shows"
    """Shows a result: needs -o json."""
    STATE = "shows state"
    """Shows state that changes: needs -o json and --watch."""
    STREAM = "streams"
    """Shows records or events, and can follow new ones by itself: needs -o json."""
    CHANGE = "changes"
    """Changes something: needs -o json and --dry-run."""
    PROGRAM = "runs"
    """Runs until it is stopped, or is interactive."""
    SCRIPT = "prints a script"
    KAFKA = "Kafka's options"
    """Has the options and the output of Kafka's tool with the same name."""


REQUIRED_OPTIONS: dict[Kind, frozenset[str]] = {
    Kind.SHOW: frozenset({"--output"}),
    Kind.STATE: frozenset({"--output", "--watch"}),
    Kind.STREAM: frozenset({"--output"}),
    Kind.CHANGE: frozenset({"--output", "--dry-run"}),
    Kind.PROGRAM: frozenset(),
    Kind.SCRIPT: frozenset(),
    Kind.KAFKA: frozenset(),
}

KINDS: dict[str, Kind] = {
    "topics alter": Kind.CHANGE,
    "topics archive": Kind.CHANGE,
    "topics copy": Kind.CHANGE,
    "topics create": Kind.CHANGE,
    "topics delete": Kind.CHANGE,
    "topics describe": Kind.STATE,
    "topics explain": Kind.STATE,
    "topics list": Kind.STATE,
    "topics mirror": Kind.CHANGE,
    "topics offsets": Kind.STATE,
    "topics profile": Kind.SHOW,
    "topics resize": Kind.CHANGE,
    "topics restore": Kind.CHANGE,
    "topics trim": Kind.CHANGE,
    "topics history": Kind.STREAM,
    "configs alter": Kind.CHANGE,
    "configs describe": Kind.STATE,
    "configs reset": Kind.CHANGE,
    "quotas list": Kind.STATE,
    "quotas set": Kind.CHANGE,
    "quotas unset": Kind.CHANGE,
    "partitions explain": Kind.STATE,
    "brokers list": Kind.STATE,
    "brokers log-dirs": Kind.STATE,
    "brokers explain": Kind.STATE,
    "brokers drain": Kind.CHANGE,
    "brokers decommission": Kind.CHANGE,
    "cluster describe": Kind.STATE,
    "cluster explain": Kind.STATE,
    "cluster health": Kind.STATE,
    "controller show": Kind.STATE,
    "top": Kind.STREAM,
    "elect-leaders": Kind.CHANGE,
    "produce": Kind.CHANGE,
    "consume": Kind.STREAM,
    "groups delete": Kind.CHANGE,
    "groups describe": Kind.STATE,
    "groups explain": Kind.STATE,
    "groups history": Kind.STREAM,
    "groups list": Kind.STATE,
    "groups reset": Kind.CHANGE,
    "users create": Kind.CHANGE,
    "users delete": Kind.CHANGE,
    "users list": Kind.STATE,
    "tokens create": Kind.CHANGE,
    "tokens expire": Kind.CHANGE,
    "tokens list": Kind.STATE,
    "tokens renew": Kind.CHANGE,
    "acls add": Kind.CHANGE,
    "acls check": Kind.SHOW,
    "acls list": Kind.STATE,
    "acls remove": Kind.CHANGE,
    "transactions abort": Kind.CHANGE,
    "transactions describe": Kind.STATE,
    "transactions find-hanging": Kind.STATE,
    "transactions history": Kind.STREAM,
    "transactions list": Kind.STATE,
    "reassign plan": Kind.SHOW,
    "reassign run": Kind.CHANGE,
    "reassign status": Kind.STATE,
    "reassign cancel": Kind.CHANGE,
    "sql": Kind.STREAM,
    "spark": Kind.PROGRAM,
    "jobs": Kind.STATE,
    "pipeline init": Kind.CHANGE,
    "pipeline run": Kind.CHANGE,
    "pipeline dry-run": Kind.SHOW,
    "pipeline status": Kind.STATE,
    "pipeline stop": Kind.CHANGE,
    "pipeline replay-dead-letters": Kind.CHANGE,
    "lifecycle report": Kind.SHOW,
    "up": Kind.PROGRAM,
    "broker": Kind.PROGRAM,
    "node": Kind.PROGRAM,
    "zookeeper": Kind.PROGRAM,
    "registry get": Kind.STATE,
    "registry ls": Kind.STATE,
    "registry secure": Kind.CHANGE,
    "registry stat": Kind.STATE,
    "registry unsecure": Kind.CHANGE,
    "registry watch": Kind.STREAM,
    "bench produce": Kind.CHANGE,
    "bench consume": Kind.CHANGE,
    "bench latency": Kind.CHANGE,
    "doctor": Kind.SHOW,
    "profile create": Kind.CHANGE,
    "profile use": Kind.CHANGE,
    "profile list": Kind.SHOW,
    "profile show": Kind.SHOW,
    "profile delete": Kind.CHANGE,
    "completion": Kind.SCRIPT,
    "kafka-topics": Kind.KAFKA,
    "kafka-configs": Kind.KAFKA,
    "kafka-acls": Kind.KAFKA,
    "kafka-leader-election": Kind.KAFKA,
    "kafka-reassign-partitions": Kind.KAFKA,
    "zookeeper-security-migration": Kind.KAFKA,
}
"""Command → its kind. A test compares it with the real commands."""


class CommandEntry(NamedTuple):
    path: tuple[str, ...]
    command: click.Command

    @property
    def name(self) -> str:
        return " ".join(self.path)

    @property
    def about(self) -> str:
        """Return the first sentence of the help. Kafka's commands have a help of their own format."""
        return self.command.get_short_help_str(limit=200) or COMMANDS[self.path[0]][1]

    @property
    def options(self) -> set[str]:
        """Return all spellings of all options."""
        return {
            spelling
            for each in self.command.params
            if isinstance(each, click.Option)
            for spelling in (*each.opts, *each.secondary_opts)
        }


def all_commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[CommandEntry]:
    """Yield every command that is not a group, in the order of the help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from all_commands(command, (*path, name))
        else:
            yield CommandEntry((*path, name), command)
