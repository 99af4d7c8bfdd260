"""Several stories at the same time: most of each is waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor


def together(story: Callable[[str], None], names: Iterable[str]) -> None:
    """Each in a thread. All are heard to their end; what failed is raised with its name."""
    all_names = list(names)
    with ThreadPoolExecutor(len(all_names)) as pool:
        futures = {name: pool.submit(story, name) for name in all_names}
    errors = []
    for name, future in futures.items():
        error = future.exception()
        if error is not None:
            error.add_note(f"this was {name}")
            errors.append(error)
    if errors:
        raise BaseExceptionGroup("not all went well", errors)
