"""A random seed for each run."""

from __future__ import annotations

import os
import random


def choose_seed() -> int:
    """A new seed for every run, printed. BARNABAS_SEED repeats a run."""
    seed = int(os.environ.get("BARNABAS_SEED") or random.randrange(1 << 32))
    print(f"BARNABAS_SEED={seed}")
    return seed
