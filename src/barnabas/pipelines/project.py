"""The files of a pipeline project: create a new project, find the pipeline file, list the source files."""

from __future__ import annotations

from pathlib import Path

from barnabas.errors import ConfigError
from barnabas.pipelines.spec import PIPELINE_NAME, PipelineSpec, parse_spec

SPEC_FILES = ("spark-pipeline.yml", "spark-pipeline.yaml")
SOURCE_SUFFIXES = (".py", ".sql")

SPEC_TEMPLATE = """\
name: {name}
storage: storage          # checkpoints and tables; a path is relative to this file
libraries:
  - glob:
      include: transformations/**
"""
PYTHON_TEMPLATE = '''\
"""Counts words: reads the topic {topic}, writes the table {table}."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as f


# Every topic is a table with the columns key, value, value_text, value_json, topic, partition, offset and timestamp.
@dp.table
def {table}() -> DataFrame:
    words = f.explode(f.split("value_text", r"\\s+")).alias("word")
    return spark.readStream.table("{topic}").select(words, "timestamp")  # noqa: F821


@dp.materialized_view
def {table}_count() -> DataFrame:
    return spark.read.table("{table}").groupBy("word").count()  # noqa: F821


# To write to a topic, remove the comment signs and create the topic: barnabas topics create {topic}-upper
# dp.create_sink("upper", "barnabas", {{"topic": "{topic}-upper"}})
#
# @dp.append_flow(target="upper")
# def to_upper() -> DataFrame:
#     return spark.readStream.table("{topic}").selectExpr("key", "upper(value_text) as value")
'''


def create_project(parent: Path, name: str, topic: str, *, dry_run: bool = False) -> list[Path]:
    """Write a small project that runs, unless `dry_run`. Returns its files.

    Raises ConfigError if the directory has other files.
    """
    if PIPELINE_NAME.fullmatch(name) is None:
        why = f"{name!r} must have 1 to 100 letters, digits, '.', '_' and '-'"
        raise ConfigError("NAME", why)
    directory = parent / name
    files = {
        directory / SPEC_FILES[0]: SPEC_TEMPLATE.format(name=name),
        directory / "transformations" / "words.py": PYTHON_TEMPLATE.format(
            topic=topic, table="words"
        ),
        directory / ".gitignore": "/storage/\n",
    }
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            why = "exists and is not empty; choose another name, or remove it"
            raise ConfigError(str(directory), why)
        for path, content in () if dry_run else files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ConfigError(str(directory), f"cannot be written: {error.strerror}") from None
    return list(files)


def find_spec(path: Path) -> Path:
    """Return the pipeline file: `path` itself, or the one in the directory `path`. Raises ConfigError."""
    if path.is_file():
        return path.resolve()
    found = [path / name for name in SPEC_FILES if (path / name).is_file()]
    if len(found) > 1:
        raise ConfigError(str(path), f"has {' and '.join(SPEC_FILES)}; name one of them")
    if not found:
        what = "has no pipeline file" if path.is_dir() else "does not exist"
        hint = f"expected {SPEC_FILES[0]}; `barnabas pipeline init NAME` creates one"
        raise ConfigError(str(path), f"{what}; {hint}")
    return found[0].resolve()


def load_spec(path: Path) -> PipelineSpec:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not UTF-8"
        raise ConfigError(str(path), f"cannot be read: {why}") from None
    return parse_spec(text, path.name)


def source_files(spec: PipelineSpec, directory: Path) -> list[Path]:
    """Return the Python and SQL files of a pipeline, in sort order. Raises ConfigError."""
    found: dict[Path, None] = {}
    for pattern in spec.libraries:
        paths = directory.glob(f"{pattern}/*" if pattern.endswith("/**") else pattern)
        for path in sorted(paths):
            if not path.is_file() or "__pycache__" in path.parts or path.name.startswith("."):
                continue
            if path.suffix not in SOURCE_SUFFIXES:
                where = str(path.relative_to(directory))
                raise ConfigError(where, "is neither .py nor .sql; move it out of the libraries")
            found[path] = None
    if not found:
        why = f"no .py or .sql file matches {', '.join(spec.libraries)}; add one"
        raise ConfigError("libraries", why)
    return list(found)
