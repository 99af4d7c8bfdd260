"""Reader of Prometheus' text format, as far as our own pages use it."""

from __future__ import annotations

import re
from collections.abc import Collection

SAMPLE = re.compile(r"([a-z_:][a-z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by name and labels."""


def read_samples(text: str, names: Collection[str]) -> Samples:
    """Return the samples of these metrics. Lines that are not valid are ignored.

    >>> read_samples('# TYPE a gauge\\na{b="c"} 1\\nd 2', {"a"})
    {('a', frozenset({('b', 'c')})): 1.0}
    """
    found: Samples = {}
    for line in text.splitlines():
        sample = SAMPLE.fullmatch(line)
        if sample is None or sample[1] not in names:
            continue
        try:
            found[sample[1], frozenset(LABEL.findall(sample[2] or ""))] = float(sample[3])
        except ValueError:
            continue
    return found
