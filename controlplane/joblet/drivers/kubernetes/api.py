"""The one speaker to a cluster's API: JSON in, JSON out, on the official client's transport.

It never repeats a request by itself, and says of each failure what the caller has to know: `Unavailable` when the
request certainly did not apply, `OutcomeUnknown` when nobody knows, `Answered` with what the API said otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from kubernetes.aio.client.api_client import ApiClient

from controlplane.model import texts
from controlplane.model.errors import Compacted, ControlPlaneError, OutcomeUnknown, Unavailable

Json = dict[str, Any]

GONE = 410
# Requests under way at the same time that are no creates and no watches.
OTHERS = 24
_PAGE = "500"
_CONTENT = {"PATCH": "application/merge-patch+json"}
_TOO_MANY = 429
_MOST_RETRY_AFTER = 60.0


class Answered(ControlPlaneError):
    """The API answered, and it was no success. `retry_after` is what it asks for in seconds, None when it does not."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def certainly_not_applied(self) -> bool:
        """What the API refused before it did anything; a 5xx may have applied."""
        return 400 <= self.status < 500

    @property
    def waiting_helps(self) -> bool:
        """Too many requests, a collision with another writer, a token that is being replaced."""
        return self.status in (401, 408, _TOO_MANY) or (self.status == 409 and self.reason != "AlreadyExists")


class Api:
    """`seconds` is how long a request may take, for the client and for the API.

    Creates go at once, their number is bounded by who makes them; all else waits for one of `OTHERS` places, so that no
    request spends its time waiting for a connection.
    """

    def __init__(self, client: ApiClient, *, seconds: float) -> None:
        self._client = client
        self.seconds = seconds
        self._others = asyncio.Semaphore(OTHERS)

    async def close(self) -> None:
        await self._client.close()

    async def ask(
        self, method: str, path: str, body: Json | None = None, query: Mapping[str, str] | None = None
    ) -> Json:
        """One request, one answer."""
        async with contextlib.nullcontext() if method == "POST" else self._others:
            return await self._ask(method, path, body, query or {})

    async def _ask(self, method: str, path: str, body: Json | None, query: Mapping[str, str]) -> Json:
        timeout = aiohttp.ClientTimeout(total=self.seconds, sock_connect=self.seconds)
        try:
            response = await self._request(method, path, body, timeout, {**query, "timeout": f"{self.seconds:g}s"})
            async with response:
                raw = await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unavailable(f"the cluster's API cannot be reached: {error}") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise OutcomeUnknown(f"no answer of the cluster's API: {type(error).__name__} {error}") from None
        if response.status >= 300:
            raise _answered(response, raw)
        return _decode(raw)

    async def ready(self) -> None:
        """Raises when the API, or what it stands on, is not in good health."""
        await self.ask("GET", "/readyz")

    async def pages(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Json]:
        """A list as it is now, page by page: none of it comes from a cache."""
        go_on = ""
        while True:
            more = {"continue": go_on} if go_on else {}
            try:
                page = await self.ask("GET", path, query={"limit": _PAGE, **query, **more})
            except Answered as error:
                raise _compacted(error) if error.status == GONE else error from None
            yield page
            go_on = page.get("metadata", {}).get("continue", "")
            if not go_on:
                return

    async def watch(self, path: str, query: Mapping[str, str], since: str, seconds: float) -> AsyncIterator[Json]:
        """Events behind `since`, bookmarks too, until the API ends the watch after `seconds`.

        Compacted when it does not know `since` any more. The first thing given is an empty event: the API has taken
        the watch on.
        """
        asked = {
            **query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": f"{seconds:.0f}",
        }
        timeout = aiohttp.ClientTimeout(total=seconds + self.seconds, sock_connect=self.seconds)
        try:
            response = await self._request("GET", path, None, timeout, asked)
            async with response:
                if response.status >= 300:
                    raise _gone_or(_answered(response, await response.read()))
                yield {}
                async for line in response.content:
                    yield _event(line)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unavailable(f"a watch broke: {type(error).__name__} {error}") from None

    async def _request(
        self, method: str, path: str, body: Json | None, timeout: aiohttp.ClientTimeout, query: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        made = await self._client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", "Content-Type": _CONTENT.get(method, "application/json")},
            auth_settings=["BearerToken"],
        )
        _, url, headers, _, _ = made
        answer = await self._client.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=timeout
        )
        response: aiohttp.ClientResponse = answer.response
        return response


def _event(line: bytes) -> Json:
    event: Json = json.loads(line)
    if event.get("type") == "ERROR":
        status = event.get("object", {})
        raise _gone_or(Answered(int(status.get("code", 500)), status.get("reason", ""), status.get("message", "")))
    return event


def _gone_or(error: Answered) -> ControlPlaneError:
    return _compacted(error) if error.status == GONE else error


def _compacted(error: Answered) -> Compacted:
    return Compacted(error.message)


def _answered(response: aiohttp.ClientResponse, raw: bytes) -> Answered:
    """The API says what is wrong in a Status; what stands before it may say it in any other way."""
    try:
        said = json.loads(raw)
    except ValueError:
        said = None
    status = said if isinstance(said, dict) else {}
    message = str(status.get("message") or texts.cut(raw.decode(errors="replace"), texts.MESSAGE_CHARACTERS))
    after = _seconds(response.headers.get("Retry-After", ""))
    return Answered(response.status, str(status.get("reason") or response.reason), message, after)


def _decode(raw: bytes) -> Json:
    try:
        found = json.loads(raw)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(text: str) -> float | None:
    return min(float(text), _MOST_RETRY_AFTER) if text.isdigit() else None
