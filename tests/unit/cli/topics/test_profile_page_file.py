"""The file of a profile page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.cli.topics.profile import write_profile_page
from barnabas.errors import ConfigError


def test_page_replaces_the_file_in_one_step(tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("old")
    link.symlink_to(page)
    with page.open() as reader:
        write_profile_page(link, "new")
        assert reader.read() == "old"
    assert page.read_text() == "new"
    assert sorted(tmp_path.iterdir()) == [link, page]
    assert link.is_symlink()


def test_page_is_written_to_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_profile_page(pipe, "page")
        assert os.read(reader, 100) == b"page"
    finally:
        os.close(reader)


def test_directory_is_not_a_page(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--html: cannot write"):
        write_profile_page(tmp_path, "page")
