"""Text like the events of a web shop, for records that compress as real ones do: by a factor of 3 to 5.

The text depends only on the seed. Zeros would compress a thousand times, and random bytes not at all.
"""

from __future__ import annotations

import random

PAGES = ("/", "/cart", "/checkout", "/items/shoes", "/items/shirts", "/search", "/account/orders")
KINDS = ("view", "view", "view", "click", "add", "buy")


class EventText:
    """Endless JSON events. Each value starts with a new event and is cut at the requested size."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.at_ms = 0

    def value(self, size: int) -> bytes:
        events = []
        left = size
        while left > 0:
            events.append(self.event())
            left -= len(events[-1])
        return "".join(events)[:size].encode()

    def event(self) -> str:
        chance = self.chance
        self.at_ms += chance.randrange(20)
        seconds, ms = divmod(self.at_ms, 1000)
        return (
            f'{{"at":"2026-01-02T03:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}Z",'
            f'"id":"{chance.getrandbits(32):08x}","type":"{chance.choice(KINDS)}",'
            f'"user":{chance.randrange(100_000)},"page":"{chance.choice(PAGES)}",'
            f'"took_ms":{chance.randrange(1000)}}}\n'
        )
