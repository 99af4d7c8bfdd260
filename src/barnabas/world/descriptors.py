"""How many files and sockets this process may have open at once."""

from __future__ import annotations

import resource
from contextlib import suppress

DESCRIPTORS_MAX = 1 << 20


def raise_descriptor_limit() -> None:
    """Take what the system grants. The soft limit of a shell (often 1024) is there for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(
            OSError, ValueError
        ):  # some systems refuse what they promised; the soft limit then stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
