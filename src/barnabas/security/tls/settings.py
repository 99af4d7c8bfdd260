"""The `ssl.*` settings of one listener or of one client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from barnabas.errors import ConfigError

STORE_TYPES = ("JKS", "PKCS12", "PEM")
CLIENT_AUTH = ("required", "requested", "none")
HTTPS = "https"

FindValue = Callable[[str], object]


class TlsSettings(Struct, frozen=True, kw_only=True):
    """Settings of TLS. A field is named like its setting, without `ssl.` and with `_` for `.`."""

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: str | None = None
    keystore_key: str | None = None
    keystore_certificate_chain: str | None = None
    key_password: str | None = None
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: str | None = None
    truststore_certificates: str | None = None
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    client_auth: str = "none"
    endpoint_identification_algorithm: str = HTTPS
    prefix: str = ""
    """Prefix of the names in error messages, such as `zookeeper.`."""

    def __repr__(self) -> str:
        """Return the files only: other fields have secrets."""
        return (
            f"TlsSettings(keystore={self.keystore_location}, truststore={self.truststore_location})"
        )

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("keystore", self.keystore_location), ("truststore", self.truststore_location)]

    def name(self, field: str) -> str:
        """Return the name of a setting, for messages.

        >>> TlsSettings(prefix="zookeeper.").name("keystore_type")
        'zookeeper.ssl.keystore.type'
        """
        return f"{self.prefix}ssl.{field.replace('_', '.')}"

    def error(self, field: str, why: str) -> ConfigError:
        return ConfigError(self.name(field), why)

    @property
    def has_key(self) -> bool:
        return bool(self.keystore_location or self.keystore_key)

    @property
    def has_trust(self) -> bool:
        return bool(self.truststore_location or self.truststore_certificates)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the key store and the trust store."""
        paths = (self.keystore_location, self.truststore_location)
        return tuple(dict.fromkeys(path for path in paths if path))


def read_tls_settings(find_value: FindValue, prefix: str = "") -> TlsSettings:
    """Read all settings. `find_value` gets a name such as `ssl.keystore.type` and returns its value, or None.

    Lists may be tuples, or text with commas. Raises ConfigError if values are invalid or contradict each other.
    """
    values: dict[str, object] = {}
    for field in TlsSettings.__struct_fields__:
        value = None if field == "prefix" else find_value("ssl." + field.replace("_", "."))
        if value is None:
            continue
        if field in ("enabled_protocols", "cipher_suites"):
            values[field] = to_list(value)
        else:
            values[field] = str(value)
    if not values.get("enabled_protocols"):
        values.pop("enabled_protocols", None)
    settings = TlsSettings(**values, prefix=prefix)  # type: ignore[arg-type]
    check_settings(settings)
    return settings


def to_list(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    assert isinstance(parts, tuple | list)
    return tuple(text for part in parts if (text := str(part).strip()))


def check_settings(settings: TlsSettings) -> None:
    """Validate combinations, as Kafka does. Raises ConfigError."""
    for field in ("keystore_type", "truststore_type"):
        kind = getattr(settings, field)
        if kind.upper() not in STORE_TYPES:
            raise settings.error(field, f"{kind!r} is not supported; use PEM or PKCS12")
    if settings.keystore_key and settings.keystore_location:
        other = settings.name("keystore_location")
        raise settings.error("keystore_key", f"cannot be set together with {other}")
    if settings.keystore_key and not settings.keystore_certificate_chain:
        other = settings.name("keystore_certificate_chain")
        raise settings.error("keystore_key", f"needs {other}")
    if settings.keystore_certificate_chain and not settings.keystore_key:
        other = settings.name("keystore_key")
        raise settings.error("keystore_certificate_chain", f"needs {other}")
    if settings.truststore_certificates and settings.truststore_location:
        other = settings.name("truststore_location")
        raise settings.error("truststore_certificates", f"cannot be set together with {other}")
    if settings.client_auth not in CLIENT_AUTH:
        allowed = ", ".join(CLIENT_AUTH)
        raise settings.error("client_auth", f"{settings.client_auth!r} is not one of {allowed}")
    algorithm = settings.endpoint_identification_algorithm
    if algorithm.lower() not in ("", HTTPS):
        why = f"{algorithm!r} is not supported; use https, or an empty value for no verification"
        raise settings.error("endpoint_identification_algorithm", why)
