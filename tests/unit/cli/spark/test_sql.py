from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.spark.sql import SqlOutput, check_output_directory, lists_tables
from barnabas.errors import ConfigError


def test_parquet_needs_a_free_target(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--to: required with -o parquet"):
        check_output_directory(SqlOutput.PARQUET, None, follow=False)
    with pytest.raises(ConfigError, match="needs -o parquet"):
        check_output_directory(SqlOutput.JSON, tmp_path, follow=False)
    with pytest.raises(ConfigError, match="exists already"):
        check_output_directory(SqlOutput.PARQUET, tmp_path, follow=True)
    (tmp_path / "_checkpoint").mkdir()
    check_output_directory(SqlOutput.PARQUET, tmp_path, follow=True)


def test_only_show_tables_lists_tables() -> None:
    assert lists_tables("SHOW  tables like 'o*'")
    assert not lists_tables("select tables from show")
