"""Errors of TLS in plain words, with the setting that solves them. Servers and clients use the same words."""

from __future__ import annotations

import ssl

NOT_TLS = "the peer does not use TLS; its listener may be PLAINTEXT or SASL_PLAINTEXT"

CLIENT_WITHOUT_TLS = "the client does not use TLS; set its security.protocol to SSL or SASL_SSL"
CLOSED_EARLY = "the peer closed the connection before the handshake"

MEANINGS = {
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust the authority of this certificate (its ssl.truststore.location)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer rejected this certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer rejected this certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the peer rejected this certificate: it has expired",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the peer does not support this certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the peer accepts no common TLS version, cipher suite or certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer does not support this TLS version (ssl.enabled.protocols)",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a client certificate (ssl.keystore.location)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client presented no certificate, but ssl.client.auth is required",
    "UNSUPPORTED_PROTOCOL": "the peer uses a TLS version that is not allowed (ssl.enabled.protocols)",
    "UNSUPPORTED_PROTOCOL_VERSION": "the peer uses a TLS version that is not allowed (ssl.enabled.protocols)",
    "NO_SHARED_CIPHER": "no common cipher suite (ssl.cipher.suites)",
    "WRONG_VERSION_NUMBER": NOT_TLS,
    "HTTP_REQUEST": "the peer sent an HTTP request",
    "UNEXPECTED_EOF_WHILE_READING": "the peer closed the connection",
}


def describe_tls_error(error: ssl.SSLError) -> str:
    """Return the reason of a failed handshake or of a failed read."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return describe_invalid_certificate(error)
    meaning = MEANINGS.get(error.reason or "")
    if meaning is not None:
        return meaning
    return (error.reason or str(error)).replace("_", " ").lower()


def describe_invalid_certificate(error: ssl.SSLCertVerificationError) -> str:
    message = error.verify_message.rstrip(".")
    why = f"the certificate of the peer is not valid: {message[:1].lower()}{message[1:]}"
    if "hostname mismatch" in message.lower() or "ip address mismatch" in message.lower():
        return f"{why}; connect by a name in the certificate, or issue one with this name"
    if "issuer" in message or "self-signed" in message or "self signed" in message:
        return f"{why}; the trust store needs its authority (ssl.truststore.location)"
    return why
