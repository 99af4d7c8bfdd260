"""Coordinator recorder: records the events of the groups and transactions that a broker coordinates.

An event is one line of JSON:

    {"at":"2026-05-01T08:00:00.123Z","broker":2,"run":1777622400123,"sequence":5,"role":"group coordinator",
     "coordinator_epoch":3,"what":"group","id":"billing","group":"billing","protocol":"classic","after":"rebalanced",
     "generation":4,"members":2,"why":"member app-1 left","result":"done"}

`run` identifies the run of the broker, and `sequence` counts its events from 1. So (broker, run, sequence) is the
unique key of an event.

The number of groups and transactional ids is not limited, and a client may cause events without end. So the recorder
leaves out events beyond BURST_MAX at once and EVENTS_PER_SECOND in the long run. The next event has their number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from barnabas.history.recorder import EventLine, EventSink, format_instant
from barnabas.model import BrokerId, ControllerEpoch
from barnabas.world.ports import Clock

BURST_MAX = 2000
EVENTS_PER_SECOND = 1.0
LINE_LENGTH_MAX = 16_000
"""Names and reasons come from clients. A longer line is left out."""


class CoordinatorRecorder:
    """Records the events of one run of a broker, in order."""

    def __init__(self, broker_id: BrokerId, run: int, clock: Clock, sink: EventSink) -> None:
        self.broker_id = broker_id
        self.run = run
        self.clock = clock
        self.sink = sink
        self.sequence = 0
        self.left_out = 0
        self.allowance = EventAllowance(clock.now_ms())

    def record_group(self, group_id: str, facts: Mapping[str, object]) -> None:
        role = {"role": "group coordinator", "what": "group"}
        self.record({**role, "id": group_id, "group": group_id, **facts})

    def record_transaction(self, transactional_id: str, facts: Mapping[str, object]) -> None:
        role = {"role": "transaction coordinator", "what": "transaction"}
        self.record({**role, "id": transactional_id, "transactional_id": transactional_id, **facts})

    def record_marker(self, partition: str, facts: Mapping[str, object]) -> None:
        """Record a marker that an operator wrote to a partition. The leader does not know the transactional id."""
        role = {"role": "leader", "what": "transaction"}
        self.record({**role, "id": partition, "partition": partition, **facts})

    def record(self, fields: Mapping[str, object]) -> None:
        """Record an event, or leave it out. Fields without a value (None) are omitted."""
        now_ms = self.clock.now_ms()
        if not self.allowance.take(now_ms):
            self.left_out += 1
            return
        event = {
            "at": format_instant(now_ms),
            "broker": self.broker_id,
            "run": self.run,
            "sequence": self.sequence + 1,
            **{name: value for name, value in fields.items() if value is not None},
            **({"left_out": self.left_out} if self.left_out else {}),
            "result": "done",
        }
        line = json.dumps(event, separators=(",", ":"))
        if len(line) > LINE_LENGTH_MAX:
            self.left_out += 1
            return
        self.left_out = 0
        self.sequence += 1
        self.sink.append([EventLine(ControllerEpoch(self.run), self.sequence, line)])


class EventAllowance:
    """Token bucket: allows BURST_MAX events at once, and EVENTS_PER_SECOND in the long run."""

    def __init__(self, now_ms: int) -> None:
        self.left = float(BURST_MAX)
        self.updated_ms = now_ms

    def take(self, now_ms: int) -> bool:
        """Return whether one more event is allowed. If so, it is counted."""
        gained = max(now_ms - self.updated_ms, 0) / 1000 * EVENTS_PER_SECOND
        self.left = min(self.left + gained, BURST_MAX)
        self.updated_ms = now_ms
        if self.left < 1:
            return False
        self.left -= 1
        return True
