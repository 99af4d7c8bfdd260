"""Checks of the files in dist/, before they are installed."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

from packaging.metadata import Metadata
from packaging.utils import parse_sdist_filename, parse_wheel_filename

from release.links import change_links, is_relative


class BadFile(Exception):
    """A file of the release that must not be published."""


def read_metadata(file: Path) -> Metadata:
    """Return the metadata of a wheel or a source distribution. Invalid fields raise an ExceptionGroup."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return Metadata.from_email(archive.read(name), validate=True)
    with tarfile.open(file) as archive:
        root = file.name.removesuffix(".tar.gz")
        member = archive.extractfile(f"{root}/PKG-INFO")
        assert member is not None
        return Metadata.from_email(member.read(), validate=True)


def check_file(file: Path, version: str) -> None:
    """Raise BadFile if an index would reject the file, or if its page would have broken links."""
    try:
        metadata = read_metadata(file)
    except ExceptionGroup as errors:
        reasons = "; ".join(map(str, errors.exceptions))
        raise BadFile(f"{file.name}: {reasons}") from errors
    if file.suffix == ".whl":
        _, named_version, _, tags = parse_wheel_filename(file.name)
        if any(tag.platform.startswith("linux_") for tag in tags):
            raise BadFile(f"{file.name}: an index rejects the tag 'linux'; use a manylinux tag")
    else:
        _, named_version = parse_sdist_filename(file.name)
    if not str(named_version) == str(metadata.version) == version:
        raise BadFile(f"{file.name}: its version is {metadata.version}, not {version}")
    description = metadata.description or ""
    if metadata.description_content_type != "text/markdown" or not description.strip():
        raise BadFile(f"{file.name}: it has no description in Markdown")
    if broken := relative_links(description):
        raise BadFile(f"{file.name}: relative links in its description: {', '.join(broken)}")


def relative_links(markdown: str) -> list[str]:
    found = list[str]()

    def collect(target: str, _: bool) -> str:
        if is_relative(target):
            found.append(target)
        return target

    change_links(markdown, collect)
    return found
