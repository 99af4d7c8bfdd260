r"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the password is never sent, and both sides prove that they
know it.

    client                                              server
    n,,n=alice,r=<client nonce>                    ─►
                                                   ◄─   r=<both nonces>,s=<salt>,i=<iterations>
    c=biws,r=<both nonces>,p=<proof>               ─►
                                                   ◄─   v=<server signature>

The server keeps a ScramCredential, which does not contain the password. A login with a delegation token has the
extension `tokenauth=true` in the first message. Channel binding is not supported, as in Kafka.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from hmac import compare_digest
from hmac import digest as hmac_digest
from random import Random
from typing import NamedTuple

from barnabas.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, SaslFailed
from barnabas.security.sasl.saslprep import is_portable

HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384
"""Largest number of iterations of a stored credential, as in Kafka."""
CLIENT_ITERATIONS_MAX = 1_000_000
"""A server that asks for more would keep the client busy for seconds."""
NONCE_BITS = 192
SALT_BITS = 130  # as in Kafka's clients
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
MESSAGE_BYTES_MAX = 16 * 1024
KEYS = ("salt", "server_key", "stored_key")
TOKEN_EXTENSION = "tokenauth"

VALUE = r"[^\0,]"
NAME = r"(?:[^\0,=]|=2C|=3D)+"
NONCE = r"[\x21-\x2b\x2d-\x7e]+"
BASE64 = r"[A-Za-z0-9+/]+=*"
FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization>{NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{NAME}),r=(?P<nonce>{NONCE})(?P<extensions>(?:,[A-Za-z]+={VALUE}*)*))\Z"
)
SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{NONCE}),s=(?P<salt>{BASE64}),i=(?P<iterations>[0-9]{{1,9}})"
)
FINAL = re.compile(
    rf"(?P<unproved>c=(?P<binding>{BASE64}),r=(?P<nonce>{NONCE})(?:,[A-Za-z]={VALUE}*)*),p=(?P<proof>{BASE64})\Z"
)


class ScramCredential(NamedTuple):
    """The stored form of a password. Whoever has it can impersonate the server, so it is a secret too."""

    salt: bytes
    server_key: bytes
    stored_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


# ---- hashes ---------------------------------------------------------------------------------------------------


def salt_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Hash the password in many iterations. Takes milliseconds: call it in a thread if the caller is a loop."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(
    mechanism: str, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    name = HASHES[mechanism]
    client_key = hmac_digest(salted_password, b"Client Key", name)
    server_key = hmac_digest(salted_password, b"Server Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramCredential(bytes(salt), server_key, stored_key, iterations)


def create_credential(
    mechanism: str, password: str, random: Random, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    """Create the credential of a new password. Raises ValueError if the password cannot be used.

    `random` must be secure. Takes milliseconds.
    """
    check_new_password(password)
    check_iterations(iterations)
    salt = create_salt(random)
    salted = salt_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def format_credential(credential: ScramCredential) -> str:
    """Return the text of a credential in the registry, as Kafka writes it."""
    salt, server_key, stored_key = (base64.b64encode(each).decode() for each in credential[:3])
    keys = f"stored_key={stored_key},server_key={server_key}"
    return f"salt={salt},{keys},iterations={credential.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """Parse the text of a credential in the registry. Raises ValueError, which does not quote it."""
    fields = dict(each.partition("=")[::2] for each in text.split(","))
    try:
        if len(fields) != 4:
            raise ValueError
        salt, server_key, stored_key = (
            base64.b64decode(fields[key], validate=True) for key in KEYS
        )
        return ScramCredential(salt, server_key, stored_key, int(fields["iterations"]))
    except (KeyError, ValueError):
        raise ValueError(
            "the SCRAM credential is not of the form salt=…,stored_key=…,server_key=…,iterations=…"
        ) from None


def check_new_password(password: str) -> None:
    """Raise ValueError for an empty password, and for one with characters that clients encode differently."""
    if not password:
        raise ValueError("the password is empty")
    if not is_portable(password):
        raise ValueError(
            "the password has characters that clients encode differently; use letters, digits and punctuation"
        )


def check_iterations(iterations: int) -> None:
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(
            f"{iterations} iterations are not allowed: from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )


def create_salt(random: Random) -> bytes:
    return in_base_36(random.getrandbits(SALT_BITS)).encode()


def create_nonce(random: Random) -> str:
    return in_base_36(random.getrandbits(NONCE_BITS))


def in_base_36(number: int) -> str:
    """
    >>> in_base_36(35), in_base_36(36)
    ('z', '10')
    """
    digits = []
    while number:
        number, digit = divmod(number, 36)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits)) or "0"


def xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


# ---- names ----------------------------------------------------------------------------------------------------


def encode_name(name: str) -> str:
    """
    >>> encode_name("a=b,c")
    'a=3Db=2Cc'
    """
    return name.replace("=", "=3D").replace(",", "=2C")


def decode_name(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")


def decode_message(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise SaslFailed(f"a SCRAM message has {len(message)} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslFailed("a SCRAM message is not UTF-8") from None


def decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslFailed("a SCRAM message has invalid Base64") from None


# ---- client ---------------------------------------------------------------------------------------------------


class ScramClient:
    """Implements SaslClient. With `is_token`, user and password are the id and the HMAC of a delegation token."""

    def __init__(
        self, mechanism: str, user: str, password: str, random: Random, *, is_token: bool = False
    ) -> None:
        if mechanism not in HASHES:
            raise SaslFailed(f"{mechanism} is not a SCRAM mechanism")
        if not user or not password or "\0" in user:
            raise SaslFailed("the user name or the password is empty")
        self.mechanism = mechanism
        self.password = password
        self.nonce = create_nonce(random)
        extension = f",{TOKEN_EXTENSION}=true" if is_token else ""
        self.first = f"n={encode_name(user)},r={self.nonce}{extension}"
        self.expected_signature: bytes | None = None
        self.is_complete = False

    def start(self) -> bytes:
        return f"n,,{self.first}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        text = decode_message(challenge)
        if self.is_complete:
            raise SaslFailed("the broker sent a message after the end of the login")
        if self.expected_signature is None:
            return self.prove(text)
        self.verify(text, self.expected_signature)
        return None

    def prove(self, text: str) -> bytes:
        found = SERVER_FIRST.match(text)
        if found is None:
            raise SaslFailed("the broker sent an invalid SCRAM message")
        nonce, iterations = found["nonce"], int(found["iterations"])
        if not nonce.startswith(self.nonce) or nonce == self.nonce:
            raise SaslFailed("the broker sent a wrong SCRAM nonce")
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            why = f"from {ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX} are allowed"
            raise SaslFailed(f"the broker requires {iterations} SCRAM iterations; {why}")
        name = HASHES[self.mechanism]
        salted = salt_password(
            self.mechanism, self.password, decode_base64(found["salt"]), iterations
        )
        client_key = hmac_digest(salted, b"Client Key", name)
        unproved = f"c=biws,r={nonce}"
        signed = f"{self.first},{text},{unproved}".encode()
        signature = hmac_digest(hashlib.new(name, client_key).digest(), signed, name)
        server_key = hmac_digest(salted, b"Server Key", name)
        self.expected_signature = hmac_digest(server_key, signed, name)
        proof = base64.b64encode(xor(client_key, signature)).decode()
        return f"{unproved},p={proof}".encode()

    def verify(self, text: str, expected: bytes) -> None:
        if text.startswith("e="):
            raise SaslFailed("the broker rejected the SCRAM login")
        if not text.startswith("v=") or not compare_digest(decode_base64(text[2:]), expected):
            raise SaslFailed("the broker could not prove that it knows the password")
        self.is_complete = True


# ---- server ---------------------------------------------------------------------------------------------------


class ScramFirst(NamedTuple):
    """The first message of a client. With `is_token`, the user name is the id of a delegation token."""

    user: str
    is_token: bool
    header: str
    bare: str
    nonce: str


def parse_first(message: bytes) -> ScramFirst:
    """Parse the first message of a client. Raises SaslFailed."""
    found = FIRST.match(decode_message(message))
    if found is None:
        raise SaslFailed("invalid first SCRAM message")
    user = decode_name(found["user"])
    if found["authorization"] is not None and decode_name(found["authorization"]) != user:
        raise SaslFailed("the authorization id differs from the user name")
    extensions = found["extensions"].split(",")
    is_token = any(each.lower() == f"{TOKEN_EXTENSION}=true" for each in extensions)
    return ScramFirst(user, is_token, found["header"], found["bare"], found["nonce"])


class ScramServer:
    """The server half after the first message. `credential` may be that of no user: then every proof is wrong."""

    def __init__(
        self, mechanism: str, first: ScramFirst, credential: ScramCredential, random: Random
    ) -> None:
        self.name = HASHES[mechanism]
        self.first = first
        self.credential = credential
        self.nonce = first.nonce + create_nonce(random)

    def challenge(self) -> bytes:
        salt = base64.b64encode(self.credential.salt).decode()
        return f"r={self.nonce},s={salt},i={self.credential.iterations}".encode()

    def finish(self, message: bytes) -> bytes:
        """Check the proof in the last message of the client. Returns the answer. Raises SaslFailed."""
        found = FINAL.match(decode_message(message))
        if found is None:
            raise SaslFailed("invalid last SCRAM message")
        # librdkafka before 2.6.1 repeats the nonce of the client. Kafka 3.9 accepts it too.
        if found["nonce"] not in (self.nonce, self.first.nonce + self.nonce):
            raise SaslFailed("wrong SCRAM nonce")
        if decode_base64(found["binding"]) != self.first.header.encode():
            raise SaslFailed("wrong SCRAM channel binding")
        proof = decode_base64(found["proof"])
        signed = f"{self.first.bare},{self.challenge().decode()},{found['unproved']}".encode()
        signature = hmac_digest(self.credential.stored_key, signed, self.name)
        if len(proof) != len(signature):
            raise SaslFailed("wrong password or unknown user")
        stored_key = hashlib.new(self.name, xor(proof, signature)).digest()
        if not compare_digest(stored_key, self.credential.stored_key):
            raise SaslFailed("wrong password or unknown user")
        answer = hmac_digest(self.credential.server_key, signed, self.name)
        return b"v=" + base64.b64encode(answer)


def create_fake_credential(
    mechanism: str, user: str, secret: bytes, iterations: int
) -> ScramCredential:
    """Return the credential for the login of an unknown user. No password matches it.

    The salt is the same in each login, so that an unknown user looks like one with a wrong password. `secret` must not
    be known to clients.
    """
    seed = hmac_digest(secret, f"{mechanism}/{user}".encode(), "sha512")
    salt = in_base_36(int.from_bytes(seed) >> (len(seed) * 8 - SALT_BITS)).encode()
    size = hashlib.new(HASHES[mechanism]).digest_size
    key = hmac_digest(secret, seed, "sha512")[:size]
    return ScramCredential(salt, key, key, iterations)
