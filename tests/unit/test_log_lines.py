from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from barnabas.log_lines import PrintableFormatter

HOSTILE = "a\n2026-01-01 INFO forged\r\x1b[31m\x9b\u202e\u2028"
SHOWN = "a\\n2026-01-01 INFO forged\\r\\x1b[31m\\x9b\\u202e\\u2028"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a logger of the test writes, which no other handler sees."""
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


def test_a_message_is_one_printable_line(written: io.StringIO) -> None:
    logger.warning("closing connection peer=%s reason=%s", HOSTILE, "größe 数量")
    line = f"WARNING tests.log_lines closing connection peer={SHOWN} reason=größe 数量\n"
    assert written.getvalue() == line


def test_a_traceback_is_indented_and_escaped(written: io.StringIO) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("request failed")
    first, *rest = written.getvalue().removesuffix("\n").split("\n")
    assert first == "ERROR tests.log_lines request failed"
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "    ValueError: a" in rest


def test_a_traceback_formatted_by_another_handler_is_escaped_too(written: io.StringIO) -> None:
    record = logger.makeRecord("x", logging.ERROR, "", 0, "m", (), None)
    try:
        raise ValueError("\x1b")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    logging.Formatter().format(record)
    assert "\x1b" not in PrintableFormatter().format(record)


def test_a_long_name_is_cut_and_what_follows_it_is_kept(written: io.StringIO) -> None:
    logger.warning("refused group=%s members=%d reason=%s", "g" * 32_000, 3, "full")
    assert written.getvalue().endswith("g…(+31744) members=3 reason=full\n")


def test_a_long_message_without_arguments_is_cut(written: io.StringIO) -> None:
    logger.warning("x" * 32_000)
    assert written.getvalue() == f"WARNING tests.log_lines {'x' * 4000}…(+28000)\n"
