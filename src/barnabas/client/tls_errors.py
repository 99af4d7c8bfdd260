"""Errors of TLS handshakes, each with its cause and the next step. Pure."""

from __future__ import annotations

import ssl

from barnabas.errors import ApiError, ErrorCode, TlsFailed, reason

NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's reasons if the other side does not speak TLS."""
NO_CERTIFICATE = ("CERTIFICATE_REQUIRED", "PEER_DID_NOT_RETURN_A_CERTIFICATE")
HOST_MISMATCHES = (62, 64)
"""OpenSSL's codes for a certificate of another host name or address."""
EXPIRED = 10
UNTRUSTED = (18, 19, 20, 21)
"""OpenSSL's codes for a certificate without a trusted authority."""


def is_fatal(error: ssl.SSLError) -> bool:
    """Whether the same connection would fail again: a certificate, or a version of TLS, is not accepted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    name = error.reason or ""
    return name in NOT_TLS or "ALERT" in name or "NO_PROTOCOLS" in name or "UNSUPPORTED" in name


def tls_failure(address: str, error: Exception) -> ApiError:
    """Return the error of a handshake. TlsFailed if another attempt would fail too, else NETWORK_EXCEPTION."""
    if isinstance(error, ssl.SSLError) and is_fatal(error):
        return TlsFailed(f"{address}: {describe_failure(error)}")
    why = getattr(error, "strerror", None) or reason(error)
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError):
        why = "the broker closed the connection during the TLS handshake"
        why = f"{why}; if the listener has no TLS, use another security.protocol"
    return ApiError(ErrorCode.NETWORK_EXCEPTION, f"{address}: {why}")


def describe_failure(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return describe_certificate(error)
    name = error.reason or "unknown reason"
    if name in NOT_TLS:
        return (
            "the listener does not use TLS; set security.protocol to PLAINTEXT or SASL_PLAINTEXT, "
            "or use the port of a TLS listener"
        )
    if name.endswith(NO_CERTIFICATE):
        return "the broker requires a client certificate; set ssl.keystore.location"
    words = name.removeprefix("TLSV1_").removeprefix("TLSV13_").removeprefix("SSLV3_")
    said = words.replace("_", " ").lower()
    if "CERTIFICATE" in name or "UNKNOWN_CA" in name:
        return (
            f"the broker refused the client certificate ({said}); set ssl.keystore.location "
            "to one that the broker trusts"
        )
    return f"the TLS handshake failed ({said}); check ssl.enabled.protocols and ssl.cipher.suites"


def describe_certificate(error: ssl.SSLCertVerificationError) -> str:
    said = error.verify_message.rstrip(".")
    if error.verify_code in HOST_MISMATCHES:
        return (
            f"the broker's certificate is for another host ({said}); connect with a name "
            "in the certificate, or correct the certificate"
        )
    if error.verify_code == EXPIRED:
        return "the broker's certificate has expired; renew it on the broker"
    if error.verify_code in UNTRUSTED:
        return (
            f"the broker's certificate is not trusted ({said}); set ssl.truststore.location "
            "to the certificate of its authority"
        )
    return f"the broker's certificate is not valid ({said}); correct it on the broker"
