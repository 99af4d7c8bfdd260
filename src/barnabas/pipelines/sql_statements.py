"""Outputs, flows and reads in the SQL files of a pipeline. Pure.

Spark parses the SQL itself. This module only looks for the statements of pipelines and for names after FROM and JOIN,
so that topics can become views and two flows into one table are found. It ignores USE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.pipelines.graph import FlowDefinition, OutputDefinition, OutputKind
from barnabas.pipelines.names import DEFAULT_NAMESPACE, Namespace
from barnabas.spark.tables import STRING_OR_COMMENT

IGNORED = re.compile(rf"(?P<name>`[^`]*`)|{STRING_OR_COMMENT}", re.DOTALL)
NAME = r"(?P<{}>(?:`[^`]+`|[\w]+)(?:\.(?:`[^`]+`|[\w]+))*)"
CREATE = re.compile(
    r"\bcreate\s+(?:or\s+(?:refresh|replace)\s+)?"
    r"(?P<kind>streaming\s+table|materialized\s+view|(?:temp(?:orary)?\s+)?view)\s+"
    rf"(?:if\s+not\s+exists\s+)?{NAME.format('name')}(?P<rest>[^;]*)",
    re.IGNORECASE,
)
FLOW = re.compile(
    rf"\bcreate\s+flow\s+{NAME.format('name')}\s+(?:comment\s+)?as\s+"
    rf"(?:insert\s+into|auto\s+cdc\s+into)\s+(?:table\s+)?{NAME.format('target')}",
    re.IGNORECASE,
)
"""The comment itself is a string, so it is blank."""
USING = re.compile(r"\busing\s+(\w+)", re.IGNORECASE)
QUERY = re.compile(
    r"\bas\b\s*(?:\(\s*)?(?:select|with|from|values)\b|\bflow\s+auto\s+cdc\b", re.IGNORECASE
)
TOKEN = re.compile(rf":\s*\w+|{NAME.format('name')}|\|>|[(),;]")
"""The first kind is a field of a variant, such as value_json:from, or a parameter."""
QUERY_STARTS = ("select", "with", "values")
TABLES_END = ("by", "view", "window", "|>", *QUERY_STARTS)
"""After these words, a comma separates columns. VIEW is from LATERAL VIEW, BY from GROUP BY and ORDER BY."""
KINDS = {
    "streaming": OutputKind.TABLE,
    "materialized": OutputKind.MATERIALIZED_VIEW,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDefinitions:
    outputs: tuple[OutputDefinition, ...]
    flows: tuple[FlowDefinition, ...]
    stream_reads: dict[str, str]
    """Short name → location."""
    table_reads: dict[str, str]


def find_definitions(
    sql: str, file: str, namespace: Namespace = DEFAULT_NAMESPACE
) -> SqlDefinitions:
    """Find the definitions and reads in a file or a query. `file` begins the locations."""
    text = IGNORED.sub(lambda found: found["name"] or re.sub(r"[^\n]", " ", found[0]), sql)

    def location(found: re.Match[str]) -> str:
        return f"{file}:{text.count(chr(10), 0, found.start()) + 1}"

    outputs, flows = [], []
    for found in CREATE.finditer(text):
        kind = KINDS.get(found["kind"].split()[0].lower(), OutputKind.VIEW)
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
    reads: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for name, is_stream in find_reads(text):
        reads[is_stream].setdefault(namespace.short_name(name["name"]), location(name))
    return SqlDefinitions(
        outputs=tuple(outputs),
        flows=tuple(flows),
        stream_reads=reads[True],
        table_reads=reads[False],
    )


def find_reads(text: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Yield the names after FROM and JOIN, and after commas between tables, and whether they follow STREAM.

    Some of them are names of functions and common table expressions.
    """
    is_expected = is_stream = are_tables = False
    outside: list[bool] = []
    """`are_tables` for the text around each open parenthesis."""
    previous = ""
    for found in TOKEN.finditer(text):
        token = found[0].lower()
        if token == "(":
            outside.append(are_tables)
            are_tables = False
        elif token == ")":
            are_tables = outside.pop() if outside else False
            is_expected = False
        elif token == ",":
            is_expected, is_stream = are_tables, False
        elif token == "join" or (token == "from" and previous != "distinct"):
            is_expected, is_stream, are_tables = True, False, True
        elif is_expected and token == "stream":
            is_stream = True
        elif is_expected and found["name"] and token not in ("lateral", *QUERY_STARTS):
            yield found, is_stream
            is_expected = False
        elif token == ";" or token in TABLES_END:
            is_expected = are_tables = False
        previous = token
