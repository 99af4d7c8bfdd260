from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.errors import ConfigError
from barnabas.formats.schema_files import load_schema


@pytest.mark.parametrize("text", ['"string"', '{"type": "long"}', 'syntax = "proto3";', "a\nb"])
def test_text_of_a_schema_is_not_a_path(text: str) -> None:
    assert load_schema(text).text == text
    assert load_schema(text.encode()).text == text


def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text("{}")
    assert load_schema(path) == load_schema(str(path)) == (b"{}", path)


def test_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"file nowhere\.avsc does not exist; pass the path"):
        load_schema("nowhere.avsc")


def test_directory_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read file .*: \[Errno 21\]"):
        load_schema(tmp_path)


def test_binary_file_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "order").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="order is not UTF-8 text"):
        _ = load_schema(tmp_path / "order").text


def test_other_types_are_rejected() -> None:
    with pytest.raises(ConfigError, match="must be a path or the text of a schema, not dict"):
        load_schema({"type": "long"})
