from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from barnabas.errors import ConfigError
from barnabas.java.find import Java
from barnabas.spark import shipping
from barnabas.spark.cache import cache_directory, write_if_missing
from barnabas.spark.catalog import CATALOG_LOCKS, catalog_settings, lock_catalog
from barnabas.spark.class_archive import ClassArchive, archive_build, class_archive
from barnabas.spark.shipping import missing_modules, package_zip, zip_files

JAVA = Java(home=Path("/jvm"), version="17.0.15", origin="PATH", release="a build")


def test_cache_is_in_the_user_cache_directory(tmp_path: Path) -> None:
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "barnabas"
    assert cache_directory({}) == Path.home() / ".cache" / "barnabas"
    assert cache_directory({"XDG_CACHE_HOME": "relative"}) == cache_directory({})


def test_file_is_written_atomically_once(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "file"
    assert write_if_missing(place, b"first").read_bytes() == b"first"
    assert write_if_missing(place, b"second").read_bytes() == b"first"
    assert list(place.parent.iterdir()) == [place]


# ---- class-data archive


def spark_with(path: Path, *jars: str) -> Path:
    (path / "jars").mkdir(parents=True, exist_ok=True)
    for jar in jars:
        (path / "jars" / jar).touch(exist_ok=True)
    return path


def archive_of(tmp_path: Path, java: Java = JAVA) -> ClassArchive:
    return class_archive(java, tmp_path / "spark", tmp_path / "cache")


def test_archive_depends_on_java_and_jars(tmp_path: Path) -> None:
    spark_with(tmp_path / "spark", "a.jar")
    known = archive_of(tmp_path)
    assert archive_of(tmp_path) == known
    other_build = Java(home=JAVA.home, version=JAVA.version, origin="PATH", release="another build")
    assert archive_of(tmp_path, other_build).path != known.path
    spark_with(tmp_path / "spark", "b.jar")
    assert archive_of(tmp_path).path != known.path


def test_java_options_name_only_existing_archives(tmp_path: Path) -> None:
    archive = ClassArchive(path=tmp_path / "a.jsa", base=None)
    assert archive.options == ""
    archive.path.touch()
    assert archive.options.startswith(f"-XX:SharedArchiveFile={archive.path} ")
    on_base = ClassArchive(path=archive.path, base=tmp_path / "base.jsa")
    assert on_base.options == ""
    (tmp_path / "base.jsa").touch()
    assert f"={tmp_path / 'base.jsa'}:{archive.path} " in on_base.options


def test_archive_appears_only_after_success(tmp_path: Path) -> None:
    archive = ClassArchive(path=tmp_path / "class-data" / "a.jsa", base=None)
    with pytest.raises(RuntimeError), archive_build(archive, JAVA) as options:
        assert options is not None
        partial_of(options).write_bytes(b"partial")
        raise RuntimeError("killed")
    assert not archive.exists
    with archive_build(archive, JAVA) as options:
        assert options is not None
        assert not partial_of(options).exists()
        partial_of(options).write_bytes(b"complete")
        assert not archive.exists
    assert archive.path.read_bytes() == b"complete"
    with archive_build(archive, JAVA) as options:
        assert options is None


def test_only_one_process_makes_the_archive(tmp_path: Path) -> None:
    archive = ClassArchive(path=tmp_path / "a.jsa", base=None)
    with archive_build(archive, JAVA) as options:
        assert options is not None
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(makes_archive, (str(archive.path),)) is False
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(makes_archive, (str(archive.path),)) is True


def makes_archive(path: str) -> bool:
    with archive_build(ClassArchive(path=Path(path), base=None), JAVA) as options:
        return options is not None


def partial_of(options: str) -> Path:
    return Path(options.split("-XX:ArchiveClassesAtExit=")[1].split()[0])


# ---- zip file for the workers


def test_zip_contains_both_packages_and_is_made_once(tmp_path: Path) -> None:
    path = package_zip(tmp_path)
    made = path.stat().st_mtime_ns
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
    assert {name.split("/")[0] for name in names} == {"barnabas", "pyspark_barnabas"}
    assert {"barnabas/__init__.py", "barnabas/spark/source.py", "pyspark_barnabas/__init__.py"} <= {
        *names
    }
    assert package_zip(tmp_path) == path
    assert path.stat().st_mtime_ns == made


def test_zip_name_depends_on_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [("barnabas/__init__.py", b"__version__ = '1'")]
    assert zip_files(files) == zip_files(files)
    before = package_zip(tmp_path)
    (tmp_path / "more.py").write_text("")
    known = list(shipping.package_files())
    monkeypatch.setattr(
        shipping, "package_files", lambda: [*known, ("barnabas/more.py", tmp_path / "more.py")]
    )
    assert package_zip(tmp_path) != before


def test_worker_code_runs_from_the_zip_alone(tmp_path: Path) -> None:
    path = package_zip(tmp_path)
    code = "import barnabas.spark.fetching as f, barnabas; print(barnabas.__file__)"
    site = [entry for entry in sys.path if entry.endswith("site-packages")]
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": os.pathsep.join([str(path), *site]), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{path}{os.sep}barnabas")


def test_worker_reports_missing_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_modules() == []
    monkeypatch.setattr(shipping, "REQUIRED_MODULES", ("io", "no_such_crc32c"))
    assert missing_modules() == ["no_such_crc32c"]


# ---- catalog


def test_catalog_is_locked_by_one_process(tmp_path: Path) -> None:
    lock_catalog(tmp_path / "catalog")
    lock_catalog(tmp_path / "catalog")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        refused = pool.apply(try_catalog, (str(tmp_path / "catalog"),))
    assert f"is in use by process {os.getpid()}" in refused
    CATALOG_LOCKS.pop(tmp_path / "catalog").close()


def try_catalog(path: str) -> str:
    try:
        lock_catalog(Path(path))
    except ConfigError as error:
        return str(error)
    return "acquired"


def test_catalog_keeps_everything_in_its_directory(tmp_path: Path) -> None:
    for key, value in catalog_settings(tmp_path).items():
        assert str(tmp_path) in value or key == "spark.sql.catalogImplementation"
