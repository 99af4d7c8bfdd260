"""No two modules import each other, directly or through others.

Every import statement counts, including those under TYPE_CHECKING and inside functions. The root
package does not count: it loads LocalCluster on first use and holds the version number that the
client sends.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
ROOT = "barnabas"

# circle → the reason it still exists
EXCEPTIONS: dict[tuple[str, ...], str] = {}

Graph = Mapping[str, Set[str]]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def import_graph(sources: Mapping[str, str]) -> Graph:
    """Return the modules among `sources` that each module imports, by name."""
    return {
        name: {target for target in imported_modules(source, sources.keys()) if target != name}
        for name, source in sources.items()
    }


def imported_modules(source: str, modules: Set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from modules & {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                target = submodule if submodule in modules else node.module or ""
                if target in modules:
                    yield target


def circles(graph: Graph) -> list[tuple[str, ...]]:
    """Return the strongly connected components with more than one module, sorted."""
    reachable = {name: reachable_from(name, graph) for name in graph}
    found = {
        tuple(sorted(each for each in reachable[name] if name in reachable[each]))
        for name in graph
        if name in reachable[name]
    }
    return sorted(found)


def reachable_from(start: str, graph: Graph) -> set[str]:
    """Return all modules that `start` imports, directly or through others."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def test_modules_do_not_import_each_other() -> None:
    paths = {module_name(path): path for path in (SRC / ROOT).rglob("*.py")}
    sources = {name: path.read_text() for name, path in paths.items() if name != ROOT}
    found = circles(import_graph(sources))
    assert [each for each in found if each not in EXCEPTIONS] == []
    assert EXCEPTIONS.keys() <= set(found), "an exception is no longer needed"


def modules(names: Iterable[str], **sources: str) -> dict[str, str]:
    return dict.fromkeys(names, "") | {f"p.{name}": source for name, source in sources.items()}


@pytest.mark.parametrize(
    "statement",
    [
        "import p.a",
        "from p import a",
        "from p.a import thing",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import Thing",
        "def later():\n    from p.a import thing",
    ],
)
def test_circle_of_three_is_found(statement: str) -> None:
    sources = modules(["p.d"], a="from p import b, d", b="import p.c", c=statement)
    assert circles(import_graph(sources)) == [("p.a", "p.b", "p.c")]


def test_diamond_is_accepted() -> None:
    sources = modules(["p.d"], a="from p import b, c", b="from p import d", c="from p import d")
    assert circles(import_graph(sources)) == []
