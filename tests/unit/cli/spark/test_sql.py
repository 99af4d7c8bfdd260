from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql.types import (
    ArrayType,
    Row,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from barnabas.cli.spark.failure import QueryFailed, translated
from barnabas.cli.spark.sql import Form, check_target, lists_tables, told
from barnabas.cli.terminal.failure import explain
from barnabas.cli.terminal.rows import csv_lines, instants, json_lines, plain, table_text
from barnabas.cli.terminal.signals import (
    Noted,
    Terminated,
    held_back,
    interruptions,
    raise_on_signals,
)
from barnabas.errors import ConfigError

STACK = "\n\nJVM stacktrace:\norg.apache.spark.SparkException\n\tat org.apache.spark.X(Y.scala:1)"


def test_a_syntax_error_keeps_the_marked_query_and_loses_the_stack() -> None:
    text = (
        "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'selct'. SQLSTATE: 42601 (line 1, pos 0)"
        "\n\n== SQL ==\nselct 1\n^^^\n" + STACK
    )
    error = translated(RuntimeError(text), [])
    assert isinstance(error, ConfigError)
    assert str(error).splitlines() == [
        "SQL: Syntax error at or near 'selct' (line 1, pos 0)",
        "       selct 1",
        "       ^^^",
    ]


def test_an_unknown_column_is_told_without_the_plan() -> None:
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `kye` cannot be resolved. "
        "Did you mean [`key`]. SQLSTATE: 42703; line 1 pos 7;\n'Project ['kye]\n+- SubqueryAlias orders"
    )
    assert (
        str(translated(RuntimeError(text), []))
        == "SQL: A column with name `kye` cannot be resolved. Did you mean [`key`]"
    )


def test_an_unknown_table_leads_to_topics_of_such_a_name() -> None:
    text = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `ordres` cannot be found. Verify…" + STACK
    told = explain(translated(RuntimeError(text), ["orders", "web-orders", "users"]))
    assert "there is no topic 'ordres'" in told
    assert "did you mean orders or `web-orders`?" in told
    assert "barnabas topics list" in explain(translated(RuntimeError(text), []))


def test_an_error_of_the_source_is_told_in_its_own_words() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to plan. Traceback (most recent call last):\n"
        '  File "source.py", line 1, in partitions\n'
        "barnabas.spark.ranges.DataLoss: orders-0: offsets 3 to 7 are gone\n"
    )
    assert str(translated(RuntimeError(text), [])) == "orders-0: offsets 3 to 7 are gone"
    text = (
        "Traceback (most recent call last):\nbarnabas.errors.ConfigError: subscribe: is missing\n"
    )
    assert isinstance(translated(RuntimeError(text), []), ConfigError)


def test_brokers_that_went_away_are_no_wrong_usage() -> None:
    text = (
        "Traceback (most recent call last):\n"
        "barnabas.errors.ConfigError: kafka.bootstrap.servers: no broker reached: a:1 (refused)\n"
    )
    error = translated(RuntimeError(text), [])
    assert isinstance(error, QueryFailed)
    assert str(error) == "kafka.bootstrap.servers: no broker reached: a:1 (refused)"


def test_an_error_of_other_python_code_is_told_with_its_kind() -> None:
    text = (
        "Job aborted.\nTraceback (most recent call last):\n  …\nValueError: no such thing\n" + STACK
    )
    error = translated(RuntimeError(text), [])
    assert isinstance(error, QueryFailed)
    assert str(error) == "ValueError: no such thing"


def test_an_error_pyspark_did_not_take_apart_is_told_by_its_innermost_cause() -> None:
    text = (
        "An error occurred while calling o60.getResult.\n"
        ": org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
        "\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)\n"
        "Caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED] no such user. SQLSTATE: P0001\n"
        "\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala)\n"
        "\t... 8 more\n"
    )
    failed = translated(Exception(text), [])
    assert isinstance(failed, QueryFailed)
    assert str(failed).strip() == "no such user"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o0.contains"),
    ],
    ids=["refused", "empty", "nothing said"],
)
def test_a_java_that_was_killed_is_told_in_one_line(error: Exception) -> None:
    with pytest.raises(QueryFailed, match="Java, in which Spark runs, has ended"), told([]):
        raise error


def test_a_reader_that_went_away_is_not_taken_for_java() -> None:
    with pytest.raises(BrokenPipeError), told([]):
        raise BrokenPipeError


KINDS = pytest.mark.parametrize(
    ("number", "kind"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)],
    ids=["int", "term"],
)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated])
def test_an_error_on_the_way_out_of_an_interrupted_call_is_an_interruption(
    kind: type[BaseException],
) -> None:
    with pytest.raises(kind), interruptions():
        try:
            raise kind
        finally:
            raise RuntimeError("Answer from Java side is empty")
    with pytest.raises(RuntimeError), interruptions():
        raise RuntimeError("another")


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@KINDS
@pytest.mark.usefixtures("interruptible")
def test_an_interruption_waits_until_spark_has_started(
    number: int, kind: type[BaseException]
) -> None:
    has_started = False
    with pytest.raises(kind), held_back():
        signal.raise_signal(number)
        has_started = True
    assert has_started


@KINDS
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("gateway", [None, object()], ids=["not yet", "already"])
def test_a_second_one_waits_until_java_can_be_reached(
    number: int, kind: type[BaseException], gateway: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    has_started = False
    with pytest.raises(kind), held_back():
        signal.raise_signal(number)
        signal.raise_signal(number)
        has_started = True
    assert has_started == (gateway is None)


@KINDS
@pytest.mark.usefixtures("interruptible")
def test_a_java_that_dies_of_the_same_signal_does_not_hide_it(
    number: int, kind: type[BaseException]
) -> None:
    with pytest.raises(kind), held_back():
        signal.raise_signal(number)
        raise ConnectionRefusedError(111, "Connection refused")
    with pytest.raises(ConnectionRefusedError), held_back():
        raise ConnectionRefusedError(111, "Connection refused")


@KINDS
@pytest.mark.usefixtures("interruptible")
def test_a_query_is_interrupted_at_once_and_a_stream_when_it_looks(
    number: int, kind: type[BaseException]
) -> None:
    raise_on_signals()
    with pytest.raises(kind):
        signal.raise_signal(number)
    noted = Noted()
    signal.raise_signal(number)
    assert noted.wait(0)
    with pytest.raises(kind):
        noted.raise_if_any()


def test_who_is_terminated_exits_as_a_shell_would_say_it() -> None:
    assert Terminated().code == 143


def test_values_of_spark_become_plain_ones() -> None:
    assert plain(b"\xffab") == "\\xffab"
    assert plain({"a": [Decimal("1.50"), None]}) == {"a": ["1.50", None]}
    assert plain(datetime(2024, 5, 1, tzinfo=UTC)) == "2024-05-01T00:00:00+00:00"


def test_a_row_is_one_line_of_json_or_csv() -> None:
    rows = [(b"k0", 334, None), ("a,b", 1, [1, 2])]
    assert json_lines(["key", "n", "x"], rows) == (
        b'{"key": "k0", "n": 334, "x": null}\n{"key": "a,b", "n": 1, "x": [1, 2]}\n'
    )
    assert csv_lines(rows) == b'k0,334,\n"a,b",1,"[1, 2]"\n'


def test_a_table_says_how_many_rows_it_has() -> None:
    assert table_text(["key", "n"], [(b"k0", 334)]) == b"KEY    N\nk0   334\n(1 row)\n"
    assert table_text(["n"], [(1,), (2,)], more=True).endswith(b"(the first 2 rows)\n")


def test_a_null_is_told_from_an_empty_text_and_leaves_numbers_to_the_right() -> None:
    rows = [("", 334), (None, None)]
    assert table_text(["key", "n"], rows) == b"KEY      N\n       334\nNULL  NULL\n(2 rows)\n"


def test_a_table_is_cut_only_to_a_width_that_is_given() -> None:
    long = "x" * 500
    assert long.encode() in table_text(["key"], [(long,)], width=None)
    assert long.encode() not in table_text(["key"], [(long,)], width=100)


def test_an_instant_carries_its_offset_and_a_time_without_a_zone_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        moment = datetime(2024, 5, 1, 12)  # noqa: DTZ001 - as Spark hands it over
        nested = StructType([StructField("at", TimestampType())])
        kinds = [TimestampType(), TimestampNTZType(), ArrayType(nested), TimestampType()]
        found = instants(kinds, [(moment, moment, [Row(at=moment)], None)])
        assert json_lines(["a", "b", "c", "d"], found) == (
            b'{"a": "2024-05-01T12:00:00+05:30", "b": "2024-05-01T12:00:00", '
            b'"c": [{"at": "2024-05-01T12:00:00+05:30"}], "d": null}\n'
        )
    finally:
        monkeypatch.undo()
        time.tzset()


def test_files_need_a_place_that_is_free(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--to: is missing"):
        check_target(Form.PARQUET, None, follow=False)
    with pytest.raises(ConfigError, match="goes with -o parquet"):
        check_target(Form.JSON, tmp_path, follow=False)
    with pytest.raises(ConfigError, match="exists already"):
        check_target(Form.PARQUET, tmp_path, follow=True)
    (tmp_path / "_checkpoint").mkdir()
    check_target(Form.PARQUET, tmp_path, follow=True)


def test_only_a_question_for_tables_makes_all_topics_tables() -> None:
    assert lists_tables("SHOW  tables like 'o*'")
    assert not lists_tables("select tables from show")
