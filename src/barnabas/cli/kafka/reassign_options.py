"""Options of kafka-reassign-partitions, and their checks."""

from __future__ import annotations

import re

from barnabas.cli.kafka.failures import RequestRejected, WrongUsage
from barnabas.cli.kafka.options import COMMON_OPTIONS, Option, ParsedOptions, require_options

ABOUT = "This tool helps to move topic partitions between replicas."
ACTIONS = ("generate", "execute", "verify", "cancel", "list")
REQUIRED = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
CONNECTION = ("bootstrap-server", "command-config")
PERMITTED = {
    "generate": (*CONNECTION, "disable-rack-aware"),
    "execute": (
        *CONNECTION,
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
    ),
    "verify": (*CONNECTION, "preserve-throttles"),
    "cancel": (*CONNECTION, "preserve-throttles", "timeout"),
    "list": CONNECTION,
}
NO_THROTTLE = -1
TIMEOUT_MS = 10_000
INT64 = range(-(2**63), 2**63)

OPTIONS = (
    *(each for each in COMMON_OPTIONS if each.name != "force"),
    Option("generate", "Print the current and a proposed assignment of topics. Changes nothing."),
    Option("execute", "Start the reassignment in --reassignment-json-file."),
    Option("verify", "Show the state of a reassignment. If it is complete, remove its throttle."),
    Option("cancel", "Cancel the reassignment in --reassignment-json-file."),
    Option("list", "List all reassignments in progress."),
    Option(
        "reassignment-json-file",
        'Partitions in JSON: {"partitions": [{"topic": "foo", "partition": 1, "replicas": [1,2], "log_dirs":'
        ' ["any","any"]}], "version": 1}. log_dirs is optional.',
        "file",
    ),
    Option(
        "topics-to-move-json-file",
        'Topics for --generate in JSON: {"topics": [{"topic": "foo"}], "version": 1}.',
        "file",
    ),
    Option("broker-list", "Brokers for --generate, as 0,1,2.", "brokers"),
    Option("disable-rack-aware", "Ignore racks in --generate."),
    Option("throttle", "Limit for the copies between brokers, in bytes per second. --additional changes it.", "bytes"),
    Option("replica-alter-log-dirs-throttle", "Limit for moves between log directories, in bytes per second.", "bytes"),
    Option("timeout", "Milliseconds to wait until moves between log directories have started; default 10000.", "ms"),
    Option("additional", "Execute in addition to reassignments in progress."),
    Option("preserve-throttles", "Do not remove throttles."),
)  # fmt: skip


def check_action(options: ParsedOptions) -> str:
    """Run Kafka's checks in Kafka's order, and return the action."""
    actions = [action for action in ACTIONS if options.has(action)]
    if len(actions) != 1:
        names = ", ".join(f"--{action}" for action in ACTIONS)
        raise WrongUsage(f"Command must include exactly one action: {names}")
    (action,) = actions
    if not options.has("bootstrap-server"):
        raise WrongUsage("Please specify --bootstrap-server")
    require_options(options, *REQUIRED[action])
    allowed = (action, *REQUIRED[action], *PERMITTED[action])
    for name, _ in options.pairs:
        if name not in allowed:
            raise WrongUsage(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    return action


def long_option(options: ParsedOptions, name: str, default: int) -> int:
    """Return a 64-bit number. Raises RequestRejected if the value is none."""
    text = options.value(name)
    if text is None:
        return default
    if not re.fullmatch(r"[+-]?\d{1,19}", text, re.ASCII) or int(text) not in INT64:
        raise RequestRejected(
            f"Cannot parse argument '{text}' of option {name}",
            "joptsimple.OptionArgumentConversionException",
        )
    return int(text)
