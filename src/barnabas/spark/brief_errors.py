"""Errors without our own stack frames.

Spark shows the traceback of a Python source or sink as part of the error message. An error of Barnabas explains itself,
so its frames would only hide the message. Other errors are bugs, and keep their traceback.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from barnabas.errors import BarnabasError

P = ParamSpec("P")
T = TypeVar("T")


def brief_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function or generator that Spark calls: errors of Barnabas lose the frames below this one."""
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def generate(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
            try:
                yield from function(*args, **kwargs)
            except BarnabasError as error:
                raise error.with_traceback(None) from None

        return cast("Callable[P, T]", generate)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except BarnabasError as error:
            raise error.with_traceback(None) from None

    return call
