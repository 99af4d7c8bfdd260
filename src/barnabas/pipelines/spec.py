"""The pipeline file: the YAML format of Spark's `spark-pipelines`, parsed and validated. Pure.

    name: orders                    storage: storage                libraries:
    configuration:                                                    - glob:
      spark.barnabas.bootstrap.servers: localhost:9092                    include: transformations/**

Compared with Spark, `storage` may be a path relative to the file, `libraries` has a default, and values of
`configuration` may be numbers and booleans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote, urlsplit

from barnabas.errors import ConfigError
from barnabas.pipelines.names import DEFAULT_NAMESPACE, Namespace

FIELDS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
DEFAULT_LIBRARIES = ("transformations/**",)
PIPELINE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """A validated pipeline file. `libraries` are glob patterns relative to its directory."""

    name: str
    storage: str
    catalog: str | None
    database: str | None
    configuration: Mapping[str, str]
    libraries: tuple[str, ...]

    @property
    def namespace(self) -> Namespace:
        default = DEFAULT_NAMESPACE
        return Namespace(self.catalog or default.catalog, self.database or default.database)


def parse_spec(text: str, file: str) -> PipelineSpec:
    """Parse the file. Raises ConfigError with the file and, where possible, the line."""
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = file if mark is None else f"{file}:{mark.line + 1}"
        why = getattr(error, "problem", None) or str(error)
        raise ConfigError(where, f"is not valid YAML: {why}") from None
    if not isinstance(content, dict):
        raise ConfigError(file, "has no fields; write name: and storage:")
    lines = {str(key.value): key.start_mark.line + 1 for key, _ in root.value}

    def wrong(field: str, why: str) -> ConfigError:
        line = f":{lines[field]}" if field in lines else ""
        return ConfigError(f"{file}{line}", f"{field}: {why}")

    for field in map(str, content):
        if field not in FIELDS:
            near = get_close_matches(field, FIELDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the fields are {', '.join(FIELDS)}"
            raise wrong(field, f"there is no such field; {hint}")
    texts: dict[str, str | None] = {}
    for field in ("name", "storage", "catalog", "database", "schema"):
        value = content.get(field)
        if value is None and field in ("name", "storage"):
            raise wrong(field, "is missing")
        if value is not None and not isinstance(value, str | int):
            raise wrong(field, f"must be a text, not {value!r}")
        texts[field] = None if value is None else str(value)
    name, storage = texts["name"] or "", (texts["storage"] or "").strip()
    if PIPELINE_NAME.fullmatch(name) is None:
        raise wrong("name", f"{name!r} must have 1 to 100 letters, digits, '.', '_' and '-'")
    if not storage:
        raise wrong("storage", "is empty; name a directory")
    try:
        configuration = parse_configuration(content.get("configuration"))
    except ValueError as error:
        raise wrong("configuration", str(error)) from None
    try:
        libraries = parse_libraries(content.get("libraries"))
    except ValueError as error:
        raise wrong("libraries", str(error)) from None
    return PipelineSpec(
        name=name,
        storage=storage,
        catalog=texts["catalog"],
        database=texts["database"] or texts["schema"],
        configuration=configuration,
        libraries=libraries,
    )


def parse_configuration(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("must be a mapping of settings to values")
    found = {}
    for key, each in value.items():
        if isinstance(each, bool):
            found[str(key)] = str(each).lower()
        elif isinstance(each, str | int | float):
            found[str(key)] = str(each)
        else:
            raise ValueError(f"{key} must be a text or a number, not {each!r}")
    return found


def parse_libraries(value: Any) -> tuple[str, ...]:
    """Return the glob patterns. Like Spark, only files and directories that end with /** are accepted."""
    if value is None:
        return DEFAULT_LIBRARIES
    expected = "write a list of `- glob: {include: transformations/**}`"
    if not isinstance(value, list) or not value:
        raise ValueError(expected)
    patterns = []
    for entry in value:
        glob = entry.get("glob") if isinstance(entry, dict) else None
        include = glob.get("include") if isinstance(glob, dict) else None
        if not isinstance(include, str) or not include:
            raise ValueError(expected)
        if PurePath(include).is_absolute() or ".." in PurePath(include).parts:
            raise ValueError(f"{include!r} is outside the directory of the pipeline file")
        if WILDCARD.search(include.removesuffix("/**")):
            raise ValueError(f"{include!r}: name a file, or a directory that ends with /**")
        patterns.append(include)
    return tuple(patterns)


def storage_uri(storage: str, directory: PurePath) -> str:
    """Return the storage as a URI, as Spark requires. A path is relative to the directory of the pipeline file.

    >>> storage_uri("storage", PurePath("/home/ann/orders"))
    'file:///home/ann/orders/storage'
    """
    if urlsplit(storage).scheme:
        return storage
    return (directory / storage).as_uri()


def storage_path(uri: str) -> str | None:
    """Return the path of a storage URI on this machine, or None if it is elsewhere, such as in S3."""
    address = urlsplit(uri)
    return unquote(address.path) if address.scheme == "file" else None
