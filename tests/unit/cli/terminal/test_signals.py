from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from barnabas.cli.terminal.signals import (
    SignalRecorder,
    Terminated,
    raise_on_signals,
)

KINDS = pytest.mark.parametrize(
    ("number", "kind"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)],
    ids=["int", "term"],
)


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@KINDS
@pytest.mark.usefixtures("interruptible")
def test_signals_raise_at_once_or_are_recorded(number: int, kind: type[BaseException]) -> None:
    raise_on_signals()
    with pytest.raises(kind):
        signal.raise_signal(number)
    recorder = SignalRecorder()
    signal.raise_signal(number)
    assert recorder.wait(0)
    with pytest.raises(kind):
        recorder.raise_if_received()


def test_sigterm_exit_code_is_143() -> None:
    assert Terminated().code == 143
