"""A closed plane that takes the JWTs of an issuer on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controlplane.aio.clock import SystemClock
from controlplane.apiserver.issuer_keys import IssuerKeys
from controlplane.apiserver.jwt_tokens import IssuerRules
from controlplane.apiserver.jwt_verifier import JwtVerifier
from controlplane.wire.bounded_http import BoundedHttp
from tests.component.access_stage import Plane, a_plane
from tests.component.api_stage import Api
from tests.etcd import Etcd
from tests.issuer import AUDIENCE, Issuer, an_issuer


class JwtPlane(Plane):
    def __init__(self, api: Api, issuer: Issuer, keys: IssuerKeys) -> None:
        super().__init__(api)
        self.issuer = issuer
        self.keys = keys


@asynccontextmanager
async def a_jwt_plane(etcd: Etcd, *, least_seconds: float = 0.0) -> AsyncIterator[JwtPlane]:
    """`least_seconds` between two readings of the issuer's keys."""
    async with an_issuer() as issuer:
        clock = SystemClock()
        keys = IssuerKeys(issuer.url, BoundedHttp(issuer.url), clock, least_seconds=least_seconds)
        verifier = JwtVerifier(IssuerRules(issuer=issuer.url, audience=AUDIENCE), keys, clock)
        async with a_plane(etcd, verifiers=(verifier,)) as plane:
            following = asyncio.create_task(verifier.run())
            try:
                async with asyncio.timeout(10):
                    while keys.keys is None:
                        await asyncio.sleep(0.01)
                yield JwtPlane(plane.api, issuer, keys)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
