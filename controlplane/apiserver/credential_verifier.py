"""The port by which the access book takes credentials of others: an identity that an issuer outside has proved."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class ProvenIdentity(NamedTuple):
    """The bearer of a foreign credential. Roles come from bindings alone, never from the credential.

    `name` and `groups` begin with the prefix of the issuer, so no local name is among them. `via` names the credential
    without showing it. `expires` is a time stamp.
    """

    name: str
    groups: tuple[str, ...]
    via: str
    expires: str


class CredentialVerifier(Protocol):
    # Called when credentials that were good may no longer be.
    changed: Callable[[], None]

    def recognises(self, text: str) -> bool:
        """Whether the text has the shape of such a credential; costs next to nothing."""
        ...

    async def learn(self, text: str) -> None:
        """Gets ready to judge the text, within a bounded time: keys of the issuer may have to be read first."""
        ...

    def proven(self, text: str) -> ProvenIdentity:
        """The bearer as of now. Unauthenticated, with the rule, for a credential that is not good."""
        ...
