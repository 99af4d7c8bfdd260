"""Names in certificates. The expected subjects are those that Java 17 prints for the same names."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.tls.der import read_element
from barnabas.security.tls.generate import make_authority, make_certificate
from barnabas.security.tls.names import read_alternative_names, read_expiry, read_subject

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def sequence(*parts: bytes) -> bytes:
    content = b"".join(parts)
    return b"\x30\x82" + len(content).to_bytes(2, "big") + content


def certificate_with(subject: str) -> bytes:
    """Return the beginning of a certificate whose subject has this encoding."""
    empty = sequence()
    version, serial = bytes.fromhex("a003020102"), bytes.fromhex("020101")
    return sequence(sequence(version, serial, empty, empty, empty, bytes.fromhex(subject)))


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (
            "3035310b3009060355040613024445310f300d060355040a0c06412c20422b433115301306035504030c0c"
            "206c65616420747261696c20",
            r"CN=\ lead trail\ ,O=A\, B\+C,C=DE",
        ),
        (
            "30273110300e06035504030c0723686173683d783113301106035504030c0a7122756f5c74653c3e3b",
            r"CN=q\"uo\\te\<\>\;,CN=\#hash\=x",
        ),
        ("301e311c301a06035504030c135a6fc3ab20d09620e6bca2e5ad9720f09f9880", "CN=Zoë Ж 漢字 😀"),
        ("301e311c300806035504030c01613010060a0992268993f22c6401010c027531", "CN=a+UID=u1"),
        (
            "30393114301206092a864886f70d01090116057840792e7a31133011060a0992268993f22c64011916036f"
            "7267310c300a06035504051303313233",
            "2.5.4.5=#1303313233,DC=org,1.2.840.113549.1.9.1=#16057840792e7a",
        ),
        (
            "303e310a300806035504090c0173310a300806035504070c016c310b300906035504080c027374310a3008"
            "060355040c0c0174310b300906035504040c027375",
            "2.5.4.4=#0c027375,2.5.4.12=#0c0174,ST=st,L=l,STREET=s",
        ),
        ("30173115301306035504030c0c746162096e6c0a6e756c0078", "CN=tab\tnl\nnul\\00x"),
        ("300d310b300906035504030c022020", r"CN=\ \ "),
        ("3000", ""),
    ],
)
def test_subject_is_printed_as_java_does(encoded: str, expected: str) -> None:
    assert read_subject(certificate_with(encoded)) == expected


def test_names_and_expiry_of_a_certificate() -> None:
    authority = make_authority(NOW)
    identity = make_certificate(
        authority, "CN=a,O=b", NOW, hosts=["localhost", "10.0.0.1", "::1"], valid_days=10
    )
    certificate = ssl.PEM_cert_to_DER_cert(identity.certificate.decode())
    assert read_subject(certificate) == "CN=a,O=b"
    assert read_expiry(certificate) == NOW + timedelta(days=10)
    assert read_alternative_names(certificate) == {
        b"\x82\x09localhost",
        b"\x87\x04\x0a\0\0\x01",
        b"\x87\x10" + bytes(15) + b"\x01",
    }
    without = make_certificate(authority, "CN=a", NOW)
    assert not read_alternative_names(ssl.PEM_cert_to_DER_cert(without.certificate.decode()))


@given(st.binary(max_size=300))
def test_invalid_bytes_raise_value_error(data: bytes) -> None:
    for read in (read_subject, read_alternative_names, read_expiry):
        for each in (data, certificate_with(data.hex())):
            try:
                read(each)
            except ValueError:
                continue


def test_lengths_beyond_the_data_are_rejected() -> None:
    for encoded in ("30", "3001", "3084ffffffff", "3080", "3085ffffffffff", "1f8100"):
        with pytest.raises(ValueError, match=r"cut off|length|tags"):
            read_element(bytes.fromhex(encoded))
