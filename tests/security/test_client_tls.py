"""TLS of our own client: certificates of brokers and clients, and errors with their next step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from barnabas import ApiError, Client, ConfigError, ErrorCode
from barnabas.cli.main import run_command
from barnabas.errors import TlsFailed
from support.certificates import PASSWORD, CertificateFiles
from support.waiting import eventually
from tests.security.secured_cluster import (
    SecuredCluster,
    plain_login,
    secured_cluster,
    write_properties,
)

LARGE = bytes(range(256)) * 8192
"""2 MiB: many TLS records."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: CertificateFiles) -> Iterator[SecuredCluster]:
    with secured_cluster(certificates) as running:
        yield running


def trust(certificates: CertificateFiles) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(certificates.ca)}


def error_of(secured: SecuredCluster, settings: Mapping[str, str], listener: str) -> ApiError:
    with secured.connect(settings, listener) as cluster, pytest.raises(ApiError) as error:
        cluster.refresh([])
    return error.value


def test_records_of_many_tls_records_are_sent_and_read(
    secured: SecuredCluster, certificates: CertificateFiles
) -> None:
    settings = {**trust(certificates), **plain_login("admin"), "security.protocol": "SASL_SSL"}
    with Client(secured.servers("SECURE"), security=settings) as client:
        client.admin().create_topic("large", configs={"max.message.bytes": "9000000"})
        producer = client.producer(compression_type="none")
        for _ in range(4):
            producer.send("large", LARGE)
        producer.flush()
        consumer = client.consumer("large", auto_offset_reset="earliest")
        records = [record for _ in range(4) for record in consumer.poll(60, max_records=1)]
    assert [record.value for record in records] == [LARGE] * 4


def test_group_member_receives_records_over_tls(
    secured: SecuredCluster, certificates: CertificateFiles
) -> None:
    settings = {**trust(certificates), **plain_login("admin"), "security.protocol": "SASL_SSL"}
    with Client(secured.servers("SECURE"), security=settings) as client:
        client.admin().create_topic("joined", num_partitions=3)
        producer = client.producer()
        for number in range(30):
            producer.send("joined", f"{number}", key=f"{number}")
        producer.flush()
        member = client.group_consumer("members", ["joined"], auto_offset_reset="earliest")
        seen: set[bytes | None] = set()

        def has_all() -> bool:
            seen.update(record.value for record in member.poll(1.0))
            return len(seen) == 30

        eventually(has_all, "all records")


@pytest.mark.parametrize("form", ["PEM", "PKCS12", "librdkafka", "inline"])
def test_client_certificate_comes_from_every_kind_of_store(
    secured: SecuredCluster, certificates: CertificateFiles, form: str
) -> None:
    stores = {
        "PEM": {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.client),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.ca),
        },
        "PKCS12": {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(certificates.client_pkcs12),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(certificates.ca_pkcs12),
            "ssl.truststore.password": PASSWORD,
        },
        "librdkafka": {
            "ssl.certificate.location": str(certificates.client_certificate),
            "ssl.key.location": str(certificates.client_key),
            "ssl.ca.location": str(certificates.ca),
        },
        "inline": {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": certificates.client_identity.key.decode(),
            "ssl.keystore.certificate.chain": certificates.client_identity.certificate.decode(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": certificates.ca.read_text(),
        },
    }
    with secured.connect({"security.protocol": "SSL", **stores[form]}, "MUTUAL") as cluster:
        assert cluster.refresh([]).brokers


# ---- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listener", "more", "why"),
    [
        ("TLS", {"ssl.ca.location": "OTHER"}, "is not trusted .* set ssl.truststore.location"),
        ("ELSEWHERE", {}, "is for another host .* connect with a name in the certificate"),
        ("EXPIRED", {}, "the broker's certificate has expired; renew it on the broker"),
        ("MUTUAL", {}, "the broker requires a client certificate; set ssl.keystore.location"),
    ],
)
def test_handshake_that_cannot_succeed_fails_at_once(
    secured: SecuredCluster,
    certificates: CertificateFiles,
    listener: str,
    more: dict[str, str],
    why: str,
) -> None:
    files = {name: str(certificates.other_ca) for name in more}
    error = error_of(secured, {**trust(certificates), **files}, listener)
    assert isinstance(error, TlsFailed), str(error)
    assert str(error).startswith(f"SslAuthenticationException: {secured.servers(listener)}: ")
    with pytest.raises(TlsFailed, match=why):
        raise error


def test_untrusted_client_certificate_is_refused(
    secured: SecuredCluster, certificates: CertificateFiles
) -> None:
    settings = {**trust(certificates), "ssl.keystore.location": str(certificates.untrusted_client)}
    error = error_of(secured, {**settings, "ssl.keystore.type": "PEM"}, "MUTUAL")
    assert "the broker refused the client certificate (alert unknown ca)" in str(error)


def test_host_is_not_verified_if_the_setting_says_so(
    secured: SecuredCluster, certificates: CertificateFiles
) -> None:
    for off in ("", "none"):
        settings = {**trust(certificates), "ssl.endpoint.identification.algorithm": off}
        with secured.connect(settings, "ELSEWHERE") as cluster:
            assert cluster.refresh([]).brokers


def test_tls_on_a_listener_without_tls_is_named(
    secured: SecuredCluster, certificates: CertificateFiles
) -> None:
    error = error_of(secured, trust(certificates), "LOCAL")
    assert "security.protocol" in str(error)
    assert "TLS" in str(error)


def test_plaintext_on_a_tls_listener_is_named(secured: SecuredCluster) -> None:
    error = error_of(secured, {}, "TLS")
    assert error.code is ErrorCode.NETWORK_EXCEPTION
    assert "security.protocol" in str(error)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ssl.truststore.location": "/none/ca.pem"}, "ssl.truststore.location: "),
        ({"ssl.certificate.location": "/none/c.pem", "ssl.key.location": "/none/k.pem"}, "/none/"),
    ],
)
def test_unreadable_store_is_a_wrong_setting(
    secured: SecuredCluster, settings: dict[str, str], why: str
) -> None:
    security = {"security.protocol": "SSL", **settings}
    with secured.connect(security, "TLS") as cluster, pytest.raises(ConfigError, match=why):
        cluster.refresh([])


# ---- commands -----------------------------------------------------------------------------------


def test_command_uses_tls_from_options_and_its_error_is_one_line(
    secured: SecuredCluster,
    certificates: CertificateFiles,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers = ["-b", secured.servers("MUTUAL")]
    options = ["-X", "security.protocol=SSL", "-X", f"ssl.ca.location={certificates.ca}"]
    key = ["-X", f"ssl.keystore.location={certificates.client}", "-X", "ssl.keystore.type=PEM"]
    assert run_command(["topics", "list", *servers, *options, *key]) == 0
    capsys.readouterr()
    file = write_properties(tmp_path / "client.properties", trust(certificates))
    assert run_command(["topics", "list", *servers, "--command-config", str(file)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: SslAuthenticationException: ")
    assert len(shown.splitlines()) == 1
