"""The examples that need only the packages of our tests give the expected results.

tests/spark/test_examples.py runs examples/pipelines, interop/test_python_frameworks.py the examples with frameworks.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import LocalCluster
from support.command import RUN_SECONDS
from support.process import ENVIRONMENT
from tests.integration.test_pytest_plugin import ARGUMENTS, same_barnabas

__all__ = ["same_barnabas"]  # fixture for all

pytest_plugins = ["pytester"]

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "notebook" / "visits.ipynb"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def run(cluster: LocalCluster, *parts: str) -> list[str]:
    """Run an example to its end. Returns the lines of its output."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES.joinpath(*parts))],
        env={**ENVIRONMENT, "BARNABAS_BOOTSTRAP_SERVERS": cluster.bootstrap_servers},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_plain_programs_work_on_one_topic(cluster: LocalCluster) -> None:
    partitions = [f"partition {number}: 1 replica" for number in range(3)]
    assert run(cluster, "plain", "admin.py") == ["created orders", *partitions, "groups: none"]
    assert run(cluster, "plain", "produce.py") == [
        "frieda 12: partition 2, offset 0",
        "klamm 30: partition 1, offset 0",
        "olga 7: partition 1, offset 1",
        "frieda 5: partition 2, offset 1",
        "klamm 1: partition 1, offset 2",
        "olga 9: partition 1, offset 3",
    ]
    assert run(cluster, "plain", "consume.py") == ["frieda 17", "klamm 31", "olga 16"]
    assert run(cluster, "plain", "group.py") == ["6 new orders"]
    assert run(cluster, "plain", "group.py") == ["0 new orders"]
    assert run(cluster, "plain", "admin.py") == [
        "orders exists already",
        *partitions,
        "groups: billing",
    ]


def test_asyncio_program(cluster: LocalCluster) -> None:
    cluster.create_topic("numbers", partitions=2)
    squares = [number**2 for number in range(10)]
    assert run(cluster, "asyncio", "squares.py") == [str(squares)]


def test_application_passes_its_own_tests(pytester: pytest.Pytester) -> None:
    for path in (EXAMPLES / "pytest").glob("*.*"):
        (pytester.path / path.name).write_text(path.read_text())
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=2)


def test_cells_of_notebook_show_expected_values() -> None:
    variables: dict[str, Any] = {}
    results = [run_cell(source, variables) for source in code_cells()]
    assert [each for each in results if each is not None] == [
        ["visits"],
        {"castle": 3, "inn": 2, "school": 1},
        6,
    ]


def test_notebook_is_valid_and_has_no_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


def code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_cell(source: str, variables: dict[str, Any]) -> Any:
    """Run a cell as a notebook does. Returns the value of its last expression; None if it has none."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), NOTEBOOK.name, "exec"), variables)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), variables)


def test_page_links_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text()
    linked = {EXAMPLES / target for target in re.findall(r"\]\(([^).#]+[^)#]*)\)", page)}
    assert not [path for path in linked if not path.exists()]
    folders = {path for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {EXAMPLES / path.relative_to(EXAMPLES).parts[0] for path in linked} == folders
    assert set((EXAMPLES / "plain").glob("*.py")) <= linked
