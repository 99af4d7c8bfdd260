"""Runs several scenarios in parallel: most of each is waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor


def together(scenario: Callable[[str], None], names: Iterable[str]) -> None:
    """Run the scenario for each name in a thread. Waits for all; failures are raised with their name."""
    all_names = list(names)
    with ThreadPoolExecutor(len(all_names)) as pool:
        futures = {name: pool.submit(scenario, name) for name in all_names}
    errors = []
    for name, future in futures.items():
        error = future.exception()
        if error is not None:
            error.add_note(f"in scenario {name}")
            errors.append(error)
    if errors:
        raise BaseExceptionGroup("not all scenarios passed", errors)
