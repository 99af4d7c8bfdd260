"""pytest fixtures: real clusters for tests, and topics of its own for each test.

    def test_orders_arrive(barnabas_cluster, barnabas_topic):
        producer = KafkaProducer(bootstrap_servers=barnabas_cluster.bootstrap_servers)
        producer.send(barnabas_topic, b"one order")

    @pytest.mark.barnabas(brokers=3, settings={"min.insync.replicas": 2})
    def test_failover(barnabas_cluster, barnabas_topics):
        topic = barnabas_topics(partitions=6, replicas=3)
        barnabas_cluster.controller.kill()

`pytest --barnabas-brokers 3`, or `barnabas_brokers = 3` in pytest's configuration, gives the clusters three brokers.
docs/testing.md describes all fixtures.

pytest loads this module in every run if Barnabas is installed. The fixtures import the rest of Barnabas when a test
uses them.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from barnabas.cluster.local import LocalCluster

TOPIC_NAME_MAX = 249
LOG_LINES_MAX = 1000
MARKER = (
    "barnabas(brokers=N, settings={...}, security=..., users={...}, acls=...): "
    "the cluster of barnabas_cluster and barnabas_fresh_cluster for this test"
)
ARGUMENTS = ("brokers", "settings", "security", "users", "acls")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "number of brokers of barnabas_cluster and barnabas_fresh_cluster"
    parser.addini("barnabas_brokers", about, default="1")
    parser.getgroup("barnabas").addoption(
        "--barnabas-brokers", type=int, metavar="N", help=f"{about}; overrides barnabas_brokers"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    broker_count(config)  # an invalid number ends the run before any test


def broker_count(config: pytest.Config) -> int:
    """Return the number of brokers from the option or the configuration. Raises UsageError if it is not 1 or more."""
    option: int | None = config.getoption("--barnabas-brokers")
    text = config.getini("barnabas_brokers") if option is None else str(option)
    if not text.isdecimal() or int(text) < 1:
        name = "barnabas_brokers =" if option is None else "--barnabas-brokers"
        raise pytest.UsageError(f"{name} {text}: not a number of brokers; use 1 or more")
    return int(text)


# ---- clusters


class ClusterSpec(NamedTuple):
    """The arguments of a cluster. Tests with equal markers share a cluster."""

    brokers: int
    settings: tuple[tuple[str, object], ...] = ()
    security: str | None = None
    users: tuple[tuple[str, str], ...] = ()
    acls: bool = False

    def new_cluster(self) -> LocalCluster:
        from barnabas.cluster.local import LocalCluster

        return LocalCluster(
            brokers=self.brokers,
            settings=dict(self.settings),
            security=self.security,
            users=dict(self.users),
            acls=self.acls,
        )


def spec_of(node: pytest.Item | pytest.Function, config: pytest.Config) -> ClusterSpec | None:
    """Return the arguments of the marker of a test, or None without a marker. Raises CollectError."""
    marker = node.get_closest_marker("barnabas")
    if marker is None:
        return None
    brokers = marker.kwargs.get("brokers", broker_count(config))
    settings = marker.kwargs.get("settings", {})
    security = marker.kwargs.get("security")
    users = marker.kwargs.get("users", {})
    unknown = [*map(repr, marker.args), *sorted(marker.kwargs.keys() - set(ARGUMENTS))]
    if unknown:
        why = f"unknown argument {unknown[0]}; use {', '.join(ARGUMENTS)}"
    elif type(brokers) is not int or brokers < 1:
        why = f"brokers={brokers!r} is not a number of brokers; use 1 or more"
    elif not isinstance(settings, Mapping):
        why = f"settings={settings!r} is not a mapping from names to values"
    elif invalid := [
        name for name in settings if not isinstance(settings[name], str | int | float)
    ]:
        why = f"setting {invalid[0]} is neither text, a number nor a boolean"
    elif security is not None and security not in PROTOCOLS:
        why = f"security={security!r} is not one of {', '.join(PROTOCOLS)}"
    elif not is_text_mapping(users):
        why = 'users is not a mapping from names to passwords, as in users={"alice": "secret"}'
    else:
        return ClusterSpec(
            brokers,
            tuple(sorted(settings.items())),
            security,
            tuple(sorted(users.items())),
            bool(marker.kwargs.get("acls", False)),
        )
    raise pytest.Collector.CollectError(f"{node.nodeid}: pytest.mark.barnabas: {why}")


def is_text_mapping(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(each, str) for pair in value.items() for each in pair
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Report a wrong marker when the test is collected."""
    spec_of(metafunc.definition, metafunc.config)


class ClusterPool:
    """The running clusters that tests share, by the marker of the tests; None for tests without a marker."""

    def __init__(self, brokers: int) -> None:
        self.brokers = brokers
        self.clusters: dict[ClusterSpec | None, LocalCluster] = {}

    def get(self, spec: ClusterSpec | None) -> LocalCluster:
        """Return the cluster, which is running."""
        if spec not in self.clusters:
            self.clusters[spec] = (spec or ClusterSpec(self.brokers)).new_cluster()
        return self.clusters[spec].start()

    def stop(self) -> None:
        for cluster in self.clusters.values():
            cluster.stop()


@pytest.fixture(scope="session")
def _barnabas_pool(pytestconfig: pytest.Config, _barnabas_log: BrokerLog) -> Iterator[ClusterPool]:
    pool = ClusterPool(broker_count(pytestconfig))
    yield pool
    pool.stop()


@pytest.fixture(scope="session")
def barnabas_session_cluster(_barnabas_pool: ClusterPool) -> LocalCluster:
    """The cluster of all tests without the marker `barnabas`, for fixtures of a module or of the session."""
    return _barnabas_pool.get(None)


@pytest.fixture
def barnabas_cluster(
    request: pytest.FixtureRequest, _barnabas_pool: ClusterPool
) -> Iterator[LocalCluster]:
    """A cluster of one broker (or --barnabas-brokers), shared by all tests of the run and removed at its end.

    Tests with the marker `barnabas` share one cluster per set of marker arguments, and all its topics are deleted after
    each of them. After each test, with or without the marker, all faults end.
    """
    if "barnabas_fresh_cluster" in request.fixturenames:
        yield request.getfixturevalue("barnabas_fresh_cluster")
        return
    spec = spec_of(request.node, request.config)
    cluster = _barnabas_pool.get(spec)
    yield cluster
    cluster.start().restore()
    if spec is not None:
        cluster.delete_topics()


@pytest.fixture
def barnabas_fresh_cluster(
    request: pytest.FixtureRequest, _barnabas_log: BrokerLog
) -> Iterator[LocalCluster]:
    """A new cluster for this test, removed after it. The marker `barnabas` sets its brokers and settings.

    In a test that uses it, barnabas_cluster is the same cluster.
    """
    spec = spec_of(request.node, request.config) or ClusterSpec(broker_count(request.config))
    with spec.new_cluster() as cluster:
        yield cluster


# ---- topics


class TopicFactory:
    """Creates topics for one test."""

    def __init__(self, cluster: LocalCluster, test: str) -> None:
        self.cluster = cluster
        self.test = test
        self.names: list[str] = []

    def __call__(
        self,
        prefix: str | None = None,
        *,
        partitions: int = 1,
        replicas: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic and return its name, which is unique. It starts with `prefix`, or the name of the test."""
        name = unique_topic_name(prefix or self.test, uuid4().hex[:8])
        self.names.append(name)
        return self.cluster.create_topic(
            name, partitions=partitions, replicas=replicas, config=config
        )


@pytest.fixture
def barnabas_topics(
    barnabas_cluster: LocalCluster, request: pytest.FixtureRequest
) -> Iterator[TopicFactory]:
    """A function that creates topics for this test: barnabas_topics(partitions=6, replicas=3, config={...}).

    It returns the name of the topic. After the test, its topics are deleted, and faults of its cluster end.
    """
    topics = TopicFactory(barnabas_cluster, request.node.name)
    yield topics
    if "barnabas_fresh_cluster" not in request.fixturenames:
        barnabas_cluster.start().restore()
        barnabas_cluster.delete_topics(topics.names)


@pytest.fixture
def barnabas_topic(barnabas_topics: TopicFactory) -> str:
    """The name of a topic with one partition, created for this test and deleted after it."""
    return barnabas_topics()


def unique_topic_name(test: str, suffix: str) -> str:
    """Return a valid topic name from the name of a test, so that log lines show which test uses the topic.

    test_sum[1-a b] becomes test_sum-1-a-b-5f3a9c01.
    """
    valid = re.sub(r"[^A-Za-z0-9._-]+", "-", test).strip("-.")
    return f"{valid[: TOPIC_NAME_MAX - len(suffix) - 1]}-{suffix}"


# ---- logs


KEPT_LEVEL = logging.INFO - 1
"""Records of level INFO are kept. Tests do not use this number, so a level that a test sets is recognized."""


class BrokerLog(logging.Handler):
    """Keeps the latest log lines of the brokers, for the report of a failed test.

    It needs the level INFO. The handlers of the root logger, such as those of pytest, get only the records that they
    would get without it. So it stands between the logger `barnabas` and the root logger while it is installed.
    """

    def __init__(self) -> None:
        from barnabas.log_lines import PrintableFormatter

        super().__init__()
        self.lines: deque[str] = deque(maxlen=LOG_LINES_MAX)
        self.setFormatter(
            PrintableFormatter("%(asctime)s %(threadName)s %(levelname)s %(message)s")
        )
        self.logger = logging.getLogger("barnabas")
        self.parent, self.level_before = self.logger.parent, self.logger.level
        self.gate = logging.Logger("barnabas-gate")
        self.gate.addHandler(self)

    def install(self) -> None:
        self.logger.setLevel(KEPT_LEVEL)
        self.logger.parent = self.gate

    def uninstall(self) -> None:
        self.logger.setLevel(self.level_before)
        self.logger.parent = self.parent

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
        if self.parent is not None and record.levelno >= self.level_without(record.name):
            self.parent.handle(record)

    def level_without(self, name: str) -> int:
        """Return the effective level that this logger has without the handler."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None and logger is not self.logger:
            if logger.level:
                return logger.level
            logger = logger.parent
        if self.logger.level != KEPT_LEVEL:  # set by a test
            return self.logger.level
        root = logging.getLogger() if self.parent is None else self.parent
        return self.level_before or root.getEffectiveLevel()

    def take_lines(self) -> str:
        lines = "\n".join(self.lines)
        self.lines.clear()
        return lines


LOG = pytest.StashKey[BrokerLog]()


@pytest.fixture(scope="session")
def _barnabas_log(pytestconfig: pytest.Config) -> Iterator[BrokerLog]:
    log = pytestconfig.stash[LOG] = BrokerLog()
    log.install()
    yield log
    log.uninstall()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if LOG in item.config.stash:
        item.config.stash[LOG].lines.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Attach the log of the brokers to the report of a failed test, if one of its fixtures needs a cluster.

    The shared cluster also works during other tests: it deletes topics in the background.
    """
    uses_cluster = "_barnabas_log" in getattr(item, "fixturenames", ())
    if call.excinfo is not None and uses_cluster and LOG in item.config.stash:
        lines = item.config.stash[LOG].take_lines()
        if lines:
            item.add_report_section(call.when, "broker log", lines)
