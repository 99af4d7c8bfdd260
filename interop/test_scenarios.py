"""The same questions to Kafka 3.9 and to ours: the same answers, or a row in docs/differences.md."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.spark.java import Java
from interop.harness.jars import Jars
from interop.scenarios.both import play_to_both
from interop.scenarios.compare import Difference, differences
from interop.scenarios.known import PAGE, Known, known_differences, outdated, undocumented
from interop.scenarios.script import AFTER_STOP, SCRIPT

SHOWN = 60


@pytest.fixture(scope="module")
def found(
    tmp_path_factory: pytest.TempPathFactory, java: Java, kafka_jars: Jars
) -> list[Difference]:
    return list(differences(*play_to_both(tmp_path_factory.mktemp("both"), java, kafka_jars)))


@pytest.fixture(scope="module")
def known() -> list[Known]:
    return known_differences(PAGE.read_text())


def test_the_script_asks_enough() -> None:
    assert len(SCRIPT) + len(AFTER_STOP) >= 700
    names = [step.name for step in (*SCRIPT, *AFTER_STOP)]
    assert len(set(names)) == len(names)


def test_every_difference_is_documented(found: list[Difference], known: list[Known]) -> None:
    left = undocumented(found, known)
    assert not left, f"{len(left)} differences stand nowhere:\n{listing(left)}"


def test_every_documented_difference_exists(found: list[Difference], known: list[Known]) -> None:
    gone = outdated(found, known)
    assert not gone, f"no longer so, in {PAGE.name}:\n{listing(gone)}"


ROWS = """
| Step | Field | Kafka 3.9 | Barnabas | Why |
|------|-------|-----------|----------|-----|
| `create: *` | `topics.*` | `*` | `absent` | No reason that counts for a code. |
| `fetch: version 0` | `*.error_code` | `NONE` | `*` | [Q] A reason that does. |
"""


def test_a_row_covers_what_it_names_and_no_code_without_a_reason_for_it() -> None:
    rows = known_differences(ROWS)
    shape = Difference("create: [odd]", "topics.a.name", "a", "absent")
    code = Difference("fetch: version 0", "responses.f.error_code", "NONE", "INVALID_REQUEST")
    bare = Difference("create: x", "topics.a.error_code", "NONE", "absent")
    assert undocumented([shape, code, bare], rows) == []
    others = [
        shape._replace(ours="b"),
        code._replace(step="fetch: version 01"),
        code._replace(kafka="UNKNOWN_TOPIC_ID"),
    ]
    assert undocumented(others, rows) == others
    loose = [row._replace(why="Just so.") for row in rows]
    assert undocumented([code], loose) == [code]


def test_a_row_that_covers_nothing_is_found() -> None:
    rows = known_differences(ROWS)
    assert outdated([Difference("create: x", "topics.a", "a", "absent")], rows) == [rows[1]]
    assert outdated([], rows) == rows


def listing(rows: Sequence[Sequence[object]]) -> str:
    lines = [" | ".join(str(cell)[:100] for cell in row) for row in rows[:SHOWN]]
    return "\n".join(lines)
