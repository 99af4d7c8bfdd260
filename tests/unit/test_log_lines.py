from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from barnabas.log_lines import PrintableFormatter

HOSTILE = "a\n2026-01-01 INFO forged\r\x1b[31m\x9b\u202e\u2028"
SHOWN = "a\\n2026-01-01 INFO forged\\r\\x1b[31m\\x9b\\u202e\\u2028"


@pytest.fixture
def log_output() -> Iterator[io.StringIO]:
    """Output of a logger that no other handler sees."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PrintableFormatter("%(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("tests.log_lines")
    logger.addHandler(handler)
    logger.propagate = False
    yield stream
    logger.removeHandler(handler)
    logger.propagate = True


logger = logging.getLogger("tests.log_lines")


def test_message_is_one_printable_line(log_output: io.StringIO) -> None:
    logger.warning("closing connection peer=%s reason=%s", HOSTILE, "größe 数量")
    line = f"WARNING tests.log_lines closing connection peer={SHOWN} reason=größe 数量\n"
    assert log_output.getvalue() == line


def test_traceback_is_indented_and_escaped(log_output: io.StringIO) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("request failed")
    first, *rest = log_output.getvalue().removesuffix("\n").split("\n")
    assert first == "ERROR tests.log_lines request failed"
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "    ValueError: a" in rest


def test_traceback_cached_by_another_handler_is_escaped(log_output: io.StringIO) -> None:
    record = logger.makeRecord("x", logging.ERROR, "", 0, "m", (), None)
    try:
        raise ValueError("\x1b")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    logging.Formatter().format(record)
    assert "\x1b" not in PrintableFormatter().format(record)


def test_long_argument_is_truncated_and_the_rest_kept(log_output: io.StringIO) -> None:
    logger.warning("refused group=%s members=%d reason=%s", "g" * 32_000, 3, "full")
    assert log_output.getvalue().endswith("g…(+31744) members=3 reason=full\n")


def test_long_message_is_truncated(log_output: io.StringIO) -> None:
    logger.warning("x" * 32_000)
    assert log_output.getvalue() == f"WARNING tests.log_lines {'x' * 4000}…(+28000)\n"
