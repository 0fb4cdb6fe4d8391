"""HTTP requests to an identity provider: bounded in time and size, over https, without redirects.

The provider may be away, slow or hostile: every failure is an Unavailable, and no text of an answer is in an error.
Answers are never unpacked, since a small packed answer may be a huge text. Cookies and proxies of the environment are
not used.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp

from controlplane.model import web_url
from controlplane.model.errors import Invalid, Unavailable

MOST_BYTES = 256 << 10
REQUEST_SECONDS = 5.0
_CHUNK_BYTES = 16 << 10
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}


class HttpAnswer(NamedTuple):
    status: int
    body: bytes


class BoundedHttp:
    """Requests to the servers of an issuer. Only an issuer on loopback may name other servers on loopback."""

    def __init__(self, issuer: str, ca_file: str = "", request_seconds: float = REQUEST_SECONDS) -> None:
        """Invalid when the CA file cannot be read."""
        self._loopback = web_url.is_loopback(issuer)
        self._seconds = request_seconds
        try:
            self._tls = ssl.create_default_context(cafile=ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise Invalid("ca_file", f"no CA certificate can be read from {ca_file}: {error.strerror}") from None

    async def get(self, url: str) -> HttpAnswer:
        return await self._ask("GET", url)

    async def post(self, url: str, form: Mapping[str, str]) -> HttpAnswer:
        return await self._ask("POST", url, form)

    async def _ask(self, method: str, url: str, form: Mapping[str, str] | None = None) -> HttpAnswer:
        try:
            web_url.check(url, "url", loopback=self._loopback)
        except Invalid as error:
            raise Unavailable(f"the provider names an address that is not used: {error}") from None
        host = urlsplit(url).hostname
        session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers=_HEADERS,
        )
        try:
            async with session:
                request = session.request(method, url, data=form, allow_redirects=False, ssl=self._tls)
                async with request as answer:
                    return HttpAnswer(answer.status, await _read(answer))
        except TimeoutError:
            raise Unavailable(f"{host} gave no whole answer within {self._seconds:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # ValueError: a host that is no name, or a header that is none.
            raise Unavailable(f"{host} cannot be asked ({type(error).__name__})") from None


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        body += chunk
        if len(body) > MOST_BYTES:
            raise Unavailable(f"{answer.url.host} answers with more than {MOST_BYTES} bytes")
    return bytes(body)
