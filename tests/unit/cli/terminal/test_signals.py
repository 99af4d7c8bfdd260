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
def test_a_query_is_interrupted_at_once_and_a_stream_when_it_looks(
    number: int, kind: type[BaseException]
) -> None:
    raise_on_signals()
    with pytest.raises(kind):
        signal.raise_signal(number)
    recorder = SignalRecorder()
    signal.raise_signal(number)
    assert recorder.wait(0)
    with pytest.raises(kind):
        recorder.raise_if_received()


def test_who_is_terminated_exits_as_a_shell_would_say_it() -> None:
    assert Terminated().code == 143
