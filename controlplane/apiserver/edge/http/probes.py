"""Probes: /livez while the loop runs, /readyz while the replica can serve, /leaderz while a replica leads."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger

from controlplane.apiserver.api_ports import ApiPorts
from controlplane.apiserver.fresh_reads import why_not_ready


class Probes:
    def __init__(self, ports: ApiPorts) -> None:
        self._cache = ports.reads.cache
        self._replica = ports.replica
        self._election = ports.election
        self._closed = ports.closed

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/livez", self.livez),
            web.get("/readyz", self.readyz),
            web.get("/leaderz", self.leaderz),
        ]

    async def livez(self, _request: web.Request) -> web.Response:
        return answer(200, {"id": self._replica.id, "live": True})

    async def readyz(self, _request: web.Request) -> web.Response:
        why = why_not_ready(self._cache)
        body = {"id": self._replica.id, "ready": not why, "revision": self._cache.revision}
        return answer(503, {**body, "why": why}) if why else answer(200, body)

    async def leaderz(self, _request: web.Request) -> web.Response:
        """`leads`: the asked replica leads. All other fields are null without a leader.

        Where callers need credentials, a probe, which has none, is told the status code alone.
        """
        term = self._election.leader()
        if self._closed:
            return web.Response(status=503 if term is None else 200)
        if term is None:
            nobody = dict.fromkeys(("id", "epoch", "since", "grpc", "http"))
            return answer(503, {**nobody, "leads": False, "replica": self._replica.id})
        body = {"id": term.id, "epoch": term.epoch, "since": term.since, "grpc": term.grpc, "http": term.http}
        leads = term.incarnation == self._replica.incarnation
        return answer(200, {**body, "leads": leads, "replica": self._replica.id})


def answer(status: int, body: dict[str, Any]) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")


def application(ports: ApiPorts) -> web.Application:
    server_logger.addFilter(_is_no_fault_of_the_client)
    app = web.Application()
    app.add_routes(Probes(ports).routes())
    return app


def _is_no_fault_of_the_client(record: logging.LogRecord) -> bool:
    """Whether to log. Anybody can send bytes that are no HTTP; aiohttp would log a traceback with these bytes in it."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)
