"""The logs of containers, through the cluster's API, which asks the kubelet of the pod's node.

A cluster keeps the output of a container as one log, stdout and stderr mixed, and addresses it by times and lines only.
Here an offset is a number of bytes from the beginning, so that no byte is sent twice or left out: to go on at an
offset, the bytes before it are read and thrown away. (A kubelet that rotates logs forgets their beginning; then the
bytes at an offset may be others.) Logs have connections of their own, so that readers never keep the driver waiting.
"""

from __future__ import annotations

from collections import deque

import aiohttp

from controlplane.joblet.drivers.kubernetes.api import Answered, Api, Json
from controlplane.joblet.drivers.kubernetes.pod import container_of, name_of, refs_of
from controlplane.joblet.log_source import STDERR, STDOUT, LogQuery, OutputPiece
from controlplane.model.errors import ControlPlaneError, Forbidden, NotFound, OutcomeUnknown, Refused, Unavailable

_BLOCK = 64 << 10
# How long the bytes of a log that is not followed may pause.
_SILENCE_SECONDS = 30.0


class ClusterLogs:
    """All logs of the pods in one namespace. `api` should have connections of its own."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    def open(self, query: LogQuery) -> ContainerLog:
        if query.stream == STDERR:
            raise Refused("a cluster keeps stdout and stderr in one log: ask for both")
        return ContainerLog(self._api, f"{self._pods}/{name_of(query.fulfilment)}", query)


class ContainerLog:
    """The log of the container of one task, from the offset of the query on; all pieces are of `stdout`."""

    def __init__(self, api: Api, pod: str, query: LogQuery) -> None:
        self._api = api
        self._pod = pod
        self._query = query
        self._container = ""
        self._response: aiohttp.ClientResponse | None = None
        self._offset = 0

    async def read(self, most: int) -> OutputPiece | None:
        """Unavailable when the API or the kubelet is away, or when a followed log broke before its container ended."""
        if self._response is None:
            self._container = container_in(await self._look(), self._query)
            start = await self._start()
            self._response = await self._ask(follow=self._query.follow)
            await self._skip(start)
        data = await _next(self._response, most)
        if data:
            piece = OutputPiece(STDOUT, self._offset, data)
            self._offset += len(data)
            return piece
        if self._query.follow and not has_ended(await self._look(), self._container):
            raise Unavailable("the log broke off, and its container has not ended")
        return None

    def close(self) -> None:
        if self._response is not None:
            self._response.close()

    async def _look(self) -> Json:
        try:
            return await self._api.ask("GET", self._pod)
        except Answered as error:
            raise self._refusal(error.status, error.message) from None
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from None

    async def _start(self) -> int:
        start = self._query.start_of(STDOUT)
        if start is not None or not self._query.tail_lines:
            return start or 0
        tail = LogTail(self._query.tail_lines)
        response = await self._ask(follow=False)
        try:
            while data := await _next(response, _BLOCK):
                tail.feed(data)
        finally:
            response.close()
        return tail.start

    async def _skip(self, left: int) -> None:
        assert self._response is not None
        while left > 0 and (data := await _next(self._response, min(left, _BLOCK))):
            left -= len(data)
            self._offset += len(data)

    async def _ask(self, *, follow: bool) -> aiohttp.ClientResponse:
        query = {"container": self._container, "follow": "true" if follow else "false"}
        silence_seconds = None if follow else _SILENCE_SECONDS
        try:
            return await self._api.stream(f"{self._pod}/log", query, silence_seconds=silence_seconds)
        except Answered as error:
            raise self._refusal(error.status, error.message) from None

    def _refusal(self, status: int, words: str) -> ControlPlaneError:
        if status == 404:
            return NotFound(f"the cluster keeps nothing of it any more: {words}")
        if status in (401, 403):
            return Forbidden(f"the cluster does not let the joblet read logs: {words}")
        if status == 400 and not self._query.follow:
            return Refused(f"the cluster has no log of it: {words}")
        # The API refuses the log of a container that is about to start like an invalid request.
        return Unavailable(f"the cluster cannot read the log now: {words}")


def container_in(pod: Json, query: LogQuery) -> str:
    """The container that runs the task; NotFound when the pod does not belong to the attempt."""
    refs = refs_of(pod)
    if query.task not in refs:
        raise NotFound("its pod is not there any more")
    return container_of(refs.index(query.task))


def has_ended(pod: Json, container: str) -> bool:
    """Whether the container will never write again."""
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    states = {each["name"]: each.get("state", {}) for each in status.get("containerStatuses", ())}
    return "terminated" in states.get(container, {})


class LogTail:
    """The offset where the last lines of a log begin; an unfinished line counts. Pure."""

    def __init__(self, lines: int) -> None:
        self._begins: deque[int] = deque(maxlen=lines)
        self._size = 0
        self._at_line_start = True

    def feed(self, data: bytes) -> None:
        """A line begins with its first byte, not with the end of the line before."""
        offset = 0
        while offset < len(data):
            if self._at_line_start:
                self._begins.append(self._size + offset)
            end = data.find(b"\n", offset)
            self._at_line_start = end >= 0
            offset = end + 1 if end >= 0 else len(data)
        self._size += len(data)

    @property
    def start(self) -> int:
        return self._begins[0] if self._begins else 0


async def _next(response: aiohttp.ClientResponse, most: int) -> bytes:
    try:
        return await response.content.read(most)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unavailable(f"the log broke off: {type(error).__name__} {error}") from None
