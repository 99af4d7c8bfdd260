"""Names of cipher suites: Java's names, as in ssl.cipher.suites, and those of OpenSSL."""

from __future__ import annotations

TLS_1_3_PREFIXES = ("TLS_AES_", "TLS_CHACHA20_")

CIPHERS = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_CCM": "AES128-CCM",
    "AES_256_CCM": "AES256-CCM",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
}
KEY_EXCHANGES = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "RSA": "",
}


def is_tls_1_3(suite: str) -> bool:
    """Return whether a suite belongs to TLS 1.3.

    >>> is_tls_1_3("TLS_AES_256_GCM_SHA384"), is_tls_1_3("TLS_RSA_WITH_AES_256_GCM_SHA384")
    (True, False)
    """
    return suite.startswith(TLS_1_3_PREFIXES)


def to_openssl_name(suite: str) -> str | None:
    """Return OpenSSL's name of a suite of TLS 1.2, or None if it is unknown. OpenSSL's names are accepted too.

    >>> to_openssl_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    'ECDHE-RSA-AES128-GCM-SHA256'
    """
    if "_" not in suite:
        return suite
    exchange, _, cipher = suite.partition("_WITH_")
    exchange = exchange.removeprefix("TLS_").removeprefix("SSL_")
    if exchange not in KEY_EXCHANGES or cipher not in CIPHERS:
        return None
    return KEY_EXCHANGES[exchange] + CIPHERS[cipher]
