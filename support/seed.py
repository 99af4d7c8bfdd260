"""A random seed for each run."""

from __future__ import annotations

import os
import random


def choose_seed() -> int:
    """Print and return a random seed, or the one in BARNABAS_SEED, which repeats a run."""
    seed = int(os.environ.get("BARNABAS_SEED") or random.randrange(1 << 32))
    print(f"BARNABAS_SEED={seed}")
    return seed
