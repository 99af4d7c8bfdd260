from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from barnabas.cli.records.produce import (
    ProduceProgress,
    input_size,
    key_splitter,
    parse_headers,
    produced_text,
    progress_text,
    split_records,
)
from barnabas.client.producer import SentBatch
from barnabas.errors import ConfigError
from barnabas.model import TopicPartition


class SlowInput(io.BytesIO):
    """Input that arrives 4 bytes at a time."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(4)


@pytest.mark.parametrize("source", [io.BytesIO, SlowInput])
@pytest.mark.parametrize(
    ("text", "end", "expected"),
    [
        (b"one\ntwo\n", b"\n", [b"one", b"two"]),
        (b"one\n\ntwo", b"\n", [b"one", b"", b"two"]),
        (b"a long first||second||", b"||", [b"a long first", b"second"]),
        (b"abc||d|||e", b"||", [b"abc", b"d", b"|e"]),
        (b"abcde", b"\n", [b"abcde"]),
        (b"", b"\n", []),
    ],
)
def test_input_is_split_into_records(
    source: type[io.BytesIO], text: bytes, end: bytes, expected: list[bytes]
) -> None:
    assert [record for found in split_records(source(text), end) for record in found] == expected


def test_complete_records_are_returned_before_reading_more() -> None:
    assert next(split_records(SlowInput(b"1\n2\n3\n4\n"), b"\n")) == [b"1", b"2"]


def test_input_without_delimiter_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.cli.records.produce.RECORD_BYTES_MAX", 8)
    with pytest.raises(ConfigError, match="does not occur in 8 bytes of input"):
        list(split_records(SlowInput(b"too long a record"), b"\n"))


def test_key_is_split_at_first_delimiter() -> None:
    split = key_splitter(None, r"\t", False)
    assert split(b"k\tv\tw") == (b"k", b"v\tw")
    assert split(b"no key") == (None, b"no key")
    assert split(b"\t") == (b"", b"")
    assert key_splitter(None, ":", True)(b"k:") == (b"k", None)


def test_fixed_key_applies_to_all_records() -> None:
    assert key_splitter("k", None, False)(b"v") == (b"k", b"v")
    assert key_splitter(None, None, False)(b"v") == (None, b"v")
    assert key_splitter(None, None, True)(b"") == (None, None)


def test_headers_are_parsed_as_pairs() -> None:
    assert parse_headers(("a=1=2", "b", "c=")) == (("a", b"1=2"), ("b", None), ("c", b""))
    with pytest.raises(ConfigError):
        parse_headers(("=1",))


def test_empty_key_delimiter_is_rejected() -> None:
    with pytest.raises(ConfigError):
        key_splitter(None, "", False)


def test_tally_counts_records_and_offsets_per_partition() -> None:
    progress = ProduceProgress("orders", dry_run=False)
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)
    progress.add_sent([SentBatch(zero, 10, 5), SentBatch(one, -1, 2), SentBatch(zero, 15, 1)])
    assert progress.document() == {
        "topic": "orders",
        "dry_run": False,
        "records": 8,
        "partitions": [
            {"partition": 0, "records": 6, "first_offset": 10, "last_offset": 15},
            {"partition": 1, "records": 2, "first_offset": None, "last_offset": None},
        ],
    }
    assert produced_text(progress.document()).startswith("wrote 8 records to orders")


def test_failure_reports_acknowledged_and_unconfirmed_records(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = ProduceProgress("orders", dry_run=False)
    progress.records_read = 1_200
    progress.add_sent([SentBatch(TopicPartition("orders", 0), 10, 1_000)])
    progress.report_failure()
    captured = capsys.readouterr()
    assert captured.err == "1,000 records acknowledged by orders; 200 failed or unconfirmed\n"
    assert captured.out == ""


def test_success_prints_nothing_without_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress = ProduceProgress("orders", dry_run=False)
    progress.finish()
    assert capsys.readouterr() == ("", "")


def test_progress_is_a_bar_if_size_is_known() -> None:
    assert progress_text(12_000, 0, None) == "12,000 records"
    assert progress_text(1, 50, 100) == "[" + "#" * 15 + "·" * 15 + "]  50%  1 record"
    assert progress_text(3, 101, 100) == "[" + "#" * 30 + "] 100%  3 records"


def test_size_is_known_only_for_regular_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    with (tmp_path / "a").open("rb") as file, Path(os.devnull).open("rb") as device:
        assert input_size((file, file)) == 10
        assert input_size((file, device)) is None
    assert input_size(()) is None
