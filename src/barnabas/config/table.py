"""Parser of tables that declare settings: without_effect.py and security.py.

A row is: name | type | default | allowed values | update mode (default: read-only). The next line describes the
setting. The update mode `internal` marks settings that Kafka does not document; they are read-only.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from barnabas.config.setting import (
    ANY,
    NOT_EMPTY,
    READ_ONLY,
    RELEASE,
    Kind,
    Setting,
    Update,
    ValueCheck,
    at_least,
    between,
    each_of,
    one_of,
)


def read_table(table: str) -> dict[str, Setting]:
    lines = [line for line in table.splitlines() if line and not line.startswith("#")]
    rows = zip(lines[::2], lines[1::2], strict=True)
    return {declared.name: declared for declared in (read_row(row, doc) for row, doc in rows)}


def read_row(row: str, doc: str) -> Setting:
    name, kind, default, allowed, *update = row.split(" | ")
    declared = Setting(
        name=name,
        kind=Kind[kind.upper()],
        default=None,
        check=read_check(allowed),
        doc=doc.strip(),
        update=Update(update[0]) if update and update[0] != "internal" else READ_ONLY,
        internal=update == ["internal"],
    )
    if default == "null":
        return declared
    return replace(declared, default=declared.parse("" if default == '""' else default))


def read_check(allowed: str) -> ValueCheck:
    if allowed in NAMED_CHECKS:
        return NAMED_CHECKS[allowed]
    if match := re.fullmatch("at least (.+)", allowed):
        return at_least(int(match[1]))
    if match := re.fullmatch("from (.+) to (.+)", allowed):
        low, high = match.groups()
        return between(int(low), float(high) if "." in high else int(high))
    if match := re.fullmatch("one of (.+)", allowed):
        return one_of(*match[1].split(", "))
    match = re.fullmatch("a list of (.+)", allowed)
    assert match, f"no check is called {allowed!r}"
    return each_of(*match[1].split(", "))


def each_like(pattern: str, allowed: str) -> ValueCheck:
    return ValueCheck(allowed, lambda value: all(re.fullmatch(pattern, each) for each in value))


NAMED_CHECKS = {
    check.allowed: check
    for check in (
        ANY,
        NOT_EMPTY,
        RELEASE,
        ValueCheck("-1 or at least 1", lambda value: value == -1 or value >= 1),
        each_like(r"\d+@.+:\d+", "a list of id@host:port"),
        each_like(r".+:\d+", "a list of host:port"),
    )
}
