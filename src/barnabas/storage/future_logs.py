"""Future logs: the copy of a log in another log directory of the same broker, until it replaces the log.

    <source>/orders-0/                      the current log
    <target>/orders-0.<32 hex>-future/      the future log

    copy (replication/log_dir_moves.py) ─► mark the current log ─► rename the future log to orders-0
                                        ─► rename the current log to *-delete

The first rename is on disk before the second one begins, so a crash never leaves the broker without the records. After
a crash between the two, both directories are named orders-0. The next start uses the newer one (`is_newer`), and
deletes the other one if it has the mark.
"""

from __future__ import annotations

from contextlib import suppress

from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.files import parent
from barnabas.storage.log import Log

FUTURE = "-future"
REPLACED = "replaced"
"""The mark: an empty file in the directory of a log that its future log replaces now."""
HEX_DIGITS = 32
NAME_MAX = 255
SUFFIX_LENGTH = len(".") + HEX_DIGITS + len(FUTURE)


def has_future_name(partition: TopicPartition) -> bool:
    """Return whether the name of a future log fits into a directory name. A log with a longer name cannot move."""
    return len(str(partition)) + SUFFIX_LENGTH <= NAME_MAX


def future_name(partition: TopicPartition, number: int) -> str:
    return f"{partition}.{number:0{HEX_DIGITS}x}{FUTURE}"


def parse_future_name(name: str) -> TopicPartition | None:
    """Return partition 7 of topic orders-eu for `orders-eu-7.<32 hex>-future`, None for any other name."""
    if not name.endswith(FUTURE):
        return None
    partition, dot, _ = name.removesuffix(FUTURE).rpartition(".")
    topic, dash, index = partition.rpartition("-")
    if not (dot and topic and dash and index.isdecimal()):
        return None
    return TopicPartition(topic, int(index))


def mark_replaced(log: Log) -> None:
    """Mark a log, if possible: a full or failing disk does not prevent the move away from it."""
    with suppress(StorageError):
        log.disk.replace_bytes(f"{log.directory}/{REPLACED}", b"", sync=False)


def is_replaced(log: Log) -> bool:
    return log.disk.exists(f"{log.directory}/{REPLACED}")


def is_newer(log: Log, other: Log) -> bool:
    """Return whether `log` replaced `other` in a move, or may have.

    Only the newer log is written after a move. So it has a later leader epoch, or more records of the same epoch. If
    they have neither, both have the same records, and the older one has the mark.
    """
    return (log.epochs.latest, log.log_end_offset, is_replaced(other)) > (
        other.epochs.latest,
        other.log_end_offset,
        is_replaced(log),
    )


def can_replace(future: Log, log: Log) -> bool:
    """Return whether a future log found at the start belongs to the same topic and is in another directory."""
    is_same_topic = None in (future.topic_id, log.topic_id) or future.topic_id == log.topic_id
    return is_same_topic and parent(future.directory) != parent(log.directory)


def relocate(log: Log, directory: str) -> None:
    """Rename the directory of a log. Its files stay open: responses may still be sent from them."""
    log.disk.rename(log.directory, directory)
    for segment in log.segments.with_deleted():
        segment.path = f"{directory}/{segment.path.rpartition('/')[2]}"
        for file in (segment.log, segment.index_file, segment.time_file):
            if file is not None:
                file.moved(f"{directory}/{file.path.rpartition('/')[2]}")
    log.directory = directory
    log.flush_state.move(directory)
    log.use_config(log.config)


def take_over(future: Log, current: Log) -> None:
    """Give a future log the offsets, settings and epochs of the current log, which has the same records.

    The epochs may differ from those of the batches: a new leader without records has an epoch too. The caller shares
    the producer state when nothing can fail any more. It may have producers whose records retention has deleted.
    """
    assert future.log_end_offset == current.log_end_offset
    future.use_config(current.config)
    future.epochs = LeaderEpochs(current.epochs.entries)
    future.epochs.unsaved = True
    future.save_epochs()
    future.saved_end = -1
    future.log_start_offset = current.log_start_offset
    future.watermark = current.watermark
    future.cleaned_to = current.cleaned_to
    if future.topic_id != current.topic_id and current.topic_id is not None:
        future.assign_topic_id(current.topic_id)


def follow_offsets(future: Log, current: Log, now_ms: int) -> None:
    """Apply the high watermark and the log start offset of the current log, and delete segments before the latter."""
    future.high_watermark = current.watermark
    future.cleaned_to = min(current.cleaned_to, future.log_end_offset)
    if future.log_start_offset < current.log_start_offset <= future.watermark:
        future.advance_log_start(current.log_start_offset)
        bases = future.segments.bases
        count = sum(base <= future.log_start_offset for base in bases[1:])
        if count:
            future.segments.delete_first(count, now_ms + future.config.file_delete_delay_ms)
