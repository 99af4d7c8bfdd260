"""Links of Markdown pages, made absolute for places outside the repository: the package index and the site.

setup.py loads this module by its path, so it imports only the standard library.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[`~]*$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?P<picture>!?)(?P<text>\[[^][]*\])\((?P<target>[^)\s]+)\)")
DEFINITION = re.compile(r"^(?P<text>\[[^][]+\]): (?P<target>\S+)$", re.MULTILINE)
ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def is_relative(target: str) -> bool:
    return ABSOLUTE.match(target) is None


def change_links(text: str, change: Callable[[str, bool], str]) -> str:
    """Replace each target by `change(target, is_picture)`. Fenced code stays as it is."""

    def change_inline(found: re.Match[str]) -> str:
        target = change(found["target"], bool(found["picture"]))
        return f"{found['picture']}{found['text']}({target})"

    def change_definition(found: re.Match[str]) -> str:
        return f"{found['text']}: {change(found['target'], False)}"

    def change_prose(prose: str) -> str:
        return DEFINITION.sub(change_definition, INLINE.sub(change_inline, prose))

    parts = list[str]()
    end = 0
    for fence in FENCE.finditer(text):
        parts += [change_prose(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change_prose(text[end:])])


def repository_path(page: str, target: str) -> str:
    """Return the path of a relative target in the repository, with its anchor.

    >>> repository_path("docs/spark.md", "../README.md#compiled-code"), repository_path("README.md", "#limits")
    ('README.md#compiled-code', 'README.md#limits')
    """
    file, hash_sign, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), file)) if file else page
    return f"{path}{hash_sign}{anchor}"


def absolute_link(path: str, source_url: str, version: str, *, is_picture: bool = False) -> str:
    """Return the address of a file of the repository, at the tag of a version."""
    return f"{source_url}/{'raw' if is_picture else 'blob'}/v{version}/{path}"


def long_description(readme: str, source_url: str, version: str) -> str:
    """Return README.md for the package index, which has no other file of the repository and no anchors."""

    def change(target: str, is_picture: bool) -> str:
        if not is_relative(target):
            return target
        path = repository_path("README.md", target)
        return absolute_link(path, source_url, version, is_picture=is_picture)

    return change_links(readme, change)
