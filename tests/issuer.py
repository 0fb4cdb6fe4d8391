"""An identity provider of a test's own: a real HTTP server on loopback that signs real tokens.

It serves the discovery document, the key set, and the endpoints of the device flow (RFC 8628). A test may rotate its
keys, replace an answer, make it slow or broken, and count what was asked.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

AUDIENCE = CLIENT = "cpctl"
DISCOVERY, KEYS, DEVICE, TOKEN = "/.well-known/openid-configuration", "/keys", "/device", "/token"

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def rsa_key() -> Key:
    return RSAKey.generate_key(2048, auto_kid=False)


def ec_key() -> Key:
    return ECKey.generate_key("P-256", auto_kid=False)


def ed_key() -> Key:
    return OKPKey.generate_key("Ed25519", auto_kid=False)


class Issuer:
    """`answers` replaces the answer at a path. `asked` counts requests by path."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: dict[str, Key] = {"first": ec_key()}
        self.published: set[str] = {"first"}
        self.answers: dict[str, Answer] = {}
        self.asked: Counter[str] = Counter()
        self.claims: dict[str, Any] = {"sub": "ada"}
        # Of the device flow: what the token endpoint says to polls before the user agrees, and the life of its tokens.
        self.refusals: list[str] = []
        self.life_seconds = 300.0
        self.forms: list[dict[str, str]] = []
        self.refresh_tokens: set[str] = set()
        self.device_code = ""

    def sign(self, kid: str = "first", *, head: dict[str, Any] | None = None, **claims: Any) -> str:
        """A good token, but for the given head and claims; a claim of None is left out."""
        now = time.time()
        given = {"iss": self.url, "aud": AUDIENCE, "exp": now + 300, "iat": now, **self.claims, **claims}
        content = {name: value for name, value in given.items() if value is not None}
        key = self.keys[kid]
        algorithm = {"RSA": "RS256", "EC": "ES256", "OKP": "Ed25519"}[key.key_type]
        given_head = {"alg": algorithm, "kid": kid, **(head or {})}
        return jwt.encode(given_head, content, key, algorithms=[given_head["alg"]])

    def rotate(self, kid: str, *, keep: bool = False) -> None:
        """Publishes a new key, alone or beside the keys of before."""
        self.keys[kid] = ec_key()
        self.published = {*(self.published if keep else ()), kid}

    def key_set(self) -> dict[str, Any]:
        return {"keys": [{**self.keys[kid].as_dict(private=False), "kid": kid} for kid in sorted(self.published)]}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked[request.path] += 1
        answer = self.answers.get(request.path)
        if answer is not None:
            return await answer(request)
        match request.path:
            case "/.well-known/openid-configuration":
                return web.json_response(self._metadata())
            case "/keys":
                return web.json_response(self.key_set())
            case "/device" | "/token" if request.method == "POST":
                form = {name: str(value) for name, value in (await request.post()).items()}
                self.forms.append(form)
                return self._device(form) if request.path == DEVICE else self._token(form)
        return web.Response(status=404)

    def _metadata(self) -> dict[str, str]:
        return {
            "issuer": self.url,
            "jwks_uri": self.url + KEYS,
            "device_authorization_endpoint": self.url + DEVICE,
            "token_endpoint": self.url + TOKEN,
        }

    def _device(self, form: dict[str, str]) -> web.Response:
        if form.get("client_id") != CLIENT:
            return web.json_response({"error": "invalid_client"}, status=401)
        self.device_code = secrets.token_hex(8)
        return web.json_response({
            "device_code": self.device_code, "user_code": "WDJB-MJHT", "verification_uri": f"{self.url}/activate",
            "expires_in": 60, "interval": 1,
        })  # fmt: skip

    def _token(self, form: dict[str, str]) -> web.Response:
        if form.get("grant_type") == "refresh_token":
            if form.get("refresh_token") not in self.refresh_tokens:
                return web.json_response({"error": "invalid_grant"}, status=400)
            self.refresh_tokens.discard(form["refresh_token"])
        elif form.get("device_code") != self.device_code:
            return web.json_response({"error": "invalid_grant"}, status=400)
        elif self.refusals:
            return web.json_response({"error": self.refusals.pop(0)}, status=400)
        refresh = secrets.token_hex(8)
        self.refresh_tokens.add(refresh)
        return web.json_response({
            "id_token": self.sign(exp=time.time() + self.life_seconds), "access_token": "opaque",
            "refresh_token": refresh, "token_type": "Bearer", "expires_in": int(self.life_seconds),
        })  # fmt: skip


@asynccontextmanager
async def an_issuer() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", issuer.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield issuer
    finally:
        await runner.cleanup()


def saying(content: bytes | dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers=headers, content_type="application/json")

    return answer


def silent(released: asyncio.Event) -> Answer:
    """Says nothing until released."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.Response(status=503)

    return answer
