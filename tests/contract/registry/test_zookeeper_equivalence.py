"""The embedded registry and a real ZooKeeper get the same random calls and must return the same results."""

import random
from typing import Any

import pytest

from barnabas.errors import MultiFailed, RegistryError
from barnabas.world.clock import SystemClock
from barnabas.world.ports import (
    CheckVersion,
    Create,
    Delete,
    Op,
    RegistrySession,
    SetData,
    WatchEvent,
    ZnodeStat,
)
from barnabas.world.registry.embedded import EmbeddedRegistry
from barnabas.world.registry.zookeeper import ZooKeeperRegistry
from support.seed import choose_seed

CALLS = 400
PATHS = ["/", "/a", "/b", "/a/x", "/a/y", "/a/x/deep", "/b/x"]
BAD_PATHS = ["/a/", "/b//x"]  # the first is valid for a sequential node


class RecordedSession:
    """A session that records its events, and normalizes results that must differ."""

    def __init__(self, session: RegistrySession) -> None:
        self.session = session
        self.events: list[WatchEvent] = []

    async def ask(self, call: str, *arguments: Any, **options: Any) -> object:
        if options.pop("watched", False):
            options["watch"] = self.events.append
        try:
            answer = await getattr(self.session, call)(*arguments, **options)
        except MultiFailed as failed:
            return ("failed", failed.index, type(failed.error).__name__)
        except RegistryError as error:
            return type(error).__name__
        return self.comparable(answer)

    def comparable(self, answer: object) -> object:
        """Remove transaction numbers and times, except which of them are equal."""
        if isinstance(answer, ZnodeStat):
            return (
                answer.version,
                answer.cversion,
                [0, self.session.id].index(answer.ephemeral_owner),
                answer.data_length,
                answer.num_children,
                answer.czxid == answer.mzxid,
                answer.czxid == answer.pzxid,
                answer.mzxid < answer.pzxid,
            )
        if isinstance(answer, list | tuple):
            return [self.comparable(each) for each in answer]
        return answer


def random_call(chance: random.Random) -> tuple[str, tuple[object, ...], dict[str, object]]:
    path = chance.choice(PATHS + BAD_PATHS)
    match chance.randrange(8):
        case 0:
            return "get", (path,), {"watched": chance.random() < 0.5}
        case 1:
            return "exists", (path,), {"watched": chance.random() < 0.5}
        case 2:
            return "children", (path,), {"watched": chance.random() < 0.5}
        case 3 | 4:
            flags = {"ephemeral": chance.random() < 0.2, "sequential": chance.random() < 0.2}
            return "create", (path, random_data(chance)), dict(flags)
        case 5:
            return "set", (path, random_data(chance), chance.choice([-1, -1, 0, 1, 2])), {}
        case 6:
            return "delete", (path, chance.choice([-1, -1, 0, 1])), {}
        case _:
            return "multi", ([random_op(chance) for _ in range(chance.randrange(1, 4))],), {}


def random_op(chance: random.Random) -> Op:
    # No invalid paths, and the root is not deleted: these are rejected before anything is sent.
    path = chance.choice(PATHS)
    match chance.randrange(4):
        case 0:
            return Create(
                path=path,
                data=random_data(chance),
                ephemeral=chance.random() < 0.2,
                sequential=chance.random() < 0.2,
            )
        case 1:
            return SetData(path=path, data=random_data(chance), version=chance.choice([-1, 0, 1]))
        case 2:
            return Delete(path=chance.choice(PATHS[1:]), version=chance.choice([-1, 0]))
        case _:
            return CheckVersion(path=path, version=chance.choice([-1, 0, 1]))


def random_data(chance: random.Random) -> bytes:
    return bytes(chance.randrange(3))


@pytest.mark.parametrize("round_number", range(3))
async def test_same_calls_return_same_results_and_events(chroot: str, round_number: int) -> None:
    chance = random.Random(choose_seed())
    ours = EmbeddedRegistry(None, SystemClock())
    theirs = ZooKeeperRegistry(chroot, connection_timeout_ms=10_000)
    embedded = RecordedSession(await ours.connect(6000))
    zookeeper = RecordedSession(await theirs.connect(6000))
    for number in range(CALLS):
        call, arguments, options = random_call(chance)
        answers = [
            await recorded.ask(call, *arguments, **dict(options))
            for recorded in (embedded, zookeeper)
        ]
        assert answers[0] == answers[1], (number, call, arguments, options)
        assert embedded.events == zookeeper.events, (number, call, arguments, options)
    await ours.close()
    await theirs.close()
