"""Commands that need Spark, without its Python package."""

from __future__ import annotations

import logging
import sys

import pytest

from barnabas.cli.spark.session import spark_session
from barnabas.errors import ConfigError


def test_session_names_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    for name in [name for name in sys.modules if name.split(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    with (
        pytest.raises(ConfigError) as caught,
        spark_session(None, "127.0.0.1:1", app_name="test", short=True),
    ):
        pass
    assert str(caught.value).startswith("pyspark: is not installed; pip install ")
