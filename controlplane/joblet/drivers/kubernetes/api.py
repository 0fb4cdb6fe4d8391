"""The only client of a cluster's API: JSON in, JSON out, on the transport of the official client.

A request is never repeated here. A failure tells the caller what to do: `Unavailable` when the request certainly did
not apply, `OutcomeUnknown` when the request may have applied, `Answered` with the words of the API otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import random
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from controlplane.aio.backoff import Retries, doubling
from controlplane.model import texts
from controlplane.model.errors import Compacted, ControlPlaneError, Invalid, OutcomeUnknown, Unavailable

Json = dict[str, Any]

GONE = 410
# Requests under way at the same time that are neither creates nor watches.
OTHERS = 24
# More connections than creates, other requests and watches use at the same time.
CONNECTIONS = 64
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_BACKOFF = doubling(0.1, 10.0, jitter=0.5)
_PAGE = "500"
_CONTENT = {"PATCH": "application/merge-patch+json"}
_TOO_MANY = 429
_REASON = re.compile(r"[A-Za-z]{1,60}")
_MOST_RETRY_AFTER = 60.0


class Answered(ControlPlaneError):
    """The API answered, but not with success. `retry_after` is the pause in seconds that the API asks for, if any."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def certainly_not_applied(self) -> bool:
        """Whether the API refused the request before acting; a request answered with 5xx may have applied."""
        return 400 <= self.status < 500

    @property
    def waiting_helps(self) -> bool:
        """Whether the refusal may pass: too many requests, a conflict with another writer, a token being replaced."""
        return self.status in (401, 408, _TOO_MANY) or (self.status == 409 and self.reason != "AlreadyExists")


class ApiRetries(Retries):
    """The failures of one request to the API that is sent again and again."""

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        super().__init__(_BACKOFF, draw)

    def failed(self, error: ControlPlaneError | None = None) -> float:
        """Seconds until the next try, on top of the pause that the API asked for."""
        asked = error.retry_after if isinstance(error, Answered) and error.retry_after is not None else 0.0
        return asked + super().failed()


class Api:
    """`seconds` is how long a request may take, for the client and for the API.

    Creates are sent at once: their caller bounds their number. Other requests wait for one of `OTHERS` slots, so that
    no request spends its time limit waiting for a connection.
    """

    def __init__(self, client: ApiClient, *, seconds: float) -> None:
        self._client = client
        self.seconds = seconds
        self._others = asyncio.Semaphore(OTHERS)

    def with_own_connections(self) -> Api:
        """The same API over connections of its own, so that slow readers never keep other requests waiting."""
        return Api(ApiClient(self._client.configuration), seconds=self.seconds)

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
        """Raises when the API or its storage is unhealthy."""
        await self.ask("GET", "/readyz")

    async def pages(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Json]:
        """The newest list, page by page, not served from a cache."""
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
        """Events after the resource version `since`, bookmarks too, until the API ends the watch after `seconds`.

        The first event is empty: the API has accepted the watch. Compacted when the API no longer knows `since`.
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

    async def stream(
        self, path: str, query: Mapping[str, str], *, silence_seconds: float | None
    ) -> aiohttp.ClientResponse:
        """A response whose body the caller reads and closes; None lets the body come to a halt for any time.

        Answered when the API refuses, Unavailable when it cannot be reached.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.seconds, sock_read=silence_seconds)
        try:
            response = await self._request("GET", path, None, timeout, query)
            if response.status < 300:
                return response
            raise _answered(response, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the cluster's API cannot be reached: {type(error).__name__} {error}") from None

    async def _request(
        self, method: str, path: str, body: Json | None, timeout: aiohttp.ClientTimeout, query: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        serialized = await self._client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", "Content-Type": _CONTENT.get(method, "application/json")},
            auth_settings=["BearerToken"],
        )
        _, url, headers, _, _ = serialized
        answer = await self._client.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=timeout
        )
        response: aiohttp.ClientResponse = answer.response
        return response


async def connect(kubeconfig: str, *, seconds: float) -> Api:
    """Invalid when the kubeconfig cannot be used. An empty path means: inside the cluster."""
    settings = Configuration()
    try:
        if kubeconfig:
            await config.load_kube_config(config_file=kubeconfig, client_configuration=settings)
        else:
            config.load_incluster_config(client_configuration=settings)
    except (config.ConfigException, OSError, ValueError) as error:
        where = kubeconfig or "not given, and this is no pod of a cluster"
        raise Invalid("kubeconfig", f"{where}: {error}") from None
    settings.connection_pool_maxsize = CONNECTIONS
    settings.retries = None
    return Api(ApiClient(settings), seconds=seconds)


def namespace_of(kubeconfig: str) -> str:
    """The default namespace of pods: that of the joblet's own pod inside a cluster, else `default`."""
    if kubeconfig or not _NAMESPACE.exists():
        return "default"
    return _NAMESPACE.read_text(encoding="ascii").strip()


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
    """The API explains a refusal in a Status. Any other text is left out: a kubeconfig may name any server, and users
    must not read through a joblet what that server says."""
    decoded = _decode(raw)
    status = decoded if decoded.get("kind") == "Status" else {}
    message = texts.cut(str(status.get("message") or "the answer is no Status of a cluster"), texts.MESSAGE_CHARACTERS)
    after = _seconds(response.headers.get("Retry-After", ""))
    return Answered(response.status, _reason(status.get("reason"), response.status), message, after)


def _reason(given: object, status: int) -> str:
    if isinstance(given, str) and _REASON.fullmatch(given):
        return given
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _decode(raw: bytes) -> Json:
    try:
        decoded = json.loads(raw)
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _seconds(text: str) -> float | None:
    return min(float(text), _MOST_RETRY_AFTER) if text.isdigit() else None
