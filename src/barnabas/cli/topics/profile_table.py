"""A topic's profile as text for the terminal."""

from __future__ import annotations

from barnabas.byte_units import bytes_text
from barnabas.cli.terminal.output import format_table, wrap
from barnabas.cli.terminal.units import bar_text
from barnabas.history.words import format_duration
from barnabas.jobs.charts import utc_text
from barnabas.jobs.profile_text import (
    bucket_text,
    counted,
    findings,
    peak_rate,
    rate_text,
    seconds_of,
)
from barnabas.jobs.topic_profile import TopicProfile
from barnabas.printable import printable

BAR_WIDTH = 16
KEY_WIDTH_MAX = 60


def profile_text(profile: TopicProfile) -> str:
    parts = [summary_lines(profile), [partition_table(profile)], key_lines(profile)]
    found = findings(profile)
    if found:
        parts.append(["findings", *(wrap(f"- {printable(text)}", indent=2) for text in found)])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def summary_lines(profile: TopicProfile) -> list[str]:
    lines = [
        f"topic {profile.topic}: {counted(profile.records, 'record')} in "
        f"{counted(len(profile.partitions), 'partition')}, "
        f"{bytes_text(profile.key_bytes)} of keys, {bytes_text(profile.value_bytes)} of values"
    ]
    if profile.first_ms is not None and profile.last_ms is not None:
        begin, end = utc_text(profile.first_ms), utc_text(profile.last_ms)
        length = format_duration(profile.last_ms - profile.first_ms)
        mean = rate_text(profile.records / seconds_of(profile))
        peak, bucket = rate_text(peak_rate(profile)), bucket_text(profile.bucket_ms)
        lines.append(f"  time    {begin} to {end} UTC ({length})")
        lines.append(f"  rate    {mean} records/s on average, up to {peak} in {bucket}")
    if profile.sizes is not None:
        sizes = profile.sizes
        values = (sizes.min, sizes.median, sizes.p95, sizes.p99, sizes.max)
        names = ("min", "median", "95 %", "99 %", "max")
        shown = [f"{name} {bytes_text(size)}" for name, size in zip(names, values, strict=True)]
        lines.append(f"  values  {', '.join(shown)}")
    return lines


def partition_table(profile: TopicProfile) -> str:
    largest = max(each.share for each in profile.partitions)
    heads = ["partition", "records", "share", "", "bytes", "first", "last", "missing", "older"]
    rows = [
        [
            each.partition,
            each.records,
            f"{100 * each.share:.1f} %",
            bar_text(each.share / largest if largest else 0, BAR_WIDTH),
            bytes_text(each.key_bytes + each.value_bytes),
            each.first_offset,
            each.last_offset,
            each.missing_offsets,
            each.out_of_order,
        ]
        for each in profile.partitions
    ]
    return format_table(heads, rows, null="")


def key_lines(profile: TopicProfile) -> list[str]:
    keys = profile.keys
    if not keys.distinct:
        return []
    half = f"{counted(keys.keys_for_half, 'key')} for half of the records with a key"
    rows = [
        [printable(key.key, KEY_WIDTH_MAX), key.records, f"{100 * key.share:.1f} %"]
        for key in keys.top
    ]
    return [
        f"{counted(keys.distinct, 'distinct key')}; {half}",
        format_table(["key", "records", "share"], rows),
    ]
