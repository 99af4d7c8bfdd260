from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.spark.sql import Form, check_target, lists_tables
from barnabas.errors import ConfigError


def test_files_need_a_place_that_is_free(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--to: is missing"):
        check_target(Form.PARQUET, None, follow=False)
    with pytest.raises(ConfigError, match="goes with -o parquet"):
        check_target(Form.JSON, tmp_path, follow=False)
    with pytest.raises(ConfigError, match="exists already"):
        check_target(Form.PARQUET, tmp_path, follow=True)
    (tmp_path / "_checkpoint").mkdir()
    check_target(Form.PARQUET, tmp_path, follow=True)


def test_only_a_question_for_tables_makes_all_topics_tables() -> None:
    assert lists_tables("SHOW  tables like 'o*'")
    assert not lists_tables("select tables from show")
