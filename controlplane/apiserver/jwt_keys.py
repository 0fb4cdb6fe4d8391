"""Signing keys of an issuer, as a JWKS document publishes them.

Only public keys for signatures of the allowed algorithms are taken: a symmetric key, a private key, a short or an
oversized key is left out, as if it were not published. Oversized keys would make every check of a signature slow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.util import base64_to_int

from controlplane.model.errors import Unavailable

# The type of key that an algorithm needs. ES384 and ES512 take 0.5 ms a check, five times as long as these.
ALGORITHMS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    "ES256": "EC",
    "EdDSA": "OKP",
    "Ed25519": "OKP",
}
_CURVES = {"EC": "P-256", "OKP": "Ed25519"}
_RSA_BITS = range(2048, 4096 + 1)
# Base64 has 6 bits a character.
_MOST_MODULUS_CHARACTERS, _MOST_EXPONENT_CHARACTERS = 700, 6
_MOST_KEYS = 64
_MOST_KID = 256
_PRIVATE = ("d", "k")


class SigningKey(NamedTuple):
    """`thumbprint` names the key itself, whatever its kid. `alg` is the only allowed algorithm, '' for any."""

    key: Key
    alg: str
    thumbprint: str


class SigningKeys:
    def __init__(self, keys: dict[tuple[str, str], SigningKey]) -> None:
        """By kid and type of key."""
        self._keys = keys
        self.thumbprints = frozenset(key.thumbprint for key in keys.values())

    def find(self, kid: str, algorithm: str) -> SigningKey | None:
        """The key for a token with this head. Without a kid, the key is found only when the issuer has one key."""
        if not kid and len(self._keys) == 1:
            kid = next(iter(self._keys))[0]
        found = self._keys.get((kid, ALGORITHMS.get(algorithm, "")))
        return found if found is not None and found.alg in ("", algorithm) else None


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


def read_keys(content: bytes) -> SigningKeys:
    """The usable keys of a JWKS document; Unavailable for a document without a usable key."""
    try:
        document = msgspec.json.decode(content, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unavailable("the key set cannot be read") from None
    keys: dict[tuple[str, str], SigningKey] = {}
    for published in document.keys[:_MOST_KEYS]:
        key = _usable(published)
        if key is not None:
            kid = published.get("kid", "")
            keys.setdefault((kid, key.key.key_type), key)
    if not keys:
        raise Unavailable("the key set holds no usable key")
    return SigningKeys(keys)


def _usable(published: dict[str, Any]) -> SigningKey | None:
    kty, kid, alg = published.get("kty"), published.get("kid", ""), published.get("alg", "")
    if not isinstance(kid, str) or len(kid) > _MOST_KID or not isinstance(alg, str):
        return None
    if any(name in published for name in _PRIVATE):
        return None
    if published.get("use", "sig") != "sig" or (alg and (alg not in ALGORITHMS or ALGORITHMS[alg] != kty)):
        return None
    try:
        key = _imported(kty, published)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    return SigningKey(key, alg, key.thumbprint()) if key is not None else None


def _imported(kty: object, published: dict[str, Any]) -> Key | None:
    if kty == "RSA":
        modulus, exponent = published["n"], published["e"]
        # Sizes come first: an import is slow for huge numbers.
        if len(modulus) > _MOST_MODULUS_CHARACTERS or len(exponent) > _MOST_EXPONENT_CHARACTERS:
            return None
        if base64_to_int(modulus).bit_length() not in _RSA_BITS:
            return None
        return RSAKey.import_key({"kty": "RSA", "n": modulus, "e": exponent})
    if kty in _CURVES and published["crv"] == _CURVES[str(kty)]:
        if kty == "EC":
            return ECKey.import_key({"kty": "EC", "crv": "P-256", "x": published["x"], "y": published["y"]})
        return OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": published["x"]})
    return None
