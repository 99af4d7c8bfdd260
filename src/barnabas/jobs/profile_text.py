"""A profile in words: its findings, and numbers as text. Pure; for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.byte_units import bytes_text
from barnabas.history.words import format_duration
from barnabas.jobs.topic_profile import PartitionProfile, TopicProfile

UNEVEN = 1.5
"""A partition with more than this multiple of the mean is worth mentioning."""
HOT_KEY_SHARE = 0.1
FEW_KEYS = 10
LONG_TAIL = 20
"""A largest value of this multiple of the median is worth mentioning."""
PEAK = 5
"""A peak of this multiple of the mean rate is worth mentioning."""
PEAK_BUCKETS_MIN = 5
NAMED_MAX = 8


def share_text(share: float) -> str:
    """
    >>> share_text(0.41), share_text(0.125), share_text(0.004), share_text(0.00001), share_text(0), share_text(1)
    ('41 %', '12.5 %', '0.4 %', 'less than 0.1 %', '0 %', '100 %')
    """
    if 0 < share < 0.001:
        return "less than 0.1 %"
    text = f"{100 * share:.1f}".removesuffix(".0")
    return f"{text} %"


def rate_text(per_second: float) -> str:
    """
    >>> rate_text(0.25), rate_text(12.345), rate_text(395012.4)
    ('0.25', '12.3', '395,012')
    """
    if per_second < 1:
        return f"{per_second:.2g}"
    return f"{per_second:.3g}" if per_second < 100 else f"{per_second:,.0f}"


def bucket_text(ms: int) -> str:
    """
    >>> bucket_text(1000), bucket_text(1_800_000)
    ('1 s', '30 min')
    """
    return format_duration(ms).replace(".0 s", " s")


def counted(count: int, noun: str) -> str:
    """
    >>> counted(1, "record"), counted(1200, "record")
    ('1 record', '1,200 records')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def verb(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def seconds_of(profile: TopicProfile) -> float:
    """Return the time span in seconds; at least one second, so that a rate can be computed."""
    if profile.first_ms is None or profile.last_ms is None:
        return 1.0
    return max(1.0, (profile.last_ms - profile.first_ms) / 1000)


def peak_rate(profile: TopicProfile) -> float:
    return max((bucket.records_per_s for bucket in profile.rates), default=0.0)


def numbers_text(partitions: list[PartitionProfile]) -> str:
    """Return `partition 3`, `partitions 3, 4` or, if there are many, `partitions 0, 1, … and 12 more`."""
    numbers = [str(each.partition) for each in partitions]
    shown = ", ".join(numbers[:NAMED_MAX])
    more = f" and {len(numbers) - NAMED_MAX} more" if len(numbers) > NAMED_MAX else ""
    return f"{verb(len(numbers), 'partition', 'partitions')} {shown}{more}"


def findings(profile: TopicProfile) -> list[str]:
    """Return what is worth a look, the most important first. Empty if nothing is."""
    rules: tuple[Callable[[TopicProfile], Iterator[str]], ...] = (
        find_deleted, find_imbalance, find_frequent_keys, find_missing_keys, find_duplicates, find_gaps, find_disorder,
        find_large_values, find_peaks, find_tombstones,
    )  # fmt: skip
    return [text for rule in rules for text in rule(profile)]


def find_deleted(profile: TopicProfile) -> Iterator[str]:
    if profile.deleted_meanwhile:
        count = counted(profile.deleted_meanwhile, "record")
        yield f"{count} {verb(profile.deleted_meanwhile, 'was', 'were')} deleted while the topic was read"


def find_imbalance(profile: TopicProfile) -> Iterator[str]:
    count = len(profile.partitions)
    if count == 1:
        return
    if profile.imbalance > UNEVEN:
        largest = max(profile.partitions, key=lambda each: each.records)
        yield (
            f"partition {largest.partition} has {share_text(largest.share)} of the records, "
            f"{profile.imbalance:.1f} times the mean of {share_text(1 / count)}"
        )
    if empty := [each for each in profile.partitions if not each.records]:
        yield f"{numbers_text(empty)} {verb(len(empty), 'has', 'have')} no records"


def find_frequent_keys(profile: TopicProfile) -> Iterator[str]:
    keys = profile.keys
    hot = [key for key in keys.top if key.share >= HOT_KEY_SHARE]
    if keys.distinct == 1:
        yield f"all records with a key have the same key, '{keys.top[0].key}'"
    elif hot:
        yield f"key '{hot[0].key}' alone makes {share_text(hot[0].share)} of the records"
    if keys.distinct > FEW_KEYS**2 and keys.keys_for_half <= FEW_KEYS:
        has = verb(keys.keys_for_half, "has", "have")
        yield f"{keys.keys_for_half} of {keys.distinct:,} keys {has} half of the records with a key"


def find_missing_keys(profile: TopicProfile) -> Iterator[str]:
    without = profile.keys.without_key
    if without == profile.records:
        yield "no record has a key"
    elif without:
        share = share_text(without / profile.records)
        yield f"{counted(without, 'record')} ({share}) {verb(without, 'has', 'have')} no key"


def find_duplicates(profile: TopicProfile) -> Iterator[str]:
    count = profile.duplicates
    if count:
        share = share_text(count / profile.records)
        repeat = verb(count, "repeats", "repeat")
        yield f"{counted(count, 'record')} ({share}) {repeat} the key and value of another record"


def find_gaps(profile: TopicProfile) -> Iterator[str]:
    gaps = [each for each in profile.partitions if each.missing_offsets]
    if gaps:
        count = profile.missing_offsets
        yield (
            f"{counted(count, 'offset')} of {numbers_text(gaps)} {verb(count, 'has', 'have')} no record: "
            "compaction or transactions"
        )


def find_disorder(profile: TopicProfile) -> Iterator[str]:
    count = profile.out_of_order
    if count:
        step = format_duration(profile.step_back_ms)
        yield (
            f"{counted(count, 'record')} {verb(count, 'is', 'are')} older than the record before "
            f"{verb(count, 'it', 'them')} in the partition, by up to {step}"
        )
    if profile.without_timestamp:
        without = profile.without_timestamp
        yield f"{counted(without, 'record')} {verb(without, 'has', 'have')} no timestamp"


def find_large_values(profile: TopicProfile) -> Iterator[str]:
    found = profile.sizes
    if found is not None and found.max >= LONG_TAIL * max(found.median, 1) and found.max >= 1000:
        times = f"{found.max // max(found.median, 1):,}"
        yield f"the largest value has {bytes_text(found.max)}, {times} times the median of {bytes_text(found.median)}"


def find_peaks(profile: TopicProfile) -> Iterator[str]:
    mean, peak = profile.records / seconds_of(profile), peak_rate(profile)
    if len(profile.rates) >= PEAK_BUCKETS_MIN and peak >= PEAK * mean:
        busiest = f"the busiest {bucket_text(profile.bucket_ms)} had {rate_text(peak)} records/s"
        yield f"{busiest}, {peak / mean:.0f} times the mean of {rate_text(mean)}"


def find_tombstones(profile: TopicProfile) -> Iterator[str]:
    count = profile.tombstones
    if count:
        share = share_text(count / profile.records)
        yield f"{counted(count, 'record')} ({share}) {verb(count, 'is a tombstone', 'are tombstones')}"
