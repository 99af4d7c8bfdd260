"""Rules for the modules that mypyc compiles. pyproject.toml lists them."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PATTERNS = PROJECT["tool"]["barnabas"]["compiled"]
COMPILED = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})
NAMES = {".".join(path.relative_to(SRC).with_suffix("").parts): path for path in COMPILED}


def final_constants(source: str) -> set[str]:
    """Return the names that a module declares as Final at its top level."""
    return {
        ast.unparse(node.target)
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and "Final" in ast.unparse(node.annotation)
    }


def copied_constants(name: str) -> set[str]:
    """Return the constants of interpreted modules that mypyc copies into this module."""
    found = set()
    for node in ast.walk(ast.parse(NAMES[name].read_text())):
        if not isinstance(node, ast.ImportFrom) or node.module in NAMES:
            continue
        path = SRC.joinpath(*(node.module or "").split(".")).with_suffix(".py")
        if path.is_file():
            found |= final_constants(path.read_text()) & {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_matches_a_module(pattern: str) -> None:
    assert list(ROOT.glob(pattern))


@pytest.mark.parametrize("name", NAMES)
def test_compiled_module_copies_no_constant_of_an_interpreted_module(name: str) -> None:
    """mypyc inlines Final constants. If the interpreted module changes, nothing is compiled again."""
    assert not copied_constants(name)


def test_final_constants_are_found() -> None:
    assert final_constants("A: Final = 1\nB: Final[int] = 2\nC: int = 3\nD = 4") == {"A", "B"}


def test_builds_use_the_mypy_of_the_tests() -> None:
    (required,) = (each for each in PROJECT["build-system"]["requires"] if each.startswith("mypy"))
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    assert required.replace("[mypyc]", "") in constraints
