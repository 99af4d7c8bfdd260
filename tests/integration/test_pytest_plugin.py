"""The pytest plugin in a separate pytest run."""

import re
from importlib.metadata import entry_points

import pytest

from barnabas.cluster.pytest_plugin import TOPIC_NAME_MAX, unique_topic_name
from support.process import ENVIRONMENT

pytest_plugins = ["pytester"]

PLUGIN = "barnabas.pytest_plugin"
INSTALLED = any(found.value == PLUGIN for found in entry_points(group="pytest11"))
# If Barnabas is installed, its entry point loads the plugin. It must not be loaded twice.
ARGUMENTS = ("-p", "no:cacheprovider", "-q", *(() if INSTALLED else ("-p", PLUGIN)))


@pytest.fixture(autouse=True)
def same_barnabas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    # pytest rewrites the asserts of the whole package. Do so once, not in every process.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)


def test_each_test_gets_its_own_topic_on_one_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

        seen = {}

        def test_first(barnabas_cluster, barnabas_topic):
            seen["servers"], seen["topic"] = barnabas_cluster.bootstrap_servers, barnabas_topic
            producer = KafkaProducer(bootstrap_servers=barnabas_cluster.bootstrap_servers)
            producer.send(barnabas_topic, b"one order").get(20)
            producer.close()
            consumer = KafkaConsumer(
                barnabas_topic,
                bootstrap_servers=barnabas_cluster.bootstrap_servers,
                auto_offset_reset="earliest",
                consumer_timeout_ms=20_000,
            )
            assert next(consumer).value == b"one order"
            consumer.close()

        def test_second(barnabas_cluster, barnabas_topic):
            assert barnabas_cluster.bootstrap_servers == seen["servers"]
            assert barnabas_topic != seen["topic"]
            admin = KafkaAdminClient(bootstrap_servers=barnabas_cluster.bootstrap_servers)
            topics = admin.list_topics()
            assert barnabas_topic in topics
            assert seen["topic"] not in topics
            admin.close()

        def test_third_deletes_its_topic_itself(barnabas_cluster, barnabas_topic):
            admin = KafkaAdminClient(bootstrap_servers=barnabas_cluster.bootstrap_servers)
            admin.delete_topics([barnabas_topic])
            admin.close()
        """
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=3)


@pytest.mark.parametrize("how", ["option", "setting"])
def test_broker_count_from_option_or_setting(pytester: pytest.Pytester, how: str) -> None:
    pytester.makepyfile(
        """
        def test_it(barnabas_cluster, barnabas_topic):
            assert list(barnabas_cluster.brokers) == [1, 2, 3]
            barnabas_cluster.controller.kill()
        """
    )
    arguments = list(ARGUMENTS)
    if how == "option":
        arguments += ["--barnabas-brokers", "3"]
    else:
        pytester.makeini("[pytest]\nbarnabas_brokers = 3\n")
    pytester.runpytest_subprocess(*arguments).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("setting", "arguments", "shown"),
    [
        ("many", (), "barnabas_brokers = many: not a number of brokers; use 1 or more"),
        ("0", (), "barnabas_brokers = 0: not a number of brokers; use 1 or more"),
        ("1", ("--barnabas-brokers=0",), "--barnabas-brokers 0: not a number of brokers"),
        ("1", ("--barnabas-brokers=-3",), "--barnabas-brokers -3: not a number of brokers"),
    ],
)
def test_invalid_broker_count_is_usage_error(
    pytester: pytest.Pytester, setting: str, arguments: tuple[str, ...], shown: str
) -> None:
    pytester.makeini(f"[pytest]\nbarnabas_brokers = {setting}\n")
    pytester.makepyfile("def test_it(barnabas_cluster): pass")
    result = pytester.runpytest_subprocess(*ARGUMENTS, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {shown}" in result.stderr.str()
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


def test_cluster_directory_is_removed_after_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from pathlib import Path

        def test_it(barnabas_cluster):
            Path("where").write_text(str(barnabas_cluster.data))
            assert barnabas_cluster.data.is_dir()
        """
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=1)
    directory = (pytester.path / "where").read_text()
    assert directory
    assert not pytester.path.joinpath(directory).exists()


def test_run_without_fixtures_loads_no_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            loaded = sorted(name for name in sys.modules if name.startswith("barnabas"))
            plugin = ["barnabas.cluster", "barnabas.cluster.pytest_plugin", "barnabas.pytest_plugin"]
            assert set(loaded) == {"barnabas", "barnabas.compiled", *plugin}
        """
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=1)


def test_fixtures_are_documented(pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest_subprocess(*ARGUMENTS, "--fixtures").stdout.str()
    assert re.search(r"barnabas_cluster -- .*\n +A cluster of one broker", shown)
    assert re.search(r"barnabas_fresh_cluster .*\n +A new cluster for this test", shown)
    assert re.search(r"barnabas_topic .*\n +The name of a topic with one partition", shown)
    assert re.search(r"barnabas_topics .*\n +A function that creates topics for this test", shown)
    assert "_barnabas_pool" not in shown
    shown = pytester.runpytest_subprocess(*ARGUMENTS, "--markers").stdout.str()
    assert (
        "@pytest.mark.barnabas(brokers=N, settings={...}, security=..., users={...}, acls=...): "
        in shown
    )


@pytest.mark.parametrize("test", ["test_sum[1-a b]", "test_" + "long" * 100, "test_ünïcode[漢字]"])
def test_topic_name_is_derived_from_test_name(test: str) -> None:
    name = unique_topic_name(test, "5f3a9c01")
    assert re.fullmatch(r"test_[A-Za-z0-9._-]*-5f3a9c01", name)
    assert len(name) <= TOPIC_NAME_MAX
