"""The documentation site (`make docs`): the pages of this folder, built by Sphinx.

Pages are written for GitHub and need no Sphinx syntax. index.md has the navigation: one section per kind of page, with
a list of links. A page that it does not link is shown under *More*.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parent
ROOT = PAGES.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from barnabas import __version__  # noqa: E402
from release.links import absolute_link, change_links, is_relative, repository_path  # noqa: E402

SOURCE_URL = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
LISTED = re.compile(r"^- \[[^][]+\]\(([\w-]+)\.md\)", re.MULTILINE)

project = "Barnabas"
author = "Barnabas developers"
version = release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 6  # the anchors of GitHub
smartquotes = False  # text stays as it is written
suppress_warnings = ["misc.highlighting_failure"]  # examples may leave something out with …
html_theme = "alabaster"
html_title = f"Barnabas {version}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "description": "A streaming platform in Python that speaks Apache Kafka's wire protocol",
    "fixed_sidebar": True,
    "page_width": "1100px",
    "sidebar_width": "240px",
    "show_powered_by": False,
}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}


def navigation(index: str, pages: set[str]) -> dict[str, list[str]]:
    """Return the pages of each section of the index. Pages that it does not list are under `More`."""
    _, *parts = SECTION.split(index)
    sections = {
        title: LISTED.findall(text) for title, text in zip(parts[::2], parts[1::2], strict=True)
    }
    listed = {page for names in sections.values() for page in names}
    sections["More"] = sorted(pages - listed - {"index"})
    return {title: names for title, names in sections.items() if names}


def toctrees(sections: dict[str, list[str]]) -> str:
    """Return directives that put the sections into the sidebar, and nothing into the page."""
    return "".join(
        "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *names, "```", ""])
        for title, names in sections.items()
    )


def link_out_of_folder(page: str, target: str) -> str:
    """Return the address in the repository of a file outside docs/. Other targets stay as they are."""
    path = repository_path(page, target)
    if not is_relative(target) or path.startswith("docs/"):
        return target
    return absolute_link(path, SOURCE_URL, version)


def prepare_page(_app: object, name: str, source: list[str]) -> None:
    page = f"docs/{name}.md"
    text = change_links(source[0], lambda target, _: link_out_of_folder(page, target))
    if name == "index":
        text += toctrees(navigation(text, {path.stem for path in PAGES.glob("*.md")}))
    source[0] = text


def setup(app: Any) -> None:
    app.connect("source-read", prepare_page)
