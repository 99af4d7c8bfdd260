"""How the process of a broker looks for garbage: what was found alive is not looked at again every time.

Ten thousand partitions are a million objects that live as long as their broker. Python's full collections look at all
of them, with everybody waiting, and come again and again while their number grows: a quarter of the time in which a
controller takes over. Hardly anything here is garbage in that sense, for what nobody refers to any more goes at once;
only circles have to be searched for. So what has survived a full collection is set aside, and only now and then are all
looked through, for circles that were alive then and are not any more.

For processes of our own alone: whoever uses us as a library has a say in this, too.
"""

from __future__ import annotations

import gc
from itertools import count

EVERYTHING_EVERY = 100
"""Of so many full collections one looks at everything."""
FULL = 2


def look_less_often() -> None:
    collections = count(1)

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "stop":
            gc.freeze()
        elif next(collections) % EVERYTHING_EVERY == 0:
            gc.unfreeze()

    gc.callbacks.append(on_collection)
