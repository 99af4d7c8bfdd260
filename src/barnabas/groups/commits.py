"""Commits that stand in the log and wait for its replicas.

    finish    a commit is under way until the replicas have it, or cannot be had; then it counts, or never was
    settled   who must not be told what is about to be overtaken (`require_stable`) waits until it is over

That nobody listens any more, since whoever commits has died or lost its connection, changes nothing: the commit is in
the log, and the next coordinator would find it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.offsets import Commits, GroupOffsets
from barnabas.groups.store import OF_COMMITS, Appended, GroupStore, translated
from barnabas.tasks import Tasks


class CommitsUnderWay:
    def __init__(self, store: GroupStore) -> None:
        self.store = store
        self.tasks = Tasks()
        self.awaited: dict[GroupOffsets, asyncio.Event] = {}
        """Where somebody waits for the end of a commit."""

    def finish(
        self, offsets: GroupOffsets, commits: Commits, appended: Appended
    ) -> asyncio.Future[ErrorCode]:
        """What its sender is to be told, if it is still there."""
        told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.tasks.start("commit", self.end(offsets, commits, appended, told))
        return told

    async def end(
        self,
        offsets: GroupOffsets,
        commits: Commits,
        appended: Appended,
        told: asyncio.Future[ErrorCode],
    ) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            await self.store.wait_for(appended)
            code = ErrorCode.NONE
        except ApiError as error:
            code = translated(error, OF_COMMITS).code
        except asyncio.CancelledError:
            code = ErrorCode.NOT_COORDINATOR  # the broker stops
            raise
        finally:
            if code is ErrorCode.NONE:
                offsets.complete(commits, appended.first_offset)
            else:
                offsets.fail(commits)
            if offsets in self.awaited:
                self.awaited.pop(offsets).set()
            if not told.done():  # it is cancelled when its connection is lost
                told.set_result(code)

    async def settled(self, offsets: GroupOffsets, is_unsettled: Callable[[], bool]) -> None:
        """Returns when none is under way that matters, or one of them takes longer than any may."""
        timeout_s = self.store.config.offsets_commit_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                while is_unsettled():
                    await self.awaited.setdefault(offsets, asyncio.Event()).wait()
        except TimeoutError:
            return

    async def stop(self) -> None:
        await self.tasks.stop()
