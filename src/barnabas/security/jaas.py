"""JAAS lines: the value of `sasl.jaas.config`, and the login modules of a section in a JAAS file.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="…" user_alice="…";

A line names one login module, a control flag and options, and ends with a semicolon. A section has one or more lines.
Values are words or quoted strings with Java's escapes. Errors never quote a value: it may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from barnabas.errors import ConfigError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FLAGS = ("required", "requisite", "sufficient", "optional")
JAAS_CONFIG = "sasl.jaas.config"
LENGTH_MAX = 1 << 20
EXAMPLE = f'{PLAIN_MODULE} required username="…" password="…";'

TOKEN = re.compile(
    r"""
    (?P<space> \s+ | //[^\n]* | /\*.*?\*/ )
    | "(?P<quoted> (?: [^"\\\n] | \\[^\n] )* )"
    | '(?P<single> (?: [^'\\\n] | \\[^\n] )* )'
    | (?P<mark> [=;] )
    | (?P<word> [^\s=;"']+ )
    """,
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JaasLine:
    """A login module and its options. The options may be secrets, so repr shows only their names."""

    __slots__ = ("module", "options")

    def __init__(self, module: str, options: Mapping[str, str]) -> None:
        self.module = module
        self.options = dict(options)

    def __repr__(self) -> str:
        return f"JaasLine({self.module!r}, {sorted(self.options)})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, JaasLine)
            and self.module == other.module
            and self.options == other.options
        )

    def __hash__(self) -> int:
        return hash(self.module)


def parse_jaas(text: str, key: str = JAAS_CONFIG) -> JaasLine:
    """Parse a JAAS line. `key` is the name of its setting. Raises ConfigError.

    >>> parse_jaas("org.example.Module required a=1 user_b='c';").options
    {'a': '1', 'user_b': 'c'}
    """
    lines = parse_jaas_lines(text, key)
    if len(lines) > 1:
        raise ConfigError(key, "has more than one login module; exactly one is allowed")
    return lines[0]


def parse_jaas_lines(text: str, key: str) -> list[JaasLine]:
    """Parse one or more JAAS lines. Raises ConfigError.

    >>> [line.module for line in parse_jaas_lines("x.Y required a=1; x.Z optional;", "f")]
    ['x.Y', 'x.Z']
    """
    if len(text) > LENGTH_MAX:
        raise ConfigError(key, f"has {len(text)} characters; at most {LENGTH_MAX} are allowed")
    lines = []
    line: list[tuple[str, bool]] = []
    for token in split_tokens(text, key):
        if token == (";", True):
            lines.append(parse_line(line, key))
            line = []
        else:
            line.append(token)
    if line or not lines:
        raise form_error(key)
    return lines


def parse_line(tokens: list[tuple[str, bool]], key: str) -> JaasLine:
    """Parse the tokens of a line before its semicolon."""
    if len(tokens) < 2:
        raise form_error(key)
    (module, _), (flag, _), *rest = tokens
    if flag.lower() not in FLAGS:
        why = f"the control flag after the module must be one of {', '.join(FLAGS)}"
        raise ConfigError(key, f"{why}; as in: {EXAMPLE}")
    return JaasLine(module, parse_options(rest, key))


def form_error(key: str) -> ConfigError:
    return ConfigError(key, f"must be of the form: module flag name=value …; as in: {EXAMPLE}")


def split_tokens(text: str, key: str) -> list[tuple[str, bool]]:
    """Return the tokens, each with whether it is a mark: an unquoted = or ;."""
    tokens: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            raise ConfigError(key, f"has a quote at position {at} that is not closed")
        at = found.end()
        kind = found.lastgroup
        if kind in ("quoted", "single"):
            tokens.append((ESCAPE.sub(unescape, found[kind]), False))
        elif kind in ("mark", "word"):
            tokens.append((found[kind], kind == "mark"))
    return tokens


def unescape(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code, 8)) if code[0] in "01234567" else ESCAPED.get(code, code)


def parse_options(tokens: list[tuple[str, bool]], key: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for start in range(0, len(tokens), 3):
        option = tokens[start : start + 3]
        is_valid = [is_mark for _, is_mark in option] == [False, True, False]
        if not is_valid or option[1][0] != "=":
            why = f"option {start // 3 + 1} is not of the form name=value"
            raise ConfigError(key, f"{why}; as in: {EXAMPLE}")
        name, value = option[0][0], option[2][0]
        if name in options:
            raise ConfigError(key, f"has the option {name} twice")
        options[name] = value
    return options
