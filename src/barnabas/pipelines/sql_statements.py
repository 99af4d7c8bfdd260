"""Outputs, flows and reads in the SQL files of a pipeline. Pure.

Spark parses the SQL itself. This module only looks for the statements of pipelines and for names after FROM and JOIN,
so that topics can become views and two flows into one table are found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from barnabas.pipelines.graph import FlowDefinition, OutputDefinition, OutputKind, short_name

IGNORED = re.compile(r"'(?:[^'\\]|\\.)*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
NAME = r"(?P<{}>(?:`[^`]+`|[\w]+)(?:\.(?:`[^`]+`|[\w]+))*)"
CREATE = re.compile(
    r"\bcreate\s+(?:or\s+refresh\s+)?(?P<kind>streaming\s+table|materialized\s+view|temporary\s+view)\s+"
    rf"(?:if\s+not\s+exists\s+)?{NAME.format('name')}(?P<rest>[^;]*)",
    re.IGNORECASE,
)
FLOW = re.compile(
    rf"\bcreate\s+flow\s+{NAME.format('name')}\s+as\s+(?:insert\s+into|auto\s+cdc\s+into)\s+(?:table\s+)?"
    rf"{NAME.format('target')}",
    re.IGNORECASE,
)
USING = re.compile(r"\busing\s+(\w+)", re.IGNORECASE)
QUERY = re.compile(r"\bas\b\s*(?:\(\s*)?(?:select|with|from|values)\b", re.IGNORECASE)
STREAM_READ = re.compile(rf"\bstream\b\s*\(?\s*{NAME.format('name')}", re.IGNORECASE)
TABLE_READ = re.compile(rf"\b(?:from|join)\s+(?!stream\b){NAME.format('name')}", re.IGNORECASE)
KINDS = {
    "streaming": OutputKind.TABLE,
    "materialized": OutputKind.MATERIALIZED_VIEW,
    "temporary": OutputKind.VIEW,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDefinitions:
    outputs: tuple[OutputDefinition, ...]
    flows: tuple[FlowDefinition, ...]
    stream_reads: dict[str, str]
    """Short name → location."""
    table_reads: dict[str, str]


def find_definitions(sql: str, file: str) -> SqlDefinitions:
    """Find the definitions and reads in a file or a query. `file` begins the locations."""
    text = IGNORED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), sql)

    def location(found: re.Match[str]) -> str:
        return f"{file}:{text.count(chr(10), 0, found.start()) + 1}"

    outputs, flows = [], []
    for found in CREATE.finditer(text):
        kind = KINDS[found["kind"].split()[0].lower()]
        format_name = USING.search(found["rest"])
        outputs.append(
            OutputDefinition(
                name=found["name"],
                kind=kind,
                location=location(found),
                format=format_name[1] if format_name else None,
            )
        )
        if QUERY.search(found["rest"]):
            flows.append(
                FlowDefinition(name=found["name"], target=found["name"], location=location(found))
            )
    flows.extend(
        FlowDefinition(name=found["name"], target=found["target"], location=location(found))
        for found in FLOW.finditer(text)
    )
    return SqlDefinitions(
        outputs=tuple(outputs),
        flows=tuple(flows),
        stream_reads=first_locations(STREAM_READ.finditer(text), location),
        table_reads=first_locations(TABLE_READ.finditer(text), location),
    )


def first_locations(
    matches: Iterator[re.Match[str]], location: Callable[[re.Match[str]], str]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in matches:
        found.setdefault(short_name(match["name"]), location(match))
    return found
