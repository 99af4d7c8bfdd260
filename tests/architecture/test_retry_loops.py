"""Every loop that retries after an error backs off between two attempts (barnabas.retry.Backoff)."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.architecture.retry_loops import loops_without_backoff

SRC = Path(__file__).parents[2] / "src" / "barnabas"
MODULES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))

# (module, function, handler) → the reason the loop may continue without a back-off
EXCEPTIONS = {
    (
        "broker/handlers/registry_offsets.py",
        "write_offset",
        "with suppress(NodeExists)",
    ): "creates one parent of the path per turn",
    (
        "broker/maintenance.py",
        "run_every.repeat",
        "except StorageError",
    ): "periodic: each turn sleeps for the period",
    (
        "broker/maintenance.py",
        "run_every.repeat",
        "except Exception",
    ): "periodic: each turn sleeps for the period",
    (
        "cli/terminal/wait_progress.py",
        "show_until_done",
        "with suppress(BarnabasError)",
    ): "periodic: each turn waits for the interval",
    (
        "client/cluster.py",
        "Cluster.ask_first_reachable",
        "except ApiError",
    ): "each turn leaves out one more broker",
    (
        "client/producer.py",
        "Producer.send_buffers",
        "except ApiError",
    ): "each turn sends the next batches, and leaves out the partitions that failed",
    (
        "controller/queue.py",
        "EventQueue.run",
        "except Exception",
    ): "each turn takes one event from the queue",
    (
        "groups/expiry.py",
        "expire_periodically",
        "except Exception",
    ): "periodic: each turn sleeps for the period",
    (
        "replication/internal_topic_loader.py",
        "InternalTopicLoader.run",
        "except StorageError",
    ): "each turn takes one partition from the queue",
    (
        "replication/internal_topic_loader.py",
        "InternalTopicLoader.run",
        "except Exception",
    ): "each turn takes one partition from the queue",
    (
        "replication/internal_topic_loader.py",
        "InternalTopicLoader.read",
        "except CorruptBatch",
    ): "continues after the damaged batch",
    (
        "replication/fetcher.py",
        "Fetcher.run",
        "except ExchangeInterrupted",
    ): "only an exchange that has yielded can be interrupted, and only once",
    (
        "replication/replica_manager.py",
        "ReplicaManager.save_unsaved_epochs",
        "except StorageError",
    ): "each turn takes one partition from the queue",
    (
        "replication/flushes.py",
        "Flushes.run",
        "except StorageError",
    ): "each turn takes one request to flush",
    (
        "spark/fetching.py",
        "RangeFetcher.batches",
        "except ApiError",
    ): "back_off() pauses from the second failure on",
    (
        "spark/fetching.py",
        "RangeFetcher.batches",
        "except DataLoss",
    ): "continues after the lost records",
    (
        "tasks.py",
        "Tasks.stop",
        "except asyncio.CancelledError",
    ): "waits for the same task again; it has been cancelled already",
    (
        "tasks.py",
        "in_thread",
        "with suppress(asyncio.CancelledError)",
    ): "waits for the same thread again; it cannot be cancelled",
    (
        "batch/compression.py",
        "decompress_into_buffer",
        "except cramjam.DecompressionError",
    ): "each turn has a larger buffer",
    (
        "transactions/coordinator_checks.py",
        "abort_timed_out_periodically",
        "except Exception",
    ): "periodic: each turn sleeps for the period",
    (
        "transactions/coordinator_checks.py",
        "expire_ids_periodically",
        "except Exception",
    ): "periodic: each turn sleeps for the period",
    (
        "transactions/marker_channels.py",
        "MarkerSender.run",
        "except Exception",
    ): "each turn takes markers from the queue; those that failed return to it after a back-off",
    (
        "world/registry/kazoo_thread.py",
        "BufferedSocket.send",
        "except (BlockingIOError, ssl.SSLWantWriteError)",
    ): "waits with poll() until the socket is writable",
    (
        "world/registry/zookeeper.py",
        "ZooKeeperSession.perform",
        "except ConnectionLoss",
    ): "waits for the next connection; a delay would reorder the calls",
}


@pytest.mark.parametrize("module", MODULES)
def test_retry_loops_back_off(module: str) -> None:
    found = loops_without_backoff((SRC / module).read_text())
    bad = [each for each in found if (module, each.function, each.handler) not in EXCEPTIONS]
    assert not bad, f"{module}: the loop continues without a back-off after these handlers"


def test_exceptions_are_still_needed() -> None:
    found = {
        (module, each.function, each.handler)
        for module in {module for module, _, _ in EXCEPTIONS}
        for each in loops_without_backoff((SRC / module).read_text())
    }
    assert not EXCEPTIONS.keys() - found


def unsafe_handlers(source: str) -> list[str]:
    return [each.handler for each in loops_without_backoff(dedent(source))]


def test_failure_treated_as_interruption_is_found() -> None:
    """This loop of the fetcher once blocked a broker: `connect` failed without awaiting anything."""
    assert unsafe_handlers(
        """
        class Fetcher:
            async def run(self):
                try:
                    while not self.is_stopped:
                        if not self.active:
                            self.has_work.clear()
                            await self.has_work.wait()
                            continue
                        try:
                            await self.fetch_once()
                        except (ConnectionError, TimeoutError) as error:
                            if not self.is_interrupted:
                                await self.recover(error)
                            elif self.session_epoch != FIRST_EPOCH:
                                self.continue_session(self.session_id)
                finally:
                    self.disconnect("stopped")

            async def recover(self, error):
                self.disconnect(str(error))
                await self.backoff.wait()
        """
    ) == ["except (ConnectionError, TimeoutError)"]


@pytest.mark.parametrize(
    "body",
    [
        "except OSError:\n    await backoff.wait()",
        "except OSError:\n    if is_over():\n        return\n    await self.backoff.wait()",
        "except OSError:\n    if is_over():\n        raise\n    time.sleep(backoff.next_s())",
        "except OSError:\n    pause(min(backoff.next_s(), left_s))",
        "except OSError:\n    log()\nawait backoff.wait()",
        "except OSError:\n    break",
        "except OSError:\n    await self.recover()",
        "except OSError:\n    for each in things:\n        log(each)\n    await backoff.wait()",
        "finally:\n    close()",
    ],
)
def test_loops_that_back_off_or_end_are_accepted(body: str) -> None:
    assert not unsafe_handlers(loop_with(body))


@pytest.mark.parametrize(
    "body",
    [
        "except OSError:\n    pass",
        "except OSError:\n    continue\nawait backoff.wait()",
        "except OSError:\n    if is_first:\n        await backoff.wait()",
        "except OSError:\n    if is_first:\n        continue\n    await backoff.wait()",
        "except OSError:\n    for each in things:\n        await backoff.wait()",
        "except OSError:\n    backoff.next_s()",
        "except OSError:\n    backoff.wait()",
        "except OSError:\n    await event.wait()",
        "except OSError:\n    await asyncio.sleep(1)",
        "except OSError:\n    await self.maybe_recover()",
        "except OSError:\n    await other.recover()",
        "except OSError:\n    async def later():\n        await backoff.wait()",
    ],
)
def test_paths_around_the_backoff_are_found(body: str) -> None:
    assert unsafe_handlers(loop_with(body)) == ["except OSError"]


def loop_with(handler: str) -> str:
    lines = "".join(f"            {line}\n" for line in handler.splitlines())
    return f"""
class Client:
    async def run(self):
        while True:
            try:
                await self.ask()
{lines}
    async def recover(self):
        self.close()
        await self.backoff.wait()

    async def maybe_recover(self):
        if self.is_open:
            return
        await self.backoff.wait()
"""


def test_suppressed_errors_are_found() -> None:
    assert unsafe_handlers(
        """
        def run():
            while not done():
                with suppress(OSError):
                    ask()
        """
    ) == ["with suppress(OSError)"]


def test_for_loop_retries_only_over_a_range() -> None:
    source = """
        def run():
            for attempt in {things}:
                try:
                    return ask()
                except OSError:
                    log(attempt)
        """
    assert unsafe_handlers(source.format(things="range(3)")) == ["except OSError"]
    assert not unsafe_handlers(source.format(things="brokers"))


def test_failures_in_inner_loop_must_back_off_in_outer_loop() -> None:
    source = """
        async def run():
            while True:
                for broker in brokers:
                    try:
                        return await ask(broker)
                    except OSError:
                        log(broker)
                {after}
        """
    assert unsafe_handlers(source.format(after="log()")) == ["except OSError"]
    assert not unsafe_handlers(source.format(after="await backoff.wait()"))
