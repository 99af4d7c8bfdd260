"""Garbage collection in Spark's workers. Each case has its own process, because an exemption is for ever."""

from __future__ import annotations

import pytest

from support.python_process import run

PROGRAM = """
import gc
import sys
from importlib.machinery import ModuleSpec
from barnabas.spark.worker_process import exempt_modules_from_gc

sys.modules["__main__"].__spec__ = ModuleSpec(sys.argv[1], None) if sys.argv[1] else None

def count():
    exempt_modules_from_gc()
    return gc.get_freeze_count()

first = count()
kept = [[number] for number in range(100)]
second = count()
import wsgiref.validate
third = count()
print(first > 0, second - first, third - second > 100)
"""


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        pytest.param("pyspark.daemon", "True 0 True", id="worker"),
        pytest.param("", "False 0 False", id="script"),
        pytest.param("pytest", "False 0 False", id="module"),
    ],
)
def test_only_imports_in_workers_exempt_objects(main: str, expected: str) -> None:
    done = run(PROGRAM, main)
    assert done.stdout.strip() == expected, done.stderr
