"""Parser for command lines of Kafka's tools, whose rules differ from click's. Without I/O.

    --topic orders   --topic=orders   -topic orders        three ways to write the same option
    --topic --list                                         a topic named "--list": the next word is always the value
    --delete-config a,b                                    two values, if the option takes a list
    words without an option, and values of flags           are ignored

Option names cannot be abbreviated. An option may be repeated, unless the command needs a single value.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from barnabas.cli.kafka.failures import InvalidCommandLine, RequestRejected, WrongUsage

MULTIPLE_ARGUMENTS = "joptsimple.MultipleArgumentsForOptionException"
CONVERSION_ERROR = "joptsimple.OptionArgumentConversionException"
INT32 = range(-(2**31), 2**31)
WIDTH = 100
FIRST_COLUMN_MAX = 36


@dataclass(frozen=True, slots=True)
class Option:
    """An option. `takes` describes its value for the help, and is None for a flag."""

    name: str
    about: str
    takes: str | None = None
    is_list: bool = False


COMMON_OPTIONS = (
    Option("bootstrap-server", "Bootstrap brokers, as host:port,host:port.", "brokers"),
    Option(
        "command-config",
        "File with client settings, such as security.protocol and client.id.",
        "file",
    ),
    Option("force", "Accepted; has no effect."),
    Option("help", "Show this help."),
    Option("version", "Show the compatible Kafka release and the Barnabas release."),
)


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """(name, value) pairs in the order of the command line. The value of a flag is None."""

    pairs: tuple[tuple[str, str | None], ...]

    def has(self, name: str) -> bool:
        return any(name == each for each, _ in self.pairs)

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.pairs if each == name and value is not None]

    def value(self, name: str) -> str | None:
        """Return the only value, or None. Raises RequestRejected for several."""
        values = self.values(name)
        if len(values) > 1:
            raise RequestRejected(
                f"Found multiple arguments for option {name}, but you asked for only one",
                MULTIPLE_ARGUMENTS,
            )
        return values[0] if values else None

    def number(self, name: str) -> int | None:
        for value in self.values(name):
            if not is_int32(value):
                raise RequestRejected(
                    f"Cannot parse argument '{value}' of option {name}",
                    CONVERSION_ERROR,
                )
        text = self.value(name)
        return None if text is None else int(text)


def is_int32(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d{1,10}", text, re.ASCII) is not None and int(text) in INT32


def parse_options(options: Sequence[Option], arguments: Sequence[str]) -> ParsedOptions:
    """Parse the command line. Raises InvalidCommandLine for an unknown option or a missing value."""
    known = {option.name: option for option in options}
    found: list[tuple[str, str | None]] = []
    rest = list(reversed(arguments))
    while rest:
        word = rest.pop()
        if word == "--":
            break
        name, _, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or word == "-":
            continue
        option = known.get(name)
        if option is None:
            # After a single dash, Kafka's parser reports only the first letter of an unknown option.
            unknown = name if word.startswith("--") else name[:1]
            raise InvalidCommandLine(f"{unknown} is not a recognized option")
        if option.takes is None:
            found.append((name, None))
            continue
        if not value:
            if not rest:
                raise InvalidCommandLine(f"Option {name} requires an argument")
            value = rest.pop()
        found += [(name, each) for each in split_values(option, value)]
    return ParsedOptions(tuple(found))


def split_values(option: Option, text: str) -> list[str]:
    parts = [part for part in text.split(",") if part] if option.is_list else []
    return parts or [text]


# ---- checks of combinations


def require_options(options: ParsedOptions, *names: str) -> None:
    for name in names:
        if not options.has(name):
            raise WrongUsage(f'Missing required argument "[{name}]"')


def forbid_together(options: ParsedOptions, used: str, others: Iterable[str]) -> None:
    if options.has(used):
        for other in others:
            if options.has(other):
                raise WrongUsage(f'Option "[{used}]" can\'t be used with option "[{other}]"')


# ---- help


def usage_text(options: Sequence[Option]) -> str:
    heads = {
        option.name: f"--{option.name}" + (f" <{option.takes}>" if option.takes else "")
        for option in options
    }
    column = max(len(text) for text in heads.values() if len(text) <= FIRST_COLUMN_MAX) + 2
    lines = [f"{'Option':{column}}Description", f"{'------':{column}}-----------"]
    for option in sorted(options, key=lambda each: each.name):
        about = textwrap.wrap(option.about, WIDTH - column)
        first = heads[option.name]
        if len(first) + 2 > column:
            lines.append(first)
            first = ""
        lines += [f"{first:{column}}{about[0]}", *(" " * column + line for line in about[1:])]
    return "\n".join(lines)
