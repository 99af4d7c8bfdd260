"""The same requests to Kafka 3.9 and to Barnabas: the same responses, or a row in docs/differences.md."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.java.find import Java
from interop.harness.jars import Jars
from interop.scenarios.both import play_to_both
from interop.scenarios.compare import ABSENT, Difference, differences
from interop.scenarios.consumer_groups import SCRIPT as SCRIPT_FOR_CONSUMER_GROUPS
from interop.scenarios.consumer_groups import play_to_consumer_groups
from interop.scenarios.known import (
    PAGE,
    KnownDifference,
    find_outdated,
    find_undocumented,
    known_differences,
)
from interop.scenarios.log_dirs import SCRIPT as SCRIPT_FOR_LOG_DIRS
from interop.scenarios.log_dirs import play_to_log_dirs
from interop.scenarios.script import AFTER_STOP, SCRIPT, TRANSACTIONS
from interop.scenarios.three.both import play_to_three
from interop.scenarios.three.script import SCRIPT as SCRIPT_FOR_THREE

SHOWN = 60


# Brokers of both kinds are restarted here for minutes, and longer on a busy machine.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def found(
    tmp_path_factory: pytest.TempPathFactory, java: Java, kafka_jars: Jars
) -> list[Difference]:
    of_one = play_to_both(tmp_path_factory.mktemp("one"), java, kafka_jars)
    of_three = play_to_three(tmp_path_factory.mktemp("three"), java, kafka_jars)
    of_log_dirs = play_to_log_dirs(tmp_path_factory.mktemp("log-dirs"), java, kafka_jars)
    of_groups = play_to_consumer_groups(tmp_path_factory.mktemp("groups"), java, kafka_jars)
    transcripts = (of_one, of_three, of_log_dirs, of_groups)
    return [each for pair in transcripts for each in differences(*pair)]


@pytest.fixture(scope="module")
def known() -> list[KnownDifference]:
    return known_differences(PAGE.read_text())


def test_script_has_enough_steps() -> None:
    assert len(SCRIPT) + len(AFTER_STOP) >= 2850
    assert len(TRANSACTIONS) >= 600
    assert len(SCRIPT_FOR_CONSUMER_GROUPS) >= 165
    assert len(SCRIPT_FOR_THREE) >= 770
    names = [step.name for step in (*SCRIPT, *AFTER_STOP)]
    assert len(SCRIPT_FOR_LOG_DIRS) >= 100
    names += [step.name for step in SCRIPT_FOR_THREE]
    names += [step.name for step in SCRIPT_FOR_LOG_DIRS]
    names += [step.name for step in SCRIPT_FOR_CONSUMER_GROUPS]
    assert len(set(names)) == len(names)


def test_every_difference_is_documented(
    found: list[Difference], known: list[KnownDifference]
) -> None:
    left = find_undocumented(found, known)
    assert not left, f"{len(left)} undocumented differences:\n{listing(left)}"


def test_every_documented_difference_exists(
    found: list[Difference], known: list[KnownDifference]
) -> None:
    gone = find_outdated(found, known)
    assert not gone, f"outdated rows in {PAGE.name}:\n{listing(gone)}"


ROWS = """
| Step | Field | Kafka 3.9 | Barnabas | Why |
|------|-------|-----------|----------|-----|
| `create: *` | `topics.*` | `*` | `absent` | No reason that counts for a code. |
| `fetch: version 0` | `*.error_code` | `NONE` | `*` | [Q] A reason that does. |
"""


def test_error_code_differences_need_reason() -> None:
    rows = known_differences(ROWS)
    shape = Difference("create: [odd]", "topics.a.name", "a", "absent")
    code = Difference("fetch: version 0", "responses.f.error_code", "NONE", "INVALID_REQUEST")
    bare = Difference("create: x", "topics.a.error_code", "NONE", "absent")
    assert find_undocumented([shape, code, bare], rows) == []
    others = [
        shape._replace(ours="b"),
        code._replace(step="fetch: version 01"),
        code._replace(kafka="UNKNOWN_TOPIC_ID"),
    ]
    assert find_undocumented(others, rows) == others
    loose = [row._replace(why="Just so.") for row in rows]
    assert find_undocumented([code], loose) == [code]


def test_controller_differences_need_quirk() -> None:
    anything = KnownDifference("*", "*", "*", "*", "Old formats: as we like it.")
    quirk = anything._replace(why="[Q] Kafka is strange.")
    strict = [
        Difference("three brokers: create", "topics.a.error_code", "NONE", "INVALID_REQUEST"),
        Difference("three brokers: kill 2", "/brokers/topics/a/partitions/0/state isr", "1", "2"),
        Difference("znodes", "/controller_epoch", "1", ABSENT),
    ]
    assert find_undocumented(strict, [anything]) == strict
    assert find_undocumented(strict, [quirk]) == []
    elsewhere = strict[0]._replace(step="create: new")
    assert find_undocumented([elsewhere], [anything]) == []


def test_outdated_row_is_detected() -> None:
    rows = known_differences(ROWS)
    assert find_outdated([Difference("create: x", "topics.a", "a", "absent")], rows) == [rows[1]]
    assert find_outdated([], rows) == rows


def listing(rows: Sequence[Sequence[object]]) -> str:
    lines = [" | ".join(str(cell)[:100] for cell in row) for row in rows[:SHOWN]]
    return "\n".join(lines)
