"""Log lines give the reason of a failure: errors with a possibly empty message go through
`errors.reason`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

SRC = Path(__file__).parents[2] / "src" / "barnabas"
MODULES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))

MAY_BE_EMPTY = {
    *("TimeoutError", "ConnectionError", "OSError", "CancelledError", "ValueError"),
    *("Exception", "BaseException", "KazooException", "WriterNotClosedException"),
}
LOGGERS = {"logger", "log"}


def bare_errors(source: str) -> Iterator[int]:
    """Yield the lines of log calls that take an error of type MAY_BE_EMPTY as an argument."""
    for handler in ast.walk(ast.parse(source)):
        if not isinstance(handler, ast.ExceptHandler) or not MAY_BE_EMPTY & set(
            handled_types(handler)
        ):
            continue
        for call in ast.walk(handler):
            if is_log_call(call) and any(is_bare_error(each, handler.name) for each in call.args):
                yield call.lineno


def handled_types(handler: ast.ExceptHandler) -> Iterator[str]:
    found = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    for each in found:
        if each is not None:
            yield ast.unparse(each).rsplit(".", maxsplit=1)[-1]


def is_log_call(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) in LOGGERS
    )


def is_bare_error(argument: ast.expr, name: str | None) -> bool:
    """True for the error itself, also within an unpacked tuple, but not for `reason(error)`."""
    match argument:
        case ast.Name():
            return argument.id == name
        case ast.Starred(value=ast.Tuple(elts=elements)):
            return any(is_bare_error(each, name) for each in elements)
        case _:
            return False


@pytest.mark.parametrize("module", MODULES)
def test_log_calls_use_reason_of_error(module: str) -> None:
    lines = list(bare_errors((SRC / module).read_text()))
    assert not lines, f"{module}: pass reason(error) instead of error"


@pytest.mark.parametrize("argument", ["error", "*(broker, error)"])
def test_bare_error_is_found(argument: str) -> None:
    source = (
        "try:\n    ask()\nexcept (ConnectionError, TimeoutError) as error:\n"
        "    logger.warning('cannot ask controller=%d error=%s', ARGUMENT)\n"
    )
    assert list(bare_errors(source.replace("ARGUMENT", argument))) == [4]
    assert not list(bare_errors(source.replace("ARGUMENT", "reason(error)")))
