"""The marker, the topic factory, fresh clusters and broker logs of the pytest plugin, each in a separate pytest run."""

from __future__ import annotations

import re

import pytest

from tests.integration.test_pytest_plugin import ARGUMENTS, same_barnabas

__all__ = ["same_barnabas"]  # fixture for all

pytest_plugins = ["pytester"]


def run(pytester: pytest.Pytester, *arguments: str, source: str) -> pytest.RunResult:
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess(*ARGUMENTS, *arguments)


def test_tests_with_equal_markers_share_cluster_without_topics(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        three = pytest.mark.barnabas(brokers=3, settings={"num.partitions": 5})
        seen = []

        def topics(cluster):
            from barnabas.client.admin import Admin
            from barnabas.client.cluster import Cluster

            with Cluster(cluster.bootstrap_servers) as client:
                return [topic.name for topic in Admin(client).list_topics()]

        @three
        def test_first(barnabas_cluster):
            seen.append(barnabas_cluster)
            assert list(barnabas_cluster.brokers) == [1, 2, 3]
            barnabas_cluster.create_topic("orders", partitions=-1)
            barnabas_cluster.controller.kill()
            barnabas_cluster.slow_disk(1, 0.1)

        def test_without_marker(barnabas_cluster):
            assert barnabas_cluster not in seen
            assert list(barnabas_cluster.brokers) == [1]
            barnabas_cluster.create_topic("kept")

        @three
        @pytest.mark.parametrize("number", [1, 2])
        def test_second(barnabas_cluster, number, barnabas_topics):
            assert barnabas_cluster is seen[0]
            assert all(broker.is_running for broker in barnabas_cluster.brokers.values())
            assert barnabas_cluster.brokers[1].faults.disk_delay_s == 0
            assert topics(barnabas_cluster) == []
            assert barnabas_topics("orders", partitions=-1) in topics(barnabas_cluster)

        @pytest.mark.barnabas(settings={"num.partitions": 5})
        def test_other_marker(barnabas_cluster):
            assert barnabas_cluster not in seen
            assert list(barnabas_cluster.brokers) == [1]

        def test_topics_of_session_stay(barnabas_cluster):
            assert topics(barnabas_cluster) == ["kept"]
        """
    result = run(pytester, "-vv", source=source)
    result.assert_outcomes(passed=6)
    lines = [line.split(" ")[0] for line in result.outlines if " PASSED " in line]
    names = [line.partition("::")[2] for line in lines]
    assert [name.partition("[")[0] for name in names[:3]] == [
        "test_first",
        "test_without_marker",
        "test_second",
    ], "the marker does not change the order"


def test_topic_factory_creates_topics_as_requested(pytester: pytest.Pytester) -> None:
    source = """
        import pytest
        from barnabas.client.admin import Admin
        from barnabas.client.cluster import Cluster
        from barnabas.errors import ApiError

        @pytest.mark.barnabas(brokers=3)
        class TestTopics:
            def test_arguments(self, barnabas_cluster, barnabas_topics):
                name = barnabas_topics(
                    "orders", partitions=4, replicas=2, config={"retention.ms": 1000, "preallocate": True}
                )
                assert name.startswith("orders-")
                assert barnabas_topics("orders") != name
                with Cluster(barnabas_cluster.bootstrap_servers) as client:
                    (topic,) = Admin(client).describe_topics([name])
                    configs = Admin(client).describe_topic_configs([name])[name]
                assert (len(topic.partitions), topic.replication_factor) == (4, 2)
                values = {each.name: each.value for each in configs}
                assert (values["retention.ms"], values["preallocate"]) == ("1000", "true")

            def test_error_is_raised(self, barnabas_topics):
                with pytest.raises(ApiError, match="INVALID_REPLICATION_FACTOR"):
                    barnabas_topics(replicas=4)

        def test_topics_of_killed_brokers_are_deleted(barnabas_cluster, barnabas_topics):
            barnabas_topics()
            barnabas_cluster.kill(1)

        def test_after_stopped_cluster(barnabas_cluster, barnabas_topics):
            barnabas_cluster.stop()
        """
    run(pytester, source=source).assert_outcomes(passed=4)


def test_fresh_cluster_belongs_to_one_test(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        seen = []

        @pytest.mark.barnabas(brokers=2, settings={"num.partitions": 5})
        @pytest.mark.parametrize("number", [1, 2])
        def test_fresh(barnabas_fresh_cluster, barnabas_cluster, barnabas_topic, number):
            assert barnabas_cluster is barnabas_fresh_cluster
            assert not any(cluster.data == barnabas_cluster.data for cluster in seen)
            assert not any(cluster.data.exists() for cluster in seen)
            seen.append(barnabas_fresh_cluster)
            assert list(barnabas_fresh_cluster.brokers) == [1, 2]
            barnabas_fresh_cluster.create_topic("orders")

        def test_shared(barnabas_cluster):
            assert not seen[-1].data.exists()
        """
    run(pytester, source=source).assert_outcomes(passed=3)


def test_session_fixtures_may_use_shared_cluster(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.fixture(scope="session")
        def servers(barnabas_session_cluster):
            barnabas_session_cluster.create_topic("orders")  # fails if the fixture runs twice
            return barnabas_session_cluster.bootstrap_servers

        def test_first(servers, barnabas_cluster):
            assert servers == barnabas_cluster.bootstrap_servers
            barnabas_cluster.kill(1)

        @pytest.mark.barnabas(brokers=2)
        def test_marked(barnabas_cluster):
            assert len(barnabas_cluster.brokers) == 2

        @pytest.mark.barnabas(brokers=2)
        def test_by_name(request):
            assert len(request.getfixturevalue("barnabas_cluster").brokers) == 2

        def test_last(servers, barnabas_cluster):
            assert servers == barnabas_cluster.bootstrap_servers
            assert barnabas_cluster.brokers[1].is_running
        """
    run(pytester, source=source).assert_outcomes(passed=4)


def test_wrong_markers_are_reported(pytester: pytest.Pytester) -> None:
    reasons = {
        "3": "unknown argument 3; use brokers, settings, security, users, acls",
        "broker=3": "unknown argument broker; use brokers, settings, security, users, acls",
        "brokers=0": "brokers=0 is not a number of brokers; use 1 or more",
        "brokers='3'": "brokers='3' is not a number of brokers; use 1 or more",
        "settings={'log.dirs': ['a']}": "setting log.dirs is neither text, a number nor a boolean",
        "settings='x'": "settings='x' is not a mapping from names to values",
    }
    for number, marker in enumerate(reasons):
        source = f"""
            import pytest

            @pytest.mark.barnabas({marker})
            def test_{number}(barnabas_cluster): pass
            """
        pytester.makepyfile(**{f"test_file_{number}": source})
    result = pytester.runpytest_subprocess(*ARGUMENTS)
    result.assert_outcomes(errors=len(reasons))
    output = result.stdout.str()
    for number, reason in enumerate(reasons.values()):
        assert f"test_file_{number}.py::test_{number}: pytest.mark.barnabas: {reason}" in output
    assert "Traceback" not in output


def test_broker_log_is_attached_to_failed_tests_only(pytester: pytest.Pytester) -> None:
    source = """
        import logging

        def test_failure(barnabas_cluster, barnabas_topic, caplog):
            barnabas_cluster.kill(1)
            assert not [record for record in caplog.records if record.levelno < logging.WARNING]
            assert False, barnabas_topic

        def test_success(barnabas_cluster, barnabas_topic):
            pass

        def test_failure_without_cluster():
            logging.getLogger("barnabas.broker").info("work in the background")
            assert False

        def test_warnings_still_reach_other_handlers(barnabas_cluster, caplog):
            logging.getLogger("barnabas.broker").warning("a warning")
            logging.getLogger("barnabas.broker").info("an information")
            assert [record.message for record in caplog.records] == ["a warning"]
        """
    result = run(pytester, source=source)
    result.assert_outcomes(passed=2, failed=2)
    output = result.stdout.str()
    assert output.count("Captured broker log call") == 1
    (log,) = re.findall(r"-+ Captured broker log call -+\n(.*?)\n_{5}", output, re.DOTALL)
    assert re.search(r"^\S+ \S+ barnabas-broker-1 INFO .*test_failure-\w{8}", log, re.MULTILINE)


def test_workers_of_xdist_have_their_own_clusters(pytester: pytest.Pytester) -> None:
    source = """
        import pytest
        from pathlib import Path

        @pytest.mark.barnabas(brokers=2)
        @pytest.mark.parametrize("number", range(8))
        def test_it(barnabas_cluster, barnabas_topic, worker_id, number):
            with Path("seen").open("a") as seen:
                seen.write(f"{worker_id} {barnabas_cluster.bootstrap_servers} {barnabas_cluster.data}\\n")
        """
    run(pytester, "-n2", source=source).assert_outcomes(passed=8)
    seen = {tuple(line.split()) for line in (pytester.path / "seen").read_text().splitlines()}
    workers, servers, directories = (set(column) for column in zip(*seen, strict=True))
    assert workers == {"gw0", "gw1"}
    assert len(servers) == len(directories) == 2
    assert not any(pytester.path.joinpath(each).exists() for each in directories)
