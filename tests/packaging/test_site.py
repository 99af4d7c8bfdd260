"""The documentation site builds without a warning, offline. Broken links and anchors are warnings."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.test_build import ROOT

PAGES = {path.stem for path in (ROOT / "docs").glob("*.md")}
SECTIONS = ["Tutorials", "How-to", "Reference", "Explanation"]
TARGET = re.compile(r'(?:href|src)="([^"]+)"')


def build(pages: Path, site: Path) -> subprocess.CompletedProcess[str]:
    options = ["--quiet", "--fail-on-warning", "--keep-going", "--nitpicky", "--fresh-env"]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "-d", f"{site}-doctrees", pages, site],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site") / "html"
    done = build(ROOT / "docs", directory)
    assert done.returncode == 0, done.stderr
    return directory


def relative_targets(page: Path) -> Iterator[tuple[Path, str]]:
    for target in TARGET.findall(page.read_text()):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            file = file.partition("?")[0]
            yield (page.parent / file if file else page).resolve(), anchor


def test_site_has_every_page_in_its_navigation(site: Path) -> None:
    text = (site / "index.html").read_text()
    captions = re.findall(r'class="caption-text">([^<]+)<', text)
    assert [caption for caption in captions if caption != "More"] == SECTIONS
    sidebar = text[text.index('class="caption-text"') :]
    missing = {page for page in PAGES - {"index"} if f'href="{page}.html"' not in sidebar}
    assert not missing


def test_links_of_site_lead_to_files_and_anchors(site: Path) -> None:
    checked = 0
    anchors = {
        path: set(re.findall(r'id="([^"]+)"', path.read_text())) for path in site.glob("*.html")
    }
    for page in PAGES:
        for path, anchor in relative_targets(site / f"{page}.html"):
            assert path.exists(), f"{page}: {path}"
            if anchor and path in anchors:
                assert anchor in anchors[path], f"{page}: {path.name}#{anchor}"
            checked += 1
    assert checked > 500


def test_links_out_of_docs_lead_to_the_repository(site: Path) -> None:
    text = (site / "walkthrough.html").read_text()
    assert "../src/" not in text and "../ARCHITECTURE.md" not in text
    addresses = re.findall(r'href="https://[^"]+/blob/v[^/"]+/([^"#]+)', text)
    assert len(addresses) > 20
    assert not [path for path in addresses if not (ROOT / path).exists()]


def test_broken_link_fails_the_build(tmp_path: Path) -> None:
    """Breaks a link and an anchor in a copy with two pages."""
    for folder in ("docs", "release", "src/barnabas"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("docs/conf.py", "pyproject.toml", "release/links.py", "docs/durability.md"):
        shutil.copy(ROOT / file, tmp_path / file)
    for file in ("__init__.py", "compiled.py"):
        shutil.copy(ROOT / "src/barnabas" / file, tmp_path / "src/barnabas" / file)
    index = "# Pages\n\n## Tutorials\n\n- [Nothing](nothing.md)\n- [A](durability.md#no-heading)\n"
    (tmp_path / "docs/index.md").write_text(index)
    done = build(tmp_path / "docs", tmp_path / "site")
    assert done.returncode != 0
    assert "nothing" in done.stderr and "no-heading" in done.stderr
