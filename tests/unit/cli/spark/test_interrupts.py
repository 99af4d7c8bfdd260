from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from pyspark import SparkContext

from barnabas.cli.spark.session import defer_signals, unmask_interrupts
from barnabas.cli.terminal.signals import (
    Terminated,
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


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated])
def test_error_during_interrupt_becomes_interrupt(
    kind: type[BaseException],
) -> None:
    with pytest.raises(kind), unmask_interrupts():
        try:
            raise kind
        finally:
            raise RuntimeError("Answer from Java side is empty")
    with pytest.raises(RuntimeError), unmask_interrupts():
        raise RuntimeError("another")


@KINDS
@pytest.mark.usefixtures("interruptible")
def test_interrupt_is_deferred_until_spark_has_started(
    number: int, kind: type[BaseException]
) -> None:
    has_started = False
    with pytest.raises(kind), defer_signals():
        signal.raise_signal(number)
        has_started = True
    assert has_started


@KINDS
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("gateway", [None, object()], ids=["no gateway", "gateway"])
def test_second_interrupt_is_raised_once_java_is_reachable(
    number: int, kind: type[BaseException], gateway: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    has_started = False
    with pytest.raises(kind), defer_signals():
        signal.raise_signal(number)
        signal.raise_signal(number)
        has_started = True
    assert has_started == (gateway is None)


@KINDS
@pytest.mark.usefixtures("interruptible")
def test_java_killed_by_same_signal_raises_interrupt(
    number: int, kind: type[BaseException]
) -> None:
    with pytest.raises(kind), defer_signals():
        signal.raise_signal(number)
        raise ConnectionRefusedError(111, "Connection refused")
    with pytest.raises(ConnectionRefusedError), defer_signals():
        raise ConnectionRefusedError(111, "Connection refused")
