import pytest

from barnabas.world.ports import WatchEvent
from barnabas.world.ports import WatchKind as Kind
from barnabas.world.registry.watches import ArmedWatches


class NamedWatcher:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, event: WatchEvent) -> None: ...


A, B, C = NamedWatcher("a"), NamedWatcher("b"), NamedWatcher("c")


@pytest.fixture
def watches() -> ArmedWatches:
    watches = ArmedWatches()
    watches.arm_data("/there", A, True)
    watches.arm_data("/there", B, True)
    watches.arm_child("/there", B, True)
    watches.arm_child("/there", C, True)
    watches.arm_data("/absent", A, False)
    return watches


@pytest.mark.parametrize(
    ("kind", "watchers"),
    [(Kind.CHANGED, [A, B]), (Kind.CHILDREN, [B, C]), (Kind.DELETED, [A, B, C])],
)
def test_event_reaches_each_concerned_watcher_once(
    watches: ArmedWatches, kind: Kind, watchers: list[NamedWatcher]
) -> None:
    assert list(watches.take(kind, "/there")) == watchers
    assert list(watches.take(kind, "/there")) == []
    assert list(watches.take(kind, "/elsewhere")) == []


def test_creation_ends_the_absence(watches: ArmedWatches) -> None:
    assert list(watches.take(Kind.CREATED, "/absent")) == [A]
    watches.arm_data("/absent", A, True)
    assert watches.missed_data("/absent", 5, since=10) is None


@pytest.mark.parametrize(
    ("path", "mzxid", "missed"),
    [
        ("/there", 10, None),
        ("/there", 11, Kind.CHANGED),
        ("/there", None, Kind.DELETED),
        ("/absent", None, None),
        ("/absent", 5, Kind.CREATED),
    ],
)
def test_missed_events_of_data_watch(
    watches: ArmedWatches, path: str, mzxid: int | None, missed: Kind | None
) -> None:
    assert watches.missed_data(path, mzxid, since=10) is missed


@pytest.mark.parametrize(
    ("pzxid", "missed"), [(10, None), (11, Kind.CHILDREN), (None, Kind.DELETED)]
)
def test_missed_events_of_child_watch(
    watches: ArmedWatches, pzxid: int | None, missed: Kind | None
) -> None:
    assert watches.missed_children(pzxid, since=10) is missed
