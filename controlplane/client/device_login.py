"""Logins at an OIDC provider by the device flow (RFC 8628), and their renewal.

A person opens a page of the provider in any browser and types a short code, while the program asks the provider again
and again whether the person has agreed. The program sees no password. Answers of the provider are bounded and believed
no further than needed: the plane checks the token.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from controlplane.aio.clock import Clock
from controlplane.client.login_records import DevicePage, LoginClient, LoginTokens
from controlplane.model import texts, times, web_url
from controlplane.model.errors import Forbidden, Invalid, Unauthenticated, Unavailable
from controlplane.model.times import FIRST, LAST
from controlplane.wire.bounded_http import BoundedHttp, HttpAnswer
from controlplane.wire.provider_metadata import ProviderMetadata, discover

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_OK = 200
_DEFAULT_INTERVAL_SECONDS = 5.0
_MOST_INTERVAL_SECONDS = 60.0
_SLOWER_SECONDS = 5.0
_MOST_WAIT_SECONDS = 1800.0
_MOST_SHOWN = 500
_MOST_TOKEN = 16_000
# Asked for as far as the provider knows them; `offline_access` brings a token for renewals.
_SCOPES = ("openid", "profile", "email", "groups", "offline_access")
_LEAST_SCOPES = ("openid", "offline_access")


class _Device(msgspec.Struct):
    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str = ""
    expires_in: float = 300.0
    interval: float = _DEFAULT_INTERVAL_SECONDS


class _Tokens(msgspec.Struct):
    id_token: str = ""
    access_token: str = ""
    refresh_token: str = ""
    expires_in: float = 0.0
    error: str = ""


class DeviceLogin:
    """Invalid when the CA file of the provider cannot be read."""

    def __init__(self, client: LoginClient, clock: Clock) -> None:
        web_url.check(client.issuer, "issuer")
        self._client = client
        self._clock = clock
        self._http = BoundedHttp(client.issuer, client.ca_file)

    async def log_in(self, show: Callable[[DevicePage], None]) -> LoginTokens:
        """Waits until the person agrees. Forbidden when the person or the provider does not, or not in time."""
        metadata = await discover(self._http, self._client.issuer)
        if not metadata.device_authorization_endpoint or not metadata.token_endpoint:
            raise Invalid("issuer", "its provider offers no device flow (device_authorization_endpoint)")
        device = await self._begin(metadata)
        show(_page(device))
        give_up = self._clock.monotonic() + min(max(device.expires_in, 1.0), _MOST_WAIT_SECONDS)
        interval = min(max(device.interval, 1.0), _MOST_INTERVAL_SECONDS)
        while True:
            await self._clock.sleep(interval)
            if self._clock.monotonic() >= give_up:
                raise Forbidden("the login was not confirmed in time; try again")
            form = {"grant_type": DEVICE_GRANT, "device_code": device.device_code}
            try:
                answer = await self._tokens(metadata, form)
            except Unavailable:
                # The provider may come back before the code ends.
                interval = min(interval * 2, _MOST_INTERVAL_SECONDS)
                continue
            if not answer.error:
                return self._taken(answer)
            if answer.error == "slow_down":
                interval = min(interval + _SLOWER_SECONDS, _MOST_INTERVAL_SECONDS)
            elif answer.error != "authorization_pending":
                raise Forbidden(f"the provider refused the login: {_shown(answer.error)}")

    async def renew(self, tokens: LoginTokens) -> LoginTokens:
        """New tokens for old ones; Unauthenticated when the provider wants a new login."""
        if not tokens.refresh:
            raise Unauthenticated("the provider gave no token for renewals")
        metadata = await discover(self._http, self._client.issuer)
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh}
        answer = await self._tokens(metadata, form)
        if answer.error:
            raise Unauthenticated(f"the provider refused to renew the login: {_shown(answer.error)}")
        # A provider that gives no new refresh token lets the old one be used again.
        renewed = self._taken(answer)
        return renewed if renewed.refresh else msgspec.structs.replace(renewed, refresh=tokens.refresh)

    async def _begin(self, metadata: ProviderMetadata) -> _Device:
        form = {"scope": self._client.scope or _scope(metadata)}
        answer = await self._http.post(metadata.device_authorization_endpoint, self._form(form))
        if answer.status != _OK:
            error = _Tokens() if answer.status >= 500 else _error_in(answer)
            raise Forbidden(f"the provider refused to begin a login: {_shown(error.error or str(answer.status))}")
        try:
            return msgspec.json.decode(answer.body, type=_Device)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unavailable("the provider's answer to the device request cannot be read") from None

    async def _tokens(self, metadata: ProviderMetadata, form: dict[str, str]) -> _Tokens:
        """Unavailable when the provider failed to answer, an answer with `error` when it refused."""
        answer = await self._http.post(metadata.token_endpoint, self._form(form))
        if answer.status != _OK:
            refusal = _error_in(answer)
            if answer.status >= 500 or not refusal.error:
                raise Unavailable(f"the provider answered the token request with status {answer.status}")
            return refusal
        try:
            return msgspec.json.decode(answer.body, type=_Tokens)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unavailable("the provider's answer to the token request cannot be read") from None

    def _form(self, form: dict[str, str]) -> dict[str, str]:
        secret = {"client_secret": self._client.client_secret} if self._client.client_secret else {}
        return {"client_id": self._client.client_id, **secret, **form}

    def _taken(self, answer: _Tokens) -> LoginTokens:
        token = answer.access_token if self._client.access_token else answer.id_token or answer.access_token
        if not token or len(token) > _MOST_TOKEN or not token.isascii() or not token.isprintable():
            raise Forbidden("the provider gave no token that can be sent")
        return LoginTokens(token=token, refresh=answer.refresh_token, expires=self._end_of(token, answer))

    def _end_of(self, token: str, answer: _Tokens) -> str:
        """By the token itself where it is a JWT, else by the provider's word."""
        end = _exp_in(token)
        if end is None and 0 < answer.expires_in < (LAST - FIRST).total_seconds() / 4:
            end = self._clock.wall() + timedelta(seconds=answer.expires_in)
        return times.show(end) if end is not None else ""


def _page(device: _Device) -> DevicePage:
    for url in filter(None, (device.verification_uri, device.verification_uri_complete)):
        try:
            web_url.check(url, "verification_uri")
        except Invalid as error:
            raise Unavailable(f"the provider names a page that is not shown: {error}") from None
    return DevicePage(device.verification_uri, _shown(device.user_code), device.verification_uri_complete)


def _scope(metadata: ProviderMetadata) -> str:
    known = metadata.scopes_supported
    return " ".join([scope for scope in _SCOPES if scope in known] if known else _LEAST_SCOPES)


def _error_in(answer: HttpAnswer) -> _Tokens:
    try:
        return msgspec.json.decode(answer.body, type=_Tokens)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Tokens()


def _exp_in(token: str) -> datetime | None:
    """Unchecked: the plane checks the token, the program only wants to know when to renew it."""
    parts = token.split(".")
    try:
        content = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return datetime.fromtimestamp(msgspec.json.decode(content, type=_Exp).exp, UTC)
    except (IndexError, binascii.Error, msgspec.DecodeError, ValueError, OverflowError, OSError, RecursionError):
        return None


class _Exp(msgspec.Struct):
    exp: float


def _shown(text: str) -> str:
    return texts.escaped(texts.cut(texts.one_line(text), _MOST_SHOWN))
