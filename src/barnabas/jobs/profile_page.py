"""Page of a topic's profile: one self-contained HTML file, in the style of the lifecycle report."""

from __future__ import annotations

from importlib.resources import files

from barnabas.byte_units import bytes_text
from barnabas.history.page import asset, page_environment
from barnabas.history.words import format_duration
from barnabas.jobs.charts import CHART_HEIGHT, rate_chart, size_chart, utc_text
from barnabas.jobs.profile_text import (
    bucket_text,
    findings,
    peak_rate,
    rate_text,
    seconds_of,
    share_text,
)
from barnabas.jobs.topic_profile import TopicProfile


def render_profile(profile: TopicProfile, servers: str, made_at_ms: int) -> str:
    """Return the page. Jinja2 escapes all names and keys (see history/page.py)."""
    environment = page_environment()
    environment.filters |= {
        each.__name__: each
        for each in (bucket_text, bytes_text, format_duration, rate_text, share_text, utc_text)
    }
    charts = []
    if profile.rates:
        bucket_ms = profile.bucket_ms
        charts = [
            ("Records per second", rate_chart(profile.rates, bucket_ms, lambda each: each.records_per_s, rate_text)),
            ("Bytes per second", rate_chart(profile.rates, bucket_ms, lambda each: each.bytes_per_s, bytes_text)),
        ]  # fmt: skip
    html: str = environment.from_string(own_asset("profile_page.html.jinja")).render(
        profile=profile,
        findings=findings(profile),
        rates=charts,
        sizes=size_chart(profile.sizes.histogram) if profile.sizes else None,
        mean_rate=profile.records / seconds_of(profile),
        peak_rate=peak_rate(profile),
        largest_share=max(each.share for each in profile.partitions) or 1,
        chart_height=CHART_HEIGHT,
        style=asset("page.css") + own_asset("profile_page.css"),
        servers=servers,
        made_at_ms=made_at_ms,
    )
    return html


def own_asset(name: str) -> str:
    return files("barnabas.jobs").joinpath(name).read_text("utf-8")
