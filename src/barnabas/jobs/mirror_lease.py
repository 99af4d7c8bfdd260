"""Lease of a mirrored topic: at most one run copies records to it.

A lease is a committed offset of a group that no consumer uses, in the target cluster. Its metadata names the run, and
its offset grows every second while the run is alive. Another run that finds a lease waits: if the offset grows, that
run is refused, and otherwise the first one was killed. No clocks of different machines are compared.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from socket import gethostname
from types import TracebackType
from typing import Self
from uuid import uuid4

import msgspec
from msgspec import Struct

from barnabas.client.blocking import Deadline, pause
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.errors import ApiError
from barnabas.jobs.errors import JobRefused
from barnabas.jobs.mirror_checkpoints import CHECKPOINT_TOPIC
from barnabas.model import TopicPartition

BEAT_S = 1.0
EXPIRY_S = 5.0
"""A lease whose offset does not grow for this time belongs to a run that was killed."""
SETTLE_S = 0.2
"""Of two runs that take a free lease at once, the later one overwrites the earlier within this time."""
PLACE = TopicPartition(CHECKPOINT_TOPIC, 0)


class LeaseOwner(Struct, frozen=True, kw_only=True):
    """A run that copies records."""

    run: str
    host: str
    pid: int


class MirrorLease:
    """Holds the lease of a topic of the target cluster during a `with` block. The checkpoint topic must exist."""

    def __init__(self, cluster: Cluster, target: str) -> None:
        self.target = target
        self.group = f"barnabas-mirror-{target}"
        self.owner = LeaseOwner(run=uuid4().hex, host=gethostname(), pid=os.getpid())
        # A thread cannot share a client with the job.
        self.cluster = cluster.with_new_connections(timeout_s=EXPIRY_S)
        self.admin = GroupAdmin(self.cluster)
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.beat, daemon=True)

    def __enter__(self) -> Self:
        """Take the lease. Raises JobRefused if another run holds it."""
        try:
            self.take()
        except BaseException:
            self.cluster.close()
            raise
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.ended.set()
        self.thread.join()
        # If the lease cannot be given back, it expires.
        with suppress(ApiError):
            if self.read()[0] == self.owner:
                self.admin.delete_groups([self.group])
        self.cluster.close()

    def take(self) -> None:
        found = self.read()
        deadline = Deadline(EXPIRY_S)
        while found[0] is not None and not deadline.passed:
            pause(BEAT_S / 4)
            if (now := self.read()) != found and now[0] is not None:
                raise self.refusal(now[0])
            found = now
        self.write(1)
        pause(SETTLE_S)
        self.check()

    def check(self) -> None:
        """Raise JobRefused if another run has taken the lease, because this one was stopped for a while."""
        with self.lock:
            owner, _ = self.read()
        if owner is not None and owner != self.owner:
            raise self.refusal(owner)

    def refusal(self, owner: LeaseOwner) -> JobRefused:
        why = f"process {owner.pid} on {owner.host} mirrors to topic {self.target}"
        return JobRefused(f"another run, {why}; wait for its end, or stop it")

    def beat(self) -> None:
        """Renew the lease until it is given back or another run takes it."""
        number = 1
        while self.renew(number) and not self.ended.wait(BEAT_S):
            number += 1

    def renew(self, number: int) -> bool:
        """Return False if another run has the lease. Brokers may be away for a while: the next beat tries again."""
        with self.lock, suppress(ApiError):
            if self.read()[0] != self.owner:
                return False
            self.write(number)
        return True

    def read(self) -> tuple[LeaseOwner | None, int]:
        found = self.admin.committed_offsets(self.group).get(PLACE)
        if found is None:
            return None, 0
        try:
            return msgspec.json.decode(found.metadata or "", type=LeaseOwner), found.offset
        except msgspec.DecodeError:
            return None, 0

    def write(self, number: int) -> None:
        metadata = msgspec.json.encode(self.owner).decode()
        self.admin.set_offsets(self.group, {PLACE: number}, metadata=metadata)
