import pytest

from barnabas.world.ports import WatchEvent
from barnabas.world.ports import WatchKind as Kind
from barnabas.world.registry.armed_watches import ArmedWatches


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, event: WatchEvent) -> None: ...


A, B, C = Named("a"), Named("b"), Named("c")


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
    ("kind", "told"),
    [(Kind.CHANGED, [A, B]), (Kind.CHILDREN, [B, C]), (Kind.DELETED, [A, B, C])],
)
def test_each_event_reaches_those_it_concerns_once(
    watches: ArmedWatches, kind: Kind, told: list[Named]
) -> None:
    assert list(watches.take(kind, "/there")) == told
    assert list(watches.take(kind, "/there")) == []
    assert list(watches.take(kind, "/elsewhere")) == []


def test_a_creation_ends_the_absence(watches: ArmedWatches) -> None:
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
def test_what_a_data_watch_has_missed(
    watches: ArmedWatches, path: str, mzxid: int | None, missed: Kind | None
) -> None:
    assert watches.missed_data(path, mzxid, since=10) is missed


@pytest.mark.parametrize(
    ("pzxid", "missed"), [(10, None), (11, Kind.CHILDREN), (None, Kind.DELETED)]
)
def test_what_a_child_watch_has_missed(
    watches: ArmedWatches, pzxid: int | None, missed: Kind | None
) -> None:
    assert watches.missed_children(pzxid, since=10) is missed
