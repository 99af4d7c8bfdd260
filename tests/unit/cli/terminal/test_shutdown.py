import asyncio
import os
import signal
from collections.abc import Iterator

import click
import pytest

from barnabas.cli.terminal.shutdown import ShutdownSignals

DEADLINE_S = 30.0


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


async def test_second_signal_is_urgent() -> None:
    codes: list[int] = []
    urgent = asyncio.Event()

    def kill(exit_code: int) -> None:
        codes.append(exit_code)
        urgent.set()

    shutdown = ShutdownSignals(on_second=kill)
    async with asyncio.timeout(DEADLINE_S):
        send(signal.SIGTERM)
        await shutdown.requested.wait()
        assert codes == []
        send(signal.SIGINT)
        await urgent.wait()
    assert shutdown.is_urgent
    assert codes == [130]


@pytest.fixture
def hangup() -> Iterator[None]:
    """Restore the handler of SIGHUP, which nohup or a CI may have set for the test run."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
async def test_closed_terminal_requests_shutdown() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    shutdown = ShutdownSignals()
    async with asyncio.timeout(DEADLINE_S):
        send(signal.SIGHUP)
        await shutdown.requested.wait()
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


@pytest.mark.usefixtures("hangup")
async def test_nohup_ignores_closed_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ShutdownSignals()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


async def test_signal_cancels_work_with_its_exit_code() -> None:
    shutdown = ShutdownSignals()
    ended: list[str] = []

    async def work() -> None:
        send(signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    with pytest.raises(click.exceptions.Exit) as interrupted:
        async with asyncio.timeout(DEADLINE_S):
            await shutdown.run_until_requested(work())
    assert interrupted.value.exit_code == 143
    assert ended == ["cleaned up"]


async def test_failure_of_work_is_raised() -> None:
    async def work() -> None:
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        await ShutdownSignals().run_until_requested(work())
