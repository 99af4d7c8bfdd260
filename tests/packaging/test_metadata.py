"""The metadata of the package, as an index shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.metadata import Metadata

import barnabas
from release.links import change_links, is_relative, long_description
from tests.packaging.test_build import ROOT, clean_environment

SOURCE = "https://example.org/project"
METADATA = (
    "from setuptools import build_meta; print(build_meta.prepare_metadata_for_build_wheel({!r}))"
)


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Metadata:
    """Metadata that the build backend writes. Invalid fields raise an error."""
    directory = tmp_path_factory.mktemp("metadata")
    egg_info = f"[egg_info]\negg_base={directory}\n"
    (directory / "setup.cfg").write_text(egg_info)
    subprocess.run(
        [sys.executable, "-c", METADATA.format(str(directory))],
        cwd=ROOT,
        env=clean_environment()
        | {"BARNABAS_PURE": "1", "DIST_EXTRA_CONFIG": str(directory / "setup.cfg")},
        check=True,
        capture_output=True,
        timeout=60,
    )
    (file,) = directory.glob("*.dist-info/METADATA")
    return Metadata.from_email(file.read_bytes(), validate=True)


def targets_of(markdown: str) -> list[str]:
    found = list[str]()

    def collect(target: str, _: bool) -> str:
        found.append(target)
        return target

    change_links(markdown, collect)
    return found


def test_version_is_that_of_the_code(metadata: Metadata) -> None:
    assert str(metadata.version) == barnabas.__version__


def test_metadata_has_everything_that_an_index_shows(metadata: Metadata) -> None:
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.author == "Barnabas developers"
    assert metadata.project_urls is not None and metadata.classifiers is not None
    assert set(metadata.project_urls) == {
        *("Homepage", "Documentation", "Source", "Changelog", "Issues"),
    }
    assert "Typing :: Typed" in metadata.classifiers
    assert metadata.description_content_type == "text/markdown"


def test_description_has_no_relative_link_or_picture(metadata: Metadata) -> None:
    assert metadata.description is not None
    targets = targets_of(metadata.description)
    assert len(targets) > 10
    assert not [target for target in targets if is_relative(target)]
    assert not re.findall(r'(?:src|href)="(?!https?:)', metadata.description)


def test_links_of_description_lead_to_files(metadata: Metadata) -> None:
    assert metadata.description is not None and metadata.project_urls is not None
    start = f"{metadata.project_urls['Source']}/blob/v{barnabas.__version__}/"
    targets = targets_of(metadata.description)
    ours = [target for target in targets if target.startswith(start)]
    files = [target.removeprefix(start).partition("#")[0] for target in ours]
    assert len(files) > 10
    assert not [file for file in files if not (ROOT / file).is_file()]


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("[a](docs/a.md#b)", f"[a]({SOURCE}/blob/v1/docs/a.md#b)"),
        ("[a](#b)", f"[a]({SOURCE}/blob/v1/README.md#b)"),
        ("![a](docs/a.png)", f"![a]({SOURCE}/raw/v1/docs/a.png)"),
        ("[a](https://example.org)", "[a](https://example.org)"),
        ("[a]: docs/a.md", f"[a]: {SOURCE}/blob/v1/docs/a.md"),
        ("```\n[a](b)\n```\n[a](b)", f"```\n[a](b)\n```\n[a]({SOURCE}/blob/v1/b)"),
    ],
)
def test_long_description_has_absolute_links(markdown: str, expected: str) -> None:
    assert long_description(markdown, SOURCE, "1") == expected


def test_readme_is_the_only_source_of_the_description(metadata: Metadata) -> None:
    assert metadata.description is not None
    headings = re.findall(r"^#+ .+$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert re.findall(r"^#+ .+$", metadata.description, re.MULTILINE) == headings


def test_changelog_has_section_for_the_version() -> None:
    """Before its release, the version is named under Unreleased."""
    text = Path(ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"\b{re.escape(barnabas.__version__)}\b", text)
