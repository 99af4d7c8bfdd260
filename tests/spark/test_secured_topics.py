"""The source and the sink with a cluster that needs logins. Secrets reach the tasks, but no plan."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from barnabas import Admin, Producer
from barnabas.jobs.topic_state import look_up_state, topic_records
from support.certificates import CertificateFiles
from tests.security.secured_cluster import (
    PASSWORDS,
    SecuredCluster,
    plain_login,
    secured_cluster,
    write_properties,
)

ADMIN = plain_login("admin")
TOPIC = "secured"
RECORDS = 20
"""Records in the topic before the first test."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: CertificateFiles) -> Iterator[SecuredCluster]:
    with secured_cluster(certificates) as running:
        with Admin(running.servers(), security=ADMIN) as admin:
            admin.create_topic(TOPIC, num_partitions=2)
        with Producer(running.servers(), security=ADMIN) as producer:
            for sent in [producer.send(TOPIC, b"x") for _ in range(RECORDS)]:
                sent.result()
        yield running


def kafka_options(
    secured: SecuredCluster, settings: dict[str, str], listener: str = "LOGIN"
) -> dict[str, str]:
    named = {f"kafka.{name}": value for name, value in settings.items()}
    return {"kafka.bootstrap.servers": secured.servers(listener), **named}


def reader(spark: SparkSession, options: dict[str, str]) -> DataFrameReader:
    return spark.read.format("barnabas").options(**options).option("subscribe", TOPIC)


def explain(frame: DataFrame) -> str:
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain(True)
        frame.explain("formatted")
    return shown.getvalue()


def test_sink_source_and_stream_log_in(
    spark: SparkSession, secured: SecuredCluster, certificates: CertificateFiles, tmp_path: Path
) -> None:
    """With TLS. The other tests have a listener without it."""
    login = {
        **ADMIN,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
    }
    options = kafka_options(secured, login, "SECURE")
    rows = spark.range(100).selectExpr("cast(id as string) as value")
    before = reader(spark, options).load().count()
    rows.write.format("barnabas").options(**options).option("topic", TOPIC).mode("append").save()
    found = reader(spark, options).load()
    assert found.count() == before + 100
    assert PASSWORDS["admin"] not in explain(found)

    # The file has the secrets, so the options have none.
    file = write_properties(tmp_path / "client.properties", login)
    plain = {"kafka.bootstrap.servers": secured.servers("SECURE"), "clientConfig": str(file)}
    stream = spark.readStream.format("barnabas").options(**plain).option("subscribe", TOPIC)
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("barnabas")
        .options(**plain)
        .option("topic", TOPIC)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert query.exception() is None
    assert reader(spark, plain).load().count() == 2 * (before + 100)
    for written in (tmp_path / "checkpoint").rglob("*"):
        assert not written.is_file() or PASSWORDS["admin"].encode() not in written.read_bytes()


def test_job_reads_with_the_settings_of_its_client(
    spark: SparkSession, secured: SecuredCluster
) -> None:
    with secured.admin() as cluster:
        state = look_up_state(cluster, TOPIC)
        records = topic_records(spark, cluster, TOPIC, dict(enumerate(state.spans)))
        count = records.count()
    assert count == sum(span.latest - span.earliest for span in state.spans)
    assert count >= RECORDS


def test_wrong_password_is_one_clear_error(spark: SparkSession, secured: SecuredCluster) -> None:
    options = kafka_options(secured, plain_login("admin", "hunter2"))
    with pytest.raises(PySparkException, match="SASL_AUTHENTICATION_FAILED") as error:
        reader(spark, options).load().count()
    assert "hunter2" not in str(error.value)


def test_options_of_a_view_are_hidden_in_its_plan(
    spark: SparkSession, secured: SecuredCluster
) -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "hunter2",
        "sasl.password": "hunter2",
    }
    given = {**kafka_options(secured, settings), "subscribe": TOPIC}
    listed = ", ".join(f"`{name}` '{value}'" for name, value in given.items())
    statement = f"explain create temporary view hidden using barnabas options ({listed})"
    (row,) = spark.sql(statement).collect()
    assert "subscribe" in row[0]
    assert "hunter2" not in row[0]
