"""Times and errors of the requests that a broker serves, by API, and the log of slow requests.

`times` is indexed by API key. Each entry is empty, or has six histograms (metrics/histogram.py). Compiled code
(broker/connection.py) adds to them. A time of 0 is not recorded, except the total time. Most requests take less than a
millisecond and wait for nothing. For them one increment in `fast` is enough, which takes a third of the time.
"""

from __future__ import annotations

import logging

from barnabas.errors import RemoteWireError
from barnabas.metrics.histogram import Buckets, add_many, add_seconds, new_buckets
from barnabas.printable import printable
from barnabas.wire.apis import APIS, ApiKey, api_name
from barnabas.wire.headers import decode_request_header

logger = logging.getLogger("barnabas.requests")

# The order of the histograms of an API.
TIME_PARTS = ("total", "queue", "local", "remote", "throttle", "send")
TOTAL_AT, LOCAL_AT, THROTTLE_AT, SEND_AT = 0, 2, 4, 5
FAST_STEP_US, FAST_STEPS = 8, 126
FOLLOWER_FETCH = 127
"""Position of followers' fetches in `times`. The API key of Fetch has those of consumers."""
POSITIONS = 128
WAITS_BY_DESIGN = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
"""These requests wait for replicas, records or group members: their remote time is not slow."""


class RequestMetrics:
    """Counters of one broker. Positions of APIs that were never requested are empty."""

    def __init__(self, slow_ms: int = 1000) -> None:
        assert max(APIS) < FOLLOWER_FETCH
        self.times: list[list[Buckets]] = [[] for _ in range(POSITIONS)]
        self.fast: list[list[int]] = [[] for _ in range(POSITIONS)]
        """Requests answered in less than 1 ms, by total time in steps of 8 µs. They count as local time."""
        self.errors: dict[tuple[int, int], int] = {}
        """By API key and error code."""
        self.slow_s = slow_ms / 1000 if slow_ms >= 0 else float("inf")
        self.waiting_fetches = 0

    def create_times(self, api: int) -> list[Buckets]:
        if not self.times[api]:
            self.times[api] = [new_buckets() for _ in TIME_PARTS]
            self.fast[api] = [0] * FAST_STEPS
        return self.times[api]

    def histograms(self, api: int) -> list[Buckets]:
        """Return copies of the histograms of an API, with the fast requests."""
        copies = [list(buckets) for buckets in self.times[api]]
        for step, count in enumerate(self.fast[api]):
            if count:
                for part in (TOTAL_AT, LOCAL_AT):
                    add_many(copies[part], FAST_STEP_US * step + FAST_STEP_US // 2, count)
        return copies

    def record_send(self, api: int, seconds: float) -> None:
        add_seconds(self.create_times(api)[SEND_AT], seconds)

    def record_throttle(self, api: int, seconds: float, frame: memoryview) -> None:
        add_seconds(self.create_times(api)[THROTTLE_AT], seconds)
        if seconds > self.slow_s:
            self.log_slow(frame, 0.0, 0.0, 0.0, seconds)

    def count_error(self, api: int, code: int) -> None:
        key = (api, code)
        self.errors[key] = self.errors.get(key, 0) + 1

    def log_slow(
        self,
        frame: memoryview,
        queue_s: float,
        local_s: float,
        remote_s: float,
        throttle_s: float = 0.0,
    ) -> None:
        """Log a request that took longer than barnabas.slow.request.ms, with the part that took longest as reason."""
        try:
            header, _ = decode_request_header(frame)
        except RemoteWireError:
            return  # a message of a login without a header
        counted_remote_s = 0.0 if header.api_key in WAITS_BY_DESIGN else remote_s
        if queue_s + local_s + counted_remote_s + throttle_s <= self.slow_s:
            return
        parts = {
            "queue": queue_s,
            "local": local_s,
            "remote": counted_remote_s,
            "throttle": throttle_s,
        }
        logger.warning(
            "slow request api=%s client=%s reason=%s "
            "total_ms=%.0f queue_ms=%.0f local_ms=%.0f remote_ms=%.0f throttle_ms=%.0f",
            api_name(header.api_key),
            printable(header.client_id or ""),
            max(parts, key=lambda part: parts[part]),
            *(1000 * (queue_s + local_s + remote_s + throttle_s), 1000 * queue_s),
            *(1000 * local_s, 1000 * remote_s, 1000 * throttle_s),
        )
