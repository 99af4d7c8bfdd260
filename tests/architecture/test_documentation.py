"""The pages describe the code as it is: linked files, named functions, tests and commands exist.

[`Controller.elect`](../src/barnabas/controller/controller.py)     the file defines this name
`tests/unit/storage/test_log.py::test_…`                          the file has this test
### A question                                                    its answer names a test or shows a command
$ barnabas topics describe …                                      the command exists, with these options
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from barnabas.cli.main import cli
from barnabas.controller.context import ControllerContext

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "benchmarks/**/*.md")
    for path in ROOT.glob(pattern)
)
WALKTHROUGH = "docs/walkthrough.md"
QUESTIONS = "docs/questions.md"

LINK = re.compile(r"\[([^][]+)\]\(([^)\s]+)\)")
REFERENCE = re.compile(r"\[([^][]+)\]\[([^][]+)\]")
TARGET = re.compile(r"^\[([^][]+)\]: (\S+)$", re.MULTILINE)
NAME = re.compile(r"`([A-Za-z_][\w.]*)`")
TEST = re.compile(r"\b(tests/[\w/]+\.py)::(test_\w+)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (barnabas .+)$", re.MULTILINE)
FIELD = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def links_of(page: str) -> Iterator[tuple[str, Path, str]]:
    """Yield text, file and anchor of every relative link."""
    prose = FENCE.sub("", text_of(page))
    targets = dict(TARGET.findall(prose))
    links = LINK.findall(prose)
    links += [(text, targets[name]) for text, name in REFERENCE.findall(prose)]
    for text, target in links:
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            yield text, ((ROOT / page).parent / file if file else ROOT / page).resolve(), anchor


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the names that a module defines: functions, classes, constants, and `Class.member`."""
    return frozenset(defined_names(ast.parse(path.read_text()).body, ""))


def defined_names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
                if prefix and name == "__init__":
                    yield from (prefix + attribute for attribute in attributes_set_in(node))
            case ast.ClassDef(name=name, body=members):
                yield prefix + name
                yield from defined_names(members, f"{prefix}{name}.")
            case ast.Assign(targets=targets):
                yield from (prefix + each.id for each in targets if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name
            case _:
                pass


def attributes_set_in(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    for text, path, anchor in links_of(page):
        assert path.exists(), f"[{text}]: {path} does not exist"
        if anchor:
            anchors = [anchor_of(heading) for heading in HEADING.findall(path.read_text())]
            assert anchor in anchors, f"[{text}]: {path} has no heading #{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_linked_names_are_defined_in_linked_file(page: str) -> None:
    for text, path, _ in links_of(page):
        if path.suffix == ".py":
            missing = set(NAME.findall(text)) - names_in(path) - {path.name}
            assert not missing, f"{path} does not define {missing}"


@pytest.mark.parametrize("page", PAGES)
def test_named_tests_exist(page: str) -> None:
    for file, name in TEST.findall(text_of(page)):
        assert (ROOT / file).exists(), f"{file} does not exist"
        assert name in names_in(ROOT / file), f"{file} has no {name}"


@pytest.mark.parametrize("page", [WALKTHROUGH, QUESTIONS])
def test_commands_exist_with_their_options(page: str) -> None:
    for line in COMMAND.findall(text_of(page)):
        words = shlex.split(line.partition(" | ")[0], comments=True)[1:]
        command: click.Command = cli
        context = click.Context(command)
        while isinstance(command, click.Group):
            found = command.get_command(context, words[0])
            assert found is not None, f"no such command: {line}"
            command, words = found, words[1:]
        options = {
            option for each in command.params for option in (*each.opts, *each.secondary_opts)
        }
        unknown = {word.partition("=")[0] for word in words if word.startswith("-")} - options
        assert not unknown, f"no such options {unknown}: {line}"


def test_every_step_of_walkthrough_names_code() -> None:
    """Each section links at least one function or class."""
    sections = re.split(r"^## ", text_of(WALKTHROUGH), flags=re.MULTILINE)[1:]
    assert len(sections) > 10
    for section in sections:
        links = REFERENCE.findall(section)
        assert any(NAME.findall(text) for text, _ in links), f"no code: {section.splitlines()[0]}"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_target_is_used(page: str) -> None:
    prose = FENCE.sub("", text_of(page))
    used = {name for _, name in REFERENCE.findall(prose)}
    assert {name for name, _ in TARGET.findall(prose)} == used


def test_every_answer_names_test_or_command() -> None:
    answers = re.split(r"^### ", text_of(QUESTIONS), flags=re.MULTILINE)[1:]
    assert len(answers) > 30
    for answer in answers:
        question = answer.splitlines()[0]
        assert question.endswith("?"), question
        assert TEST.search(answer) or COMMAND.search(answer), f"nothing shows: {question}"


def test_every_field_of_controller_context_is_explained() -> None:
    """If this fails: add the new field to the table, or remove the old one."""
    assert sorted(FIELD.findall(text_of(QUESTIONS))) == sorted(vars(ControllerContext()))


# ---- the checks themselves


def test_undefined_name_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "LIMIT = 1\nclass Box:\n    size: int\n    def __init__(self):\n        self.lid = 0\n"
        "    async def open(self):\n        inner = 1\ndef close(): pass\n"
    )
    names = {"LIMIT", "Box", "Box.size", "Box.__init__", "Box.lid", "Box.open", "close"}
    assert names_in(module) == names


def test_anchor_is_that_of_github() -> None:
    assert anchor_of("What are `Partition` and Replica?") == "what-are-partition-and-replica"
