"""Settings of TLS, logins, authorization and secured ZooKeeper connections.

A setting of TLS or of logins can have the prefix of a listener, and a JAAS line also that of a mechanism. The most
specific one applies:

    listener.name.external.scram-sha-256.sasl.jaas.config
    listener.name.external.sasl.jaas.config
    sasl.jaas.config

table.py explains the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.config.setting import Setting, Value
from barnabas.config.table import read_table

TABLE = """
# Listeners and authorization
control.plane.listener.name | string | null | any value
    Listener for requests of the controller, such as LeaderAndIsr; unset: the listener between brokers
max.connection.creation.rate | int | 2147483647 | at least 0 | cluster-wide
    Maximum number of new connections per second; with a listener prefix, of that listener
authorizer.class.name | string | "" | any value
    Kafka's AclAuthorizer, or a Python class as module:Class; empty: every request is allowed

# TLS
ssl.protocol | string | TLSv1.3 | any value | per-broker
    Ignored; see ssl.enabled.protocols
ssl.enabled.protocols | list | TLSv1.2,TLSv1.3 | any value | per-broker
    Allowed TLS versions: TLSv1.2 and TLSv1.3; older ones are ignored
ssl.cipher.suites | list | "" | any value | per-broker
    Allowed cipher suites, with Java's names; empty: the defaults of OpenSSL
ssl.client.auth | string | none | one of required, requested, none | per-broker
    Client certificates: required; requested, a client may have none; none, no client is asked
ssl.keystore.type | string | JKS | any value | per-broker
    PEM or PKCS12; also JKS, the default, because the content of the file decides
ssl.keystore.location | string | null | any value | per-broker
    File with the private key and its certificates, in PEM or PKCS#12
ssl.keystore.password | password | null | any value | per-broker
    Password of a PKCS#12 key store
ssl.keystore.key | password | null | any value | per-broker
    Private key in PEM, instead of a file
ssl.keystore.certificate.chain | password | null | any value | per-broker
    Certificates of ssl.keystore.key in PEM, the one of the key first
ssl.key.password | password | null | any value | per-broker
    Password of an encrypted private key in PEM
ssl.truststore.type | string | JKS | any value | per-broker
    PEM or PKCS12; also JKS, the default, because the content of the file decides
ssl.truststore.location | string | null | any value | per-broker
    File with the certificates of trusted authorities, in PEM or PKCS#12; unset: those of the system
ssl.truststore.password | password | null | any value | per-broker
    Password of a PKCS#12 trust store
ssl.truststore.certificates | password | null | any value | per-broker
    Certificates of trusted authorities in PEM, instead of a file
ssl.endpoint.identification.algorithm | string | https | any value | per-broker
    https: a broker verifies the host names of other brokers; empty: it does not
ssl.principal.mapping.rules | string | DEFAULT | any value
    Rules that map the subject of a client certificate to a user: RULE:pattern/replacement/, DEFAULT
ssl.allow.dn.changes | boolean | false | any value
    Allow a new certificate of a running broker to have another subject
ssl.allow.san.changes | boolean | false | any value
    Allow a new certificate of a running broker to lack alternative names of the current one

# Logins
sasl.enabled.mechanisms | list | GSSAPI | any value | per-broker
    SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
sasl.mechanism.inter.broker.protocol | string | GSSAPI | any value | per-broker
    SASL mechanism with which brokers log in to each other: PLAIN, SCRAM-SHA-256, … or OAUTHBEARER
sasl.jaas.config | password | null | any value | per-broker
    JAAS line: the users of PLAIN, and the user name and password of this broker at other brokers
sasl.server.max.receive.size | int | 524288 | any value
    Maximum size of a request before the client has logged in
sasl.oauthbearer.token.endpoint.url | string | null | any value
    OAuth server that issues the tokens of this broker for other brokers, or file:// URL of a token
sasl.oauthbearer.scope.claim.name | string | scope | any value
    Claim that contains the scope of a token
sasl.oauthbearer.sub.claim.name | string | sub | any value
    Claim that contains the subject of a token
sasl.oauthbearer.jwks.endpoint.url | string | null | any value
    Keys that verify OAuth tokens, a JSON Web Key Set: an https://, file:// or http:// URL
sasl.oauthbearer.jwks.endpoint.refresh.ms | long | 3600000 | any value
    Interval between refreshes of the keys that verify OAuth tokens
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | long | 100 | any value
    Initial backoff between requests for the keys that verify OAuth tokens
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | long | 10000 | any value
    Maximum backoff between requests for the keys that verify OAuth tokens
sasl.oauthbearer.clock.skew.seconds | int | 30 | any value
    Accepted clock difference between broker and token issuer
sasl.oauthbearer.expected.audience | list | null | any value
    Accepted audiences of a token
sasl.oauthbearer.expected.issuer | string | null | any value
    Accepted issuer of a token
connections.max.reauth.ms | long | 0 | any value
    A client must log in again after this time, on the same connection; 0: never
connection.failed.authentication.delay.ms | int | 100 | at least 0
    Delay of the response to a failed login, after which the connection is closed

# Delegation tokens
delegation.token.secret.key | password | null | any value
    Key of delegation tokens, the same on all brokers; unset: there are no tokens
delegation.token.master.key | password | null | any value
    Former name of delegation.token.secret.key
delegation.token.max.lifetime.ms | long | 604800000 | at least 1
    Maximum lifetime of a delegation token
delegation.token.expiry.time.ms | long | 86400000 | at least 1
    A delegation token must be renewed within this time
delegation.token.expiry.check.interval.ms | long | 3600000 | at least 1
    Interval between checks for expired delegation tokens

# ZooKeeper
zookeeper.set.acl | boolean | false | any value
    Create znodes with ACLs: only the identity of the brokers may change them or read passwords
zookeeper.clientCnxnSocket | string | null | any value
    Socket class of ZooKeeper's Java client; with TLS, it must be the Netty class or unset
zookeeper.ssl.client.enable | boolean | false | any value
    Connect to ZooKeeper over TLS
zookeeper.ssl.protocol | string | TLSv1.2 | any value
    TLS version for connections to ZooKeeper, unless zookeeper.ssl.enabled.protocols is set
zookeeper.ssl.enabled.protocols | list | null | any value
    Allowed TLS versions for connections to ZooKeeper; unset: zookeeper.ssl.protocol
zookeeper.ssl.cipher.suites | list | null | any value
    Allowed ciphers for connections to ZooKeeper
zookeeper.ssl.endpoint.identification.algorithm | string | HTTPS | any value
    HTTPS: ZooKeeper's certificate must contain its host name; empty: not checked
zookeeper.ssl.keystore.location | string | null | any value
    PEM or PKCS#12 file with the key and certificate that identify this broker to ZooKeeper
zookeeper.ssl.keystore.password | password | null | any value
    Password of the key store for ZooKeeper, and of its key
zookeeper.ssl.keystore.type | string | null | any value
    Format of the key store for ZooKeeper; the content decides
zookeeper.ssl.truststore.location | string | null | any value
    PEM or PKCS#12 file with the authorities of ZooKeeper's certificate; unset: those of the system
zookeeper.ssl.truststore.password | password | null | any value
    Password of the trust store for ZooKeeper
zookeeper.ssl.truststore.type | string | null | any value
    Format of the trust store for ZooKeeper; the content decides
barnabas.zookeeper.sasl.jaas.config | password | null | any value
    JAAS line of the login to ZooKeeper; unset: the section Client of the JAAS file in KAFKA_OPTS
"""

SECURITY_SETTINGS: dict[str, Setting] = read_table(TABLE)


def find_value(
    values: Mapping[str, Value], name: str, listener: str | None, mechanism: str | None = None
) -> Value:
    """Return the value of a setting for a listener, or for a mechanism of it. `values` are those that are set."""
    for each in candidate_names(name, listener, mechanism):
        if each in values:
            return values[each]
    return SECURITY_SETTINGS[name].default


def candidate_names(name: str, listener: str | None, mechanism: str | None) -> Iterator[str]:
    """Yield the names of a setting, the most specific one first.

    >>> list(candidate_names("sasl.jaas.config", "EXTERNAL", "PLAIN"))[0]
    'listener.name.external.plain.sasl.jaas.config'
    """
    if listener is not None:
        prefix = f"listener.name.{listener.lower()}."
        if mechanism is not None:
            yield f"{prefix}{mechanism.lower()}.{name}"
        yield prefix + name
    yield name
