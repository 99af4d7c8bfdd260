from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from barnabas.cli.spark.failure import translate
from barnabas.cli.spark.session import translate_errors
from barnabas.cli.terminal.failure import explain
from barnabas.errors import ConfigError
from barnabas.spark.error_text import QueryFailed

STACK = "\n\nJVM stacktrace:\norg.apache.spark.SparkException\n\tat org.apache.spark.X(Y.scala:1)"


def test_syntax_error_keeps_marked_query_without_stack() -> None:
    text = (
        "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'selct'. SQLSTATE: 42601 (line 1, pos 0)"
        "\n\n== SQL ==\nselct 1\n^^^\n" + STACK
    )
    error = translate(RuntimeError(text), [])
    assert isinstance(error, ConfigError)
    assert str(error).splitlines() == [
        "SQL: Syntax error at or near 'selct' (line 1, pos 0)",
        "       selct 1",
        "       ^^^",
    ]


def test_unknown_column_is_reported_without_plan() -> None:
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `kye` cannot be resolved. "
        "Did you mean [`key`]. SQLSTATE: 42703; line 1 pos 7;\n'Project ['kye]\n+- SubqueryAlias orders"
    )
    assert (
        str(translate(RuntimeError(text), []))
        == "SQL: A column with name `kye` cannot be resolved. Did you mean [`key`]"
    )


def test_unknown_table_suggests_similar_topics() -> None:
    text = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `ordres` cannot be found. Verify…" + STACK
    explanation = explain(translate(RuntimeError(text), ["orders", "web-orders", "users"]))
    assert "there is no topic 'ordres'" in explanation
    assert "did you mean orders or `web-orders`?" in explanation
    assert "barnabas topics list" in explain(translate(RuntimeError(text), []))


def test_error_of_data_source_keeps_its_message() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to plan. Traceback (most recent call last):\n"
        '  File "source.py", line 1, in partitions\n'
        "barnabas.spark.ranges.DataLoss: orders-0: offsets 3 to 7 are gone\n"
    )
    assert str(translate(RuntimeError(text), [])) == "orders-0: offsets 3 to 7 are gone"
    text = (
        "Traceback (most recent call last):\nbarnabas.errors.ConfigError: subscribe: is missing\n"
    )
    assert isinstance(translate(RuntimeError(text), []), ConfigError)


def test_unreachable_brokers_are_not_wrong_usage() -> None:
    text = (
        "Traceback (most recent call last):\n"
        "barnabas.spark.lookup.UnreachableBrokers: kafka.bootstrap.servers: no broker reached: a:1 (refused)\n"
    )
    error = translate(RuntimeError(text), [])
    assert isinstance(error, QueryFailed)
    assert str(error) == "kafka.bootstrap.servers: no broker reached: a:1 (refused)"


def test_other_python_error_is_reported_with_its_type() -> None:
    text = (
        "Job aborted.\nTraceback (most recent call last):\n  …\nValueError: no such thing\n" + STACK
    )
    error = translate(RuntimeError(text), [])
    assert isinstance(error, QueryFailed)
    assert str(error) == "ValueError: no such thing"


def test_unparsed_java_error_is_reported_by_innermost_cause() -> None:
    text = (
        "An error occurred while calling o60.getResult.\n"
        ": org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
        "\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)\n"
        "Caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED] no such user. SQLSTATE: P0001\n"
        "\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala)\n"
        "\t... 8 more\n"
    )
    failed = translate(Exception(text), [])
    assert isinstance(failed, QueryFailed)
    assert str(failed).strip() == "no such user"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o0.contains"),
    ],
    ids=["refused", "empty", "no message"],
)
def test_killed_java_is_reported_in_one_line(error: Exception) -> None:
    with (
        pytest.raises(QueryFailed, match="the JVM of Spark ended"),
        translate_errors([]),
    ):
        raise error


def test_broken_pipe_is_not_a_java_failure() -> None:
    with pytest.raises(BrokenPipeError), translate_errors([]):
        raise BrokenPipeError
