"""Offset commits that are in the log and wait for replication.

    complete_when_replicated   applies the commit when it is replicated, or discards it on failure
    wait_until_stable          waits for pending commits, for OffsetFetch with `require_stable`

A commit is completed even if its client has disconnected: it is in the log, and the next coordinator would load it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.offsets import Commits, GroupOffsets
from barnabas.groups.store import COMMIT_ERROR_CODES, AppendResult, GroupStore, translate_error
from barnabas.tasks import Tasks


class PendingCommits:
    """Runs one background task per commit that waits for replicas."""

    def __init__(self, store: GroupStore) -> None:
        self.store = store
        self.tasks = Tasks()
        self.completion_events: dict[GroupOffsets, asyncio.Event] = {}
        """Created by a waiting request. The next commit of the group to complete or fail sets and removes the event."""

    def complete_when_replicated(
        self, offsets: GroupOffsets, commits: Commits, appended: AppendResult
    ) -> asyncio.Future[ErrorCode]:
        """Start a task and return a future of the error code. Cancelling the future does not cancel the commit."""
        result: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.tasks.start("commit", self.wait_and_complete(offsets, commits, appended, result))
        return result

    async def wait_and_complete(
        self,
        offsets: GroupOffsets,
        commits: Commits,
        appended: AppendResult,
        result: asyncio.Future[ErrorCode],
    ) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            await self.store.wait_for(appended)
            code = ErrorCode.NONE
        except ApiError as error:
            code = translate_error(error, COMMIT_ERROR_CODES).code
        except asyncio.CancelledError:
            code = ErrorCode.NOT_COORDINATOR  # the broker is stopping
            raise
        finally:
            if code is ErrorCode.NONE:
                offsets.complete(commits, appended.first_offset)
            else:
                offsets.fail(commits)
            self.notify_completion(offsets)
            if not result.done():  # a disconnected client cancels its future
                result.set_result(code)

    def notify_completion(self, offsets: GroupOffsets) -> None:
        """Wake the requests that wait for commits of a group."""
        if offsets in self.completion_events:
            self.completion_events.pop(offsets).set()

    async def wait_until_stable(
        self, offsets: GroupOffsets, is_unstable: Callable[[], bool]
    ) -> None:
        """Wait until `is_unstable()` is False, at most offsets.commit.timeout.ms. It is checked after each commit."""
        timeout_s = self.store.config.offsets_commit_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                while is_unstable():
                    await self.completion_events.setdefault(offsets, asyncio.Event()).wait()
        except TimeoutError:
            return
