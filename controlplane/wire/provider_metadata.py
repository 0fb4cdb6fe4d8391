"""The discovery document of an OIDC provider: the addresses that a replica and `cpctl login` need."""

from __future__ import annotations

import msgspec

from controlplane.model.errors import Unavailable
from controlplane.wire.bounded_http import BoundedHttp

_OK = 200
_PATH = "/.well-known/openid-configuration"


class ProviderMetadata(msgspec.Struct, frozen=True):
    issuer: str
    jwks_uri: str = ""
    token_endpoint: str = ""
    device_authorization_endpoint: str = ""
    scopes_supported: tuple[str, ...] = ()


async def discover(http: BoundedHttp, issuer: str) -> ProviderMetadata:
    """Unavailable when the provider gives no document, or the document of another issuer."""
    answer = await http.get(issuer.rstrip("/") + _PATH)
    if answer.status != _OK:
        raise Unavailable(f"the discovery document is answered with status {answer.status}")
    try:
        metadata = msgspec.json.decode(answer.body, type=ProviderMetadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unavailable("the discovery document cannot be read") from None
    if metadata.issuer != issuer:
        raise Unavailable("the discovery document is that of another issuer")
    return metadata
