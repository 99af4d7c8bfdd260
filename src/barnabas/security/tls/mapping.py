"""ssl.principal.mapping.rules: rules that map the subject of a certificate to the name of a user.

    RULE:^CN=(.*?),OU=orders.*$/$1/L,DEFAULT

The first rule whose pattern matches the whole subject decides. `$1` is a group of the pattern. L and U convert the
result to lower and upper case. DEFAULT keeps the subject as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from barnabas.errors import ConfigError

NAME = "ssl.principal.mapping.rules"
SUBJECT_CHARACTERS_MAX = 512
"""Maximum length of a subject that rules are applied to. It limits the time that a pattern takes."""
RULE = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,\s*|$)", re.DOTALL
)
REFERENCE = re.compile(r"\\(.)|\$(\d)|\$\{(\w+)\}", re.DOTALL)
JAVA_GROUP_NAME = re.compile(r"\(\?<(?=[A-Za-z])")


class Rule:
    """One rule. A rule without a pattern is DEFAULT."""

    def __init__(self, pattern: str | None, replacement: str = "", case: str = "") -> None:
        try:
            self.pattern = None if pattern is None else compile_pattern(pattern)
        except (re.error, OverflowError) as error:
            raise ConfigError(NAME, f"the pattern {pattern!r} is invalid: {error}") from error
        self.replacement = replacement
        self.case = case
        self.check_replacement()

    def check_replacement(self) -> None:
        if self.pattern is None:
            return
        for reference in REFERENCE.finditer(self.replacement):
            name = reference[3]
            if name is not None and name not in self.pattern.groupindex:
                raise ConfigError(NAME, f"the pattern has no group {name!r}")

    def apply(self, subject: str) -> str | None:
        """Return the name of the user, or None if the pattern does not match."""
        if self.pattern is None:
            return subject
        if not self.pattern.fullmatch(subject):
            return None
        result = self.pattern.sub(self.expand, subject)
        if self.case == "L":
            return result.lower()
        return result.upper() if self.case == "U" else result

    def expand(self, match: re.Match[str]) -> str:
        def replace(reference: re.Match[str]) -> str:
            escaped, number, name = reference.groups()
            if escaped is not None:
                return escaped
            if number is not None and int(number) > match.re.groups:
                return reference[0]  # as in Kafka
            return match[name if name is not None else int(number)] or ""

        return REFERENCE.sub(replace, self.replacement)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in Java's syntax, as far as Python has the same."""
    return re.compile(JAVA_GROUP_NAME.sub("(?P<", pattern), re.ASCII)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse the value of the setting. Raises ConfigError."""
    rules = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = RULE.match(text, position)
        if match is None:
            part = text[position : position + 60]
            why = f"cannot read {part!r}; a rule is RULE:pattern/replacement/, with L or U after it, or DEFAULT"
            raise ConfigError(NAME, why)
        default, pattern, replacement, case = match.groups()
        rules.append(Rule(None) if default else Rule(pattern, replacement, case))
        position = match.end()
    return tuple(rules) or (Rule(None),)


def map_subject(rules: Sequence[Rule], subject: str) -> str:
    """Return the name of the user. Raises ValueError if no rule matches.

    A pattern can take long. So only subjects up to SUBJECT_CHARACTERS_MAX are matched.
    """
    is_long = len(subject) > SUBJECT_CHARACTERS_MAX
    for rule in rules:
        if is_long and rule.pattern is not None:
            raise ValueError(
                f"the subject of the certificate has {len(subject)} characters; "
                f"{NAME} accepts {SUBJECT_CHARACTERS_MAX}"
            )
        name = rule.apply(subject)
        if name is not None:
            return name
    raise ValueError(f"no rule of {NAME} matches the subject {subject!r}")
