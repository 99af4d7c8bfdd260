"""docs/python-client.md describes the public API: its code runs, and it has every class, method and setting.

A line of code with `# → text` prints this text.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import barnabas

PAGE = (Path(__file__).parents[2] / "docs" / "python-client.md").read_text()
CLASSES = ["Client", "Producer", "Delivery", "Consumer", "GroupConsumer", "Admin"]
CONSUMERS = ["Consumer", "GroupConsumer"]


def section(title: str) -> str:
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def text_of(name: str) -> str:
    """Return the part of the page that describes a class."""
    return section(name) + (section("Both consumers") if name in CONSUMERS else "")


def public_members(name: str) -> dict[str, Any]:
    members = inspect.getmembers_static(getattr(barnabas, name))
    return {name: member for name, member in members if not name.startswith("_")}


def is_slot(member: object) -> bool:
    return inspect.ismemberdescriptor(member)


def test_code_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    expected = [text for block in blocks for text in re.findall(r"# → (.*)$", block, re.MULTILINE)]
    assert (len(blocks), len(expected)) == (11, 12)
    variables: dict[str, Any] = {}
    with barnabas.LocalCluster() as cluster:
        for block in blocks:
            exec(block.replace("localhost:9092", cluster.bootstrap_servers), variables)
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize("name", CLASSES)
def test_page_has_every_method_and_method_has_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(barnabas, name))
    for member_name, member in public_members(name).items():
        assert is_slot(member) or inspect.getdoc(member), f"{name}.{member_name} has no docstring"
        pattern = rf"`{member_name}[(`]"
        assert re.search(pattern, text_of(name)), f"{name}.{member_name} is not on the page"


@pytest.mark.parametrize("name", CLASSES)
def test_page_names_only_methods_that_exist(name: str) -> None:
    rows = re.findall(r"^\| (`\w+\(.*?) \|", section(name), re.MULTILINE)
    named = {each for row in rows for each in re.findall(r"`(\w+)\(", row)}
    assert named <= public_members(name).keys()


@pytest.mark.parametrize("name", [each for each in CLASSES if each != "Delivery"])
def test_page_has_every_setting_with_its_default(name: str) -> None:
    for parameter in inspect.signature(getattr(barnabas, name)).parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        row = re.search(rf"^\| .*`{parameter.name}`.* \| (.*?) \| ", section(name), re.MULTILINE)
        assert row is not None, f"{name}({parameter.name}=…) is not on the page"
        assert row[1].strip("`") in defaults_on_page(parameter.default), parameter.name


def defaults_on_page(default: object) -> list[str]:
    if callable(default):
        return ["do nothing"]
    if isinstance(default, tuple):
        return [str(list(default)).replace("'", '"')]
    if isinstance(default, int) and not isinstance(default, bool):
        return [f"{default:,}", f"{default >> 20} MiB"]
    return [repr(default).replace("'", '"')]


def test_page_has_every_public_name() -> None:
    assert not [name for name in barnabas.__all__ if not re.search(rf"`[\w.]*{name}[`(]", PAGE)]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("producer", "ProducerSettings"),
        ("consumer", "ConsumerSettings"),
        ("group_consumer", "GroupConsumerSettings"),
    ],
)
def test_client_accepts_all_settings_of_the_class(name: str, settings: str) -> None:
    module = import_module(f"barnabas.api.{name}")
    created = getattr(module, settings.removesuffix("Settings"))
    parameters = inspect.signature(created).parameters.values()
    keywords = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    # A client has its security already.
    assert keywords - {"security"} == set(getattr(module, settings).__annotations__)
