"""The verifier of an issuer's JWTs: a CredentialVerifier over the keys of the issuer.

A token is checked once; the result is kept, bounded in number, for as long as the issuer publishes the key and until
the token ends. A result is found by the digest of the token, so no token is kept. A token counts for a minute beyond
its end, because clocks differ; streams are cut at the end itself, so that their clients come back with a new token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from controlplane.aio.clock import Clock
from controlplane.aio.lru import Lru
from controlplane.apiserver import jwt_tokens
from controlplane.apiserver.credential_verifier import ProvenIdentity
from controlplane.apiserver.issuer_keys import IssuerKeys
from controlplane.apiserver.jwt_tokens import IssuerRules, JwtIdentity
from controlplane.model import times
from controlplane.model.errors import Unavailable

_MOST_KEPT = 10_000
_VIA_CHARACTERS = 16


class _Checked(NamedTuple):
    identity: JwtIdentity
    thumbprint: str


class JwtVerifier:
    def __init__(self, rules: IssuerRules, keys: IssuerKeys, clock: Clock) -> None:
        self._rules = rules
        self._keys = keys
        self._clock = clock
        self._checked: Lru[bytes, _Checked] = Lru(_MOST_KEPT)
        self.changed: Callable[[], None] = lambda: None
        keys.changed = lambda: self.changed()

    async def run(self) -> None:
        """Follows the keys of the issuer."""
        await self._keys.run()

    def recognises(self, text: str) -> bool:
        return jwt_tokens.looks_like_jwt(text)

    async def learn(self, text: str) -> None:
        """Waits for the keys of the issuer when the key of the token is not among them."""
        head = jwt_tokens.read_head(text)
        keys = self._keys.keys
        if keys is None or keys.find(head.kid, head.algorithm) is None:
            await self._keys.look()

    def proven(self, text: str) -> ProvenIdentity:
        """Unavailable as long as no keys of the issuer were ever read."""
        head = jwt_tokens.read_head(text)
        keys, now = self._keys.keys, self._clock.wall()
        if keys is None:
            raise Unavailable("the keys of the issuer are not known yet; ask another replica, or later")
        digest = hashlib.sha256(text.encode()).digest()
        checked = self._checked.get(digest)
        if checked is None or checked.thumbprint not in keys.thumbprints:
            key = keys.find(head.kid, head.algorithm)
            if key is None:
                raise jwt_tokens.refused("is signed with a key (kid) that its issuer does not publish")
            claims = jwt_tokens.check_signature(text, head, key)
            checked = _Checked(jwt_tokens.check_claims(claims, self._rules, now), key.thumbprint)
            self._checked.put(digest, checked)
        identity = checked.identity
        jwt_tokens.check_end(identity.expires, now)
        end = identity.expires if now < identity.expires else identity.expires + jwt_tokens.SKEW
        via = f"jwt:{digest.hex()[:_VIA_CHARACTERS]}"
        return ProvenIdentity(identity.name, identity.groups, via, times.show(end))
