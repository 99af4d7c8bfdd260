"""The limit of open files and sockets of this process."""

from __future__ import annotations

import resource
from contextlib import suppress

DESCRIPTORS_MAX = 1 << 20


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard limit, at most DESCRIPTORS_MAX.

    The default soft limit (often 1024) exists for programs that use select().
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems reject their own hard limit. The soft limit then stays.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
