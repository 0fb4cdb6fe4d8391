"""JWTs of an issuer: the checks of their head, their signature and their claims.

Pure: the keys of the issuer and the time are given. Each refusal is an Unauthenticated with the broken rule, and never
holds a part of the token. The order of the checks bounds the work for junk: size, head, key, then the signature, and
the claims last. A key that the token itself carries or points at is never used.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from joserfc import jws
from joserfc.errors import JoseError

from controlplane.apiserver.jwt_keys import ALGORITHMS, SigningKey
from controlplane.model import texts
from controlplane.model.bounds import MAX_LINE
from controlplane.model.errors import Unauthenticated
from controlplane.model.times import FIRST, LAST

# gRPC takes 8 KiB of metadata, and there is more in it than the token.
MOST_CHARACTERS = 7500
MOST_HEAD_CHARACTERS = 680
MOST_GROUPS = 200
SKEW = timedelta(seconds=60)
_KEYS_IN_HEAD = ("jwk", "jku", "x5u", "x5c")
_TYPES = ("", "jwt", "at+jwt", "application/at+jwt")
_PARTS = 3


class IssuerRules(msgspec.Struct, frozen=True, kw_only=True):
    """What tokens of an issuer must say. `prefix` is put before every name and group of the issuer."""

    issuer: str
    audience: str
    name_claim: str = "sub"
    groups_claim: str = "groups"
    prefix: str = "oidc:"


class JwtHead(NamedTuple):
    algorithm: str
    kid: str


class JwtIdentity(NamedTuple):
    name: str
    groups: tuple[str, ...]
    expires: datetime


def looks_like_jwt(text: str) -> bool:
    """Whether the text has parts, as no token of the plane has."""
    return "." in text


def read_head(text: str) -> JwtHead:
    """The head, which nobody has vouched for yet."""
    if len(text) > MOST_CHARACTERS:
        raise refused(f"is longer than {MOST_CHARACTERS} characters")
    parts = text.split(".")
    if len(parts) != _PARTS or not text.isascii() or len(parts[0]) > MOST_HEAD_CHARACTERS:
        raise refused("does not have three parts, the first of them a short head")
    head = _object_in(parts[0], "head")
    if any(name in head for name in _KEYS_IN_HEAD):
        raise refused(f"brings a key of its own ({', '.join(_KEYS_IN_HEAD)})")
    if "crit" in head:
        raise refused("asks for extensions (crit), and none is known")
    algorithm, kid, kind = head.get("alg"), head.get("kid", ""), head.get("typ", "")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise refused(f"is signed with an algorithm (alg) other than {', '.join(ALGORITHMS)}")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise refused("has a type (typ) other than JWT and at+jwt")
    if not isinstance(kid, str):
        raise refused("names its key (kid) by something other than a text")
    return JwtHead(algorithm, kid)


def check_signature(text: str, head: JwtHead, key: SigningKey) -> dict[str, Any]:
    """The claims that the issuer signed."""
    registry = _OneAlgorithm(algorithms=[head.algorithm], strict_check_header=False)
    try:
        signed = jws.deserialize_compact(text, key.key, registry=registry)
    except (JoseError, ValueError, TypeError, KeyError, RecursionError):
        raise refused("has a signature that is not its issuer's") from None
    return _decoded(signed.payload, "claims")


def check_claims(claims: dict[str, Any], rules: IssuerRules, now: datetime) -> JwtIdentity:
    """The bearer of a token whose signature is good. Clocks of issuer and replica may differ by `SKEW`."""
    if claims.get("iss") != rules.issuer:
        raise refused("is of another issuer (iss)")
    audience = claims.get("aud")
    if audience != rules.audience and not (isinstance(audience, list) and rules.audience in audience):
        raise refused("is not meant for this control plane (aud)")
    expires = _moment(claims, "exp")
    if expires is None:
        raise refused("has no end (exp)")
    check_end(expires, now)
    begins = _moment(claims, "nbf")
    if begins is not None and now < begins - SKEW:
        raise refused("is not valid yet (nbf)")
    return JwtIdentity(_name_in(claims, rules), _groups_in(claims, rules), expires)


def check_end(expires: datetime, now: datetime) -> None:
    if now >= expires + SKEW:
        raise Unauthenticated("the JWT has expired (exp)")


def refused(rule: str) -> Unauthenticated:
    return Unauthenticated(f"the JWT {rule}")


class _OneAlgorithm(jws.JWSRegistry):
    """Without the warning that `EdDSA` is an old name: issuers use the name, and a warning a call is no help."""

    def get_alg(self, name: str) -> Any:
        return self.algorithms[name] if self.allowed and name in self.allowed else super().get_alg(name)


def _object_in(part: str, what: str) -> dict[str, Any]:
    try:
        content = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise refused(f"has a {what} that is no base64url") from None
    return _decoded(content, what)


def _decoded(content: bytes, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise refused(f"has a {what} that is no JSON object") from None


def _moment(claims: dict[str, Any], name: str) -> datetime | None:
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise refused(f"has a time that is no number ({name})")
    if not 0 <= seconds < (LAST - FIRST - SKEW).total_seconds():
        raise refused(f"has a time outside of the years 1970 to 2199 ({name})")
    return datetime.fromtimestamp(seconds, UTC)


def _name_in(claims: dict[str, Any], rules: IssuerRules) -> str:
    name = claims.get(rules.name_claim)
    if not isinstance(name, str) or not name:
        raise refused(f"has no name for its subject ({rules.name_claim})")
    if rules.name_claim == "email" and claims.get("email_verified") is not True:
        raise refused("has an address that its issuer has not verified (email_verified)")
    return _line(rules.prefix + name, rules.name_claim)


def _groups_in(claims: dict[str, Any], rules: IssuerRules) -> tuple[str, ...]:
    given = claims.get(rules.groups_claim, [])
    groups = [given] if isinstance(given, str) else given
    if not isinstance(groups, list) or not all(isinstance(group, str) and group for group in groups):
        raise refused(f"has groups that are no list of names ({rules.groups_claim})")
    if len(groups) > MOST_GROUPS:
        raise refused(f"has more than {MOST_GROUPS} groups ({rules.groups_claim})")
    return tuple(sorted({_line(rules.prefix + group, rules.groups_claim) for group in groups}))


def _line(text: str, claim: str) -> str:
    if len(text) > MAX_LINE or not text.isprintable() or texts.steers(text):
        raise refused(f"has a name that is no line of at most {MAX_LINE} printable characters ({claim})")
    return text
