from __future__ import annotations

from asyncio import CancelledError

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from barnabas.errors import ApiError, ErrorCode, reason


def test_codes_match_other_library() -> None:
    theirs = {code.value: code for code in KioErrorCode}
    known = [code for code in ErrorCode if code in theirs]
    assert len(known) > 120
    for code in known:
        assert theirs[code].name.upper() == code.name
        assert theirs[code].retriable == code.retriable


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), "TimeoutError"),
        (ConnectionError(), "ConnectionError"),
        (CancelledError(), "CancelledError"),
        (ConnectionError("no answer within 5 s"), "no answer within 5 s"),
        (ApiError(ErrorCode.NOT_CONTROLLER), "NOT_CONTROLLER"),
    ],
)
def test_reason_is_never_empty(error: BaseException, expected: str) -> None:
    assert reason(error) == expected
