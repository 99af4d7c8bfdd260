from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.batch import skim as skimming
from barnabas.batch.header import HEADER_SIZE
from barnabas.batch.record_walk import walk_records
from barnabas.batch.records import Record, build_batch, read_varint, varint
from barnabas.batch.skim import HEADERS_MAX, LAYOUTS_MAX, Run, RunLayout, SkimResult, skim
from barnabas.errors import RemoteWireError
from tests.unit.batch import aiokafka_batches

NOW = 1_700_000_000_000
Headers = tuple[tuple[str, bytes | None], ...]


def body_of(records: list[Record]) -> bytes:
    return build_batch(records)[HEADER_SIZE:]


def equal_records(count: int, value: bytes = b"some value", key: bytes | None = None) -> bytes:
    return body_of([Record(n, NOW, key, value) for n in range(count)])


def is_whole(body: bytes, count: int) -> bool:
    return skim(body, count) == (count, len(body))


def is_valid(body: bytes, count: int) -> bool:
    """Check with the slow path, for uncompressed and compressed batches."""
    for ignore_lengths in (False, True):
        try:
            found = list(walk_records(body, count, ignore_lengths=ignore_lengths, limit=1 << 40))
        except RemoteWireError:
            return False
        if [record.offset_delta for record in found] != list(range(count)):
            return False
    return True


@pytest.fixture(autouse=True)
def _no_known_layouts() -> Iterator[None]:
    skimming.layouts.clear()
    yield
    skimming.layouts.clear()


SIZES: dict[str, Callable[[int], int]] = {
    "one size": lambda n: 90,
    "small": lambda n: 3,
    "large": lambda n: 9_000,
    "two alternating sizes": lambda n: 90 + n % 2,
    "two sizes in sequence": lambda n: 90 if n < 70 else 95,
    "larger last record": lambda n: 90 if n % 50 != 49 else 400,
    "all sizes": lambda n: n * 7_919 % 300,
    "around one and two byte lengths": lambda n: 50 + n * 7_919 % 20,
    "one very large": lambda n: 20_000 if n == 33 else 100,
}
TIMES: dict[str, Callable[[int], int]] = {
    "equal": lambda n: 0,
    "ascending": lambda n: n * 3,
    "random": lambda n: n * 7_919 % 100_003 - 50_000,
}
OTHERS: dict[str, Callable[[int], tuple[bytes | None, Headers]]] = {
    "no key": lambda n: (None, ()),
    "keys": lambda n: (b"key", ()),
    "keys of different lengths": lambda n: (b"k" * (n % 90), ()),
    "headers": lambda n: (b"key", (("trace", b"%08d" % n), ("none", None))),
    "some with headers": lambda n: (None, (("h" * 70, b"x" * 200),) if n % 20 == 7 else ()),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("others", OTHERS)
def test_batches_of_producers_are_skimmed_completely(sizes: str, times: str, others: str) -> None:
    records = []
    for n in range(150):
        key, headers = OTHERS[others](n)
        value = bytes(SIZES[sizes](n))
        records.append(Record(n, NOW + TIMES[times](n), key, value, headers))
    for count in (1, 2, 11, 12, 13, 40, 63, 64, 65, 66, 77, 150):
        body = body_of(records[:count])
        for _ in range(2):  # the second time the layout is known
            assert is_whole(body, count)
            assert not is_whole(body, count + 1)
            assert not is_whole(body, count - 1)
            assert not is_whole(body + b"\0", count)
            assert not is_whole(body[:-1], count)


@pytest.mark.parametrize("count", [8_191, 8_192, 8_193, 8_300, 16_384, 20_000, 70_000])
@pytest.mark.parametrize("step", [0, 1])
def test_thousands_of_records_are_skimmed(count: int, step: int) -> None:
    body = body_of([Record(n, NOW, None, bytes(n * step % 9)) for n in range(count)])
    assert is_whole(body, count)
    assert not is_whole(body, count + 1)
    assert not is_whole(body, count - 1)


FILLING = ord("v")
MUTATED = {
    "equal": [Record(n, NOW, None, b"v" * 30) for n in range(80)],
    "equal, longer than 64 bytes": [Record(n, NOW, b"key", b"v" * 70) for n in range(80)],
    "different": [Record(n, NOW + n, b"k", b"v" * (n * 7 % 100)) for n in range(70)],
    "with headers": [Record(n, NOW, b"k", b"v", (("a", b"b"),)) for n in range(40)],
    "late": [Record(n, NOW + n * 70_000, None, b"v" * 10) for n in range(70)],
    "null": [Record(n, NOW, b"k", None) for n in range(40)],
}


@pytest.mark.parametrize("kind", MUTATED)
def test_skim_accepts_nothing_that_walk_rejects(kind: str) -> None:
    """Mutate each byte of a batch in turn."""
    count = len(MUTATED[kind])
    whole = body_of(MUTATED[kind])
    assert is_whole(whole, count)
    chance = random.Random(kind)
    rejected = 0
    for at, byte in enumerate(whole):
        if byte == FILLING and at % 10:
            continue
        for other in {byte ^ 0x80, byte ^ 1, byte ^ 2, byte + 2 & 0xFF, byte - 2 & 0xFF, 0, 1} | {
            chance.randrange(256) for _ in range(2)
        }:
            mutated = whole[:at] + bytes((other,)) + whole[at + 1 :]
            if is_whole(mutated, count):
                if not is_valid(mutated, count):
                    pytest.fail(f"byte {at} was {byte} and is {other}")
            else:
                rejected += 1
    assert rejected


def record_starts(body: bytes, count: int) -> list[int]:
    """Return the start of each record, and the end of the last one."""
    found = [0]
    for _ in range(count):
        size, at = read_varint(body, found[-1])
        found.append(at + size)
    return found


@given(st.data())
@settings(max_examples=500)
def test_skim_accepts_no_combined_mutations_that_walk_rejects(data: st.DataObject) -> None:
    records = MUTATED[data.draw(st.sampled_from(sorted(MUTATED)))]
    whole, count = body_of(records), len(records)
    size = len(whole) // count
    mutated = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        wrong = data.draw(st.binary(min_size=1, max_size=3))
        # Apply the same change to neighbouring records.
        for turn in range(data.draw(st.integers(1, 3))):
            mutated[at + turn * size : at + turn * size + len(wrong)] = wrong
    changed = bytes(mutated)
    if is_whole(changed, count):
        assert is_valid(changed, count)
    known = skim(changed, count)
    assert known.end == record_starts(changed, known.records)[-1]


def test_skim_stops_at_first_irregular_record() -> None:
    body = bytearray(equal_records(100))
    body[record_starts(bytes(body), 80)[-1] + 5] ^= 2
    known = skim(bytes(body), 100)
    assert 64 <= known.records <= 80
    assert known.end == record_starts(bytes(body), known.records)[-1]


def test_layouts_of_same_size_are_distinguished() -> None:
    one, other = (
        equal_records(50, b"value of 18 bytes.", b"k"),
        equal_records(50, b"value of 17 bytes", b"ke"),
    )
    assert len(one) == len(other)
    for body in (one, other, one, other):
        assert is_whole(body, 50)
    mixed = one[: len(one) // 2] + other[len(one) // 2 :]
    assert is_whole(mixed, 50) is is_valid(mixed, 50)


def test_number_of_layouts_is_limited() -> None:
    for size in range(LAYOUTS_MAX * 3):
        assert is_whole(equal_records(20, bytes(size)), 20)
    assert len(skimming.layouts) <= LAYOUTS_MAX


def test_irregular_offset_deltas_are_left_to_walk() -> None:
    body = body_of([Record(n if n != 30 else 31, NOW, None, b"v") for n in range(50)])
    assert skim(body, 50).records <= 30
    assert not is_whole(body, 50)
    assert len(list(walk_records(body, 50))) == 50


def test_too_many_headers_are_left_to_walk() -> None:
    fields = b"\1\1" + varint(60) + b"\0\1" * 60
    records = []
    for number in range(HEADERS_MAX // 20):
        record = b"\0\0" + varint(number) + fields + bytes(number % 2)
        records.append(varint(len(record)) + record)
    body = b"".join(records)
    assert skim(body, len(records)).records < HEADERS_MAX // 20


def test_record_beyond_the_end_is_not_skimmed() -> None:
    body = body_of([Record(0, NOW, b"k", b"v", (("h", b"zz"),))])
    assert is_whole(body, 1)
    assert skim(body[:-1], 1) == SkimResult(0, 0)


def test_irregular_records_of_one_size_are_not_retried_as_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = [Record(n, NOW, b"k" * (1 + n % 2), b"v" * (2 - n % 2)) for n in range(20_000)]
    tried: list[Run] = []
    find_layout = skimming.find_layout

    def record_call(body: bytes, run: Run) -> RunLayout | None:
        tried.append(run)
        return find_layout(body, run)

    monkeypatch.setattr(skimming, "find_layout", record_call)
    assert is_whole(body_of(records), 20_000)
    assert 1 <= len(tried) < 20


def test_empty_body_has_no_records() -> None:
    assert skim(b"", 0) == SkimResult(0, 0)
    assert skim(b"", 1) == SkimResult(0, 0)
    assert skim(b"\0", 1) == SkimResult(0, 0)


def test_aiokafka_batches_are_skimmed_completely() -> None:
    theirs = aiokafka_batches.uncompressed_builder()
    for n in range(300):
        theirs.append(n, NOW + n // 3, b"k%d" % n, b"v" * (n % 50), [("h", b"1")])
    assert is_whole(bytes(theirs.build())[HEADER_SIZE:], 300)
