"""One partition as its leader sees it: who may append, how far consumers may read, who waits for that.

    log start ────────── high watermark ────────── log end
              readable by consumers      appended, may still be taken back

The high watermark is the offset below which every in-sync replica holds the record. It never moves back while this
broker leads, since a consumer may already have read below it.

Two kinds of waiting. A *watcher* is told once that something about the partition changed and looks for itself, as
fetches do. A *promise* is a future that resolves when the high watermark reaches an offset (acks=all).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from barnabas.config import TopicConfig
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, ZnodeVersion
from barnabas.storage.log import AppendInfo, Log
from barnabas.wire.compression import Compression
from barnabas.wire.recompress import recompress
from barnabas.wire.records import BatchHeader

Watcher = Callable[[], None]

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
PLAIN_BYTES_MAX = 32 << 20
"""A batch that unpacks to more than this is taken for a bomb: it would hold up the loop, and everybody with it."""


class Partition:
    """A partition whose log is on this broker."""

    __slots__ = (
        "broker_id",
        "flush_next",
        "flush_running",
        "index",
        "is_held",
        "is_offline",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "partition_epoch",
        "promises",
        "replicas",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(
        self, topic: str, index: int, topic_id: UUID, broker_id: BrokerId, log: Log
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.log = log
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: tuple[BrokerId, ...] = ()
        self.partition_epoch = ZnodeVersion(0)
        self.is_offline = False
        # The high watermark is held back while a flush that the topic's settings ask for is under way.
        self.is_held = False
        self.flush_running = False
        self.flush_next: asyncio.Future[None] | None = None
        self.watchers: dict[Watcher, None] = {}
        self.promises: list[tuple[int, asyncio.Future[None]]] = []

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # ---- leadership

    def lead(
        self,
        *,
        leader_epoch: LeaderEpoch,
        replicas: tuple[BrokerId, ...],
        isr: tuple[BrokerId, ...],
        partition_epoch: ZnodeVersion,
    ) -> None:
        """Become leader. The epoch's first offset is recorded at once, before any write: a follower may ask for it."""
        self.leader = self.broker_id
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.log.assign_epoch(leader_epoch, self.log.log_end_offset)
        self.advance_high_watermark()

    def require_leader(self, current_leader_epoch: int) -> None:
        """Refuse who believes in another epoch, then whoever takes us for a leader we are not."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"epoch {current_leader_epoch} is older than {self.leader_epoch}",
                )
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"epoch {current_leader_epoch} is newer than {self.leader_epoch}",
            )
        if self.is_offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: the log directory is offline")
        if self.leader != self.broker_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Where an epoch ends in this log, as (epoch, end offset); (-1, -1) if that cannot be said."""
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    def has_enough_replicas(self) -> bool:
        """Of those in sync; min.insync.replicas cannot ask for more replicas than there are."""
        in_sync = len(self.isr)
        return in_sync >= self.log.config.min_insync_replicas or in_sync >= len(self.replicas) > 0

    # ---- appending

    def append(
        self, batch: memoryview, header: BatchHeader, *, acks: int, now_ms: int
    ) -> AppendInfo:
        """Append one validated batch from a producer. While the partition `is_held`, the caller must flush it."""
        if self.is_offline or self.leader != self.broker_id:
            self.require_leader(-1)
        if acks == -1 and not self.has_enough_replicas():
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} in sync, min.insync.replicas={self.log.config.min_insync_replicas}",
            )
        log = self.log
        if log.config.compression_type != "producer":
            batch, header = in_codec_of_topic(batch, header, log.config)
        info = log.append_as_leader(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if not info.duplicate:
            if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
                self.is_held = True
            self.advance_high_watermark()
        return info

    def advance_high_watermark(self) -> None:
        """Alone in the ISR, the leader's own end is what everybody holds."""
        log = self.log
        if not self.is_held and log.watermark < log.log_end_offset and self.has_enough_replicas():
            log.watermark = log.log_end_offset
            if self.promises:
                self.keep_promises()
            if self.watchers:
                self.notify()

    def flushed(self, up_to: int) -> None:
        """Everything below `up_to` is durable; release what was held for it."""
        self.is_held = self.log.log_end_offset > up_to and self.flush_next is not None
        if self.is_held:
            log = self.log
            if log.high_watermark < up_to:
                log.high_watermark = up_to
                self.keep_promises()
                self.notify()
        else:
            self.advance_high_watermark()

    # ---- waiting

    def promise(self, end_offset: int) -> asyncio.Future[None]:
        """Resolves when the high watermark reaches `end_offset`; fails with ApiError when leadership is lost."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.log.high_watermark >= end_offset:
            future.set_result(None)
        else:
            self.promises.append((end_offset, future))
        return future

    def keep_promises(self) -> None:
        reached = self.log.high_watermark
        waiting = []
        for end_offset, future in self.promises:
            if future.done():
                continue
            if end_offset <= reached:
                future.set_result(None)
            else:
                waiting.append((end_offset, future))
        self.promises = waiting

    def break_promises(self, code: ErrorCode) -> None:
        """This partition is no longer ours: nobody waits for it any longer."""
        promises, self.promises = self.promises, []
        for _, future in promises:
            if not future.done():
                future.set_exception(ApiError(code))
        self.notify()

    def notify(self) -> None:
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watcher()


def in_codec_of_topic(
    batch: memoryview, header: BatchHeader, config: TopicConfig
) -> tuple[memoryview, BatchHeader]:
    """The batch as the topic's compression.type wants it; most already are."""
    target, level = CODECS[config.compression_type], None
    if header.compression == target:
        return batch, header
    if target is Compression.GZIP:
        level = config.compression_gzip_level
    elif target is Compression.LZ4:
        level = config.compression_lz4_level
    elif target is Compression.ZSTD:
        level = config.compression_zstd_level
    try:
        return recompress(batch, header, target, level=level, limit=PLAIN_BYTES_MAX)
    except RemoteWireError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
