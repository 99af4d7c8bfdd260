from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from barnabas.errors import ConfigError
from barnabas.pipelines.spec import parse_spec, storage_path, storage_uri

MINIMAL = "name: orders\nstorage: storage\n"


def test_minimal_file_has_default_libraries() -> None:
    spec = parse_spec(MINIMAL, "p.yml")
    assert (spec.name, spec.storage, spec.libraries) == (
        "orders",
        "storage",
        ("transformations/**",),
    )


def test_schema_is_another_name_for_database() -> None:
    assert parse_spec(MINIMAL + "schema: sales\n", "p.yml").database == "sales"


def test_names_are_short_in_catalog_and_database_of_file() -> None:
    assert parse_spec(MINIMAL, "p.yml").namespace.short_name("spark_catalog.default.t") == "t"
    spec = parse_spec(MINIMAL + "catalog: Lake\ndatabase: shop\n", "p.yml")
    assert spec.namespace.short_name("lake.shop.t") == "t"


def test_numbers_and_booleans_of_configuration_become_text() -> None:
    text = MINIMAL + "configuration:\n  a: 8\n  b: true\n  c: x\n"
    assert parse_spec(text, "p.yml").configuration == {"a": "8", "b": "true", "c": "x"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: [", "p.yml:1: is not valid YAML"),
        ("", "p.yml: has no fields"),
        ("name: a\n", "p.yml: storage: is missing"),
        ("name: a/b\nstorage: s\n", "p.yml:1: name: 'a/b' must have"),
        (MINIMAL + "librarys: []\n", "p.yml:3: librarys: there is no such field; did you mean lib"),
        (MINIMAL + "libraries: x\n", "p.yml:3: libraries: write a list"),
        (
            MINIMAL + "libraries:\n  - glob:\n      include: ../x/**\n",
            "p.yml:3: libraries: '../x/**' is outside",
        ),
        (
            MINIMAL + "libraries:\n  - glob:\n      include: a/*.py\n",
            "p.yml:3: libraries: 'a/*.py': name a file",
        ),
        (MINIMAL + "configuration: 3\n", "p.yml:3: configuration: must be a mapping"),
        (MINIMAL + "configuration:\n  a: []\n", "p.yml:3: configuration: a must be a text"),
    ],
)
def test_error_has_file_line_and_field(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_spec(text, "p.yml")
    assert str(caught.value).startswith(expected)


def test_storage_path_is_relative_to_file() -> None:
    directory = PurePosixPath("/home/ann/my orders")
    uri = storage_uri("storage", directory)
    assert uri == "file:///home/ann/my%20orders/storage"
    assert storage_path(uri) == "/home/ann/my orders/storage"
    assert storage_uri("s3://bucket/x", directory) == "s3://bucket/x"
    assert storage_path("s3://bucket/x") is None
