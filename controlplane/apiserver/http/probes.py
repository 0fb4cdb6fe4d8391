"""Probes: /livez while the loop runs, /readyz while the replica can serve, /leaderz while somebody leads."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.readiness import why_not_ready


class Probes:
    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/livez", self.livez),
            web.get("/readyz", self.readyz),
            web.get("/leaderz", self.leaderz),
        ]

    async def livez(self, _request: web.Request) -> web.Response:
        return answer(200, {"id": self._deps.replica_id, "live": True})

    async def readyz(self, _request: web.Request) -> web.Response:
        why = why_not_ready(self._deps.cache)
        body = {"id": self._deps.replica_id, "ready": not why, "revision": self._deps.cache.revision}
        return answer(503, {**body, "why": why}) if why else answer(200, body)

    async def leaderz(self, _request: web.Request) -> web.Response:
        """`leads` says whether it is the replica that was asked; all else is null while nobody leads."""
        term = self._deps.election.leader()
        if term is None:
            nobody = dict.fromkeys(("id", "epoch", "since", "grpc", "http"))
            return answer(503, {**nobody, "leads": False, "replica": self._deps.replica_id})
        body = {"id": term.id, "epoch": term.epoch, "since": term.since, "grpc": term.grpc, "http": term.http}
        leads = term.incarnation == self._deps.incarnation
        return answer(200, {**body, "leads": leads, "replica": self._deps.replica_id})


def answer(status: int, body: dict[str, Any]) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")


def application(deps: ApiDependencies) -> web.Application:
    app = web.Application()
    app.add_routes(Probes(deps).routes())
    return app
