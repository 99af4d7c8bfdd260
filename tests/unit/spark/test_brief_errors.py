from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

from barnabas.errors import BarnabasError, ConfigError
from barnabas.spark.brief_errors import brief_errors


def reject(text: str) -> None:
    if text == "bug":
        raise KeyError(text)
    raise ConfigError("option", text)


@brief_errors
def call(text: str) -> None:
    reject(text)


@brief_errors
def generate(text: str) -> Iterator[int]:
    yield 1
    reject(text)


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]


def test_own_errors_lose_their_frames() -> None:
    with pytest.raises(BarnabasError, match="option: wrong") as error:
        call("wrong")
    assert frames(error.value) == ["call"]
    rows = generate("wrong")
    assert next(rows) == 1
    with pytest.raises(BarnabasError, match="option: wrong") as error:
        next(rows)
    assert frames(error.value) == ["generate"]


def test_bugs_keep_their_frames() -> None:
    with pytest.raises(KeyError) as error:
        call("bug")
    assert frames(error.value)[-1] == "reject"
