from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.spark.sql import SqlOutput, check_output_directory, lists_tables
from barnabas.errors import ConfigError


def test_files_need_a_place_that_is_free(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--to: required with -o parquet"):
        check_output_directory(SqlOutput.PARQUET, None, follow=False)
    with pytest.raises(ConfigError, match="needs -o parquet"):
        check_output_directory(SqlOutput.JSON, tmp_path, follow=False)
    with pytest.raises(ConfigError, match="exists already"):
        check_output_directory(SqlOutput.PARQUET, tmp_path, follow=True)
    (tmp_path / "_checkpoint").mkdir()
    check_output_directory(SqlOutput.PARQUET, tmp_path, follow=True)


def test_only_a_question_for_tables_makes_all_topics_tables() -> None:
    assert lists_tables("SHOW  tables like 'o*'")
    assert not lists_tables("select tables from show")
