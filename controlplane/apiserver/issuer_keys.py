"""The keys of an issuer, read from its provider in the background and kept while the provider is away.

No call waits for the provider in a regular run. A token with an unknown key asks for a reading ahead of time: callers
share it, it is bounded in time, and readings are `least_seconds` apart, however many such tokens come. Whatever the
provider answers, the keys read before stay until a document with usable keys replaces them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from controlplane.aio.backoff import Retries, doubling
from controlplane.aio.clock import Clock
from controlplane.apiserver.jwt_keys import SigningKeys, read_keys
from controlplane.model.errors import Unavailable
from controlplane.wire import provider_metadata
from controlplane.wire.bounded_http import BoundedHttp

log = structlog.get_logger(__name__)

REFRESH_SECONDS = 300.0
LEAST_SECONDS = 10.0
# Of a whole reading: the discovery document and the key set.
READING_SECONDS = 5.0
MOST_WAITING = 200
_OK = 200
_RETRY = doubling(LEAST_SECONDS, 60.0, jitter=0.2)


class IssuerKeys:
    """`keys` is None until the first reading succeeds."""

    def __init__(self, issuer: str, http: BoundedHttp, clock: Clock, *, least_seconds: float = LEAST_SECONDS) -> None:
        self._issuer = issuer
        self._http = http
        self._clock = clock
        self._least_seconds = least_seconds
        self._reading: asyncio.Task[None] | None = None
        self._read_at: float | None = None
        self._waiting = 0
        self._failure = ""
        self.keys: SigningKeys | None = None
        # Called when a key is gone.
        self.changed: Callable[[], None] = lambda: None

    async def run(self) -> None:
        retries = Retries(_RETRY)
        try:
            while True:
                # An error that nobody expected is the supervisor's.
                (await self._read_together()).result()
                if self._failure:
                    await self._clock.sleep(retries.failed())
                else:
                    retries.succeeded()
                    await self._clock.sleep(REFRESH_SECONDS)
        finally:
            if self._reading is not None:
                self._reading.cancel()

    async def look(self) -> None:
        """Reads the keys ahead of time, unless they were just read or too many callers wait already."""
        is_reading = self._reading is not None and not self._reading.done()
        just_read = self._read_at is not None and self._clock.monotonic() - self._read_at < self._least_seconds
        if (just_read and not is_reading) or self._waiting >= MOST_WAITING:
            return
        self._waiting += 1
        try:
            await self._read_together()
        finally:
            self._waiting -= 1

    async def _read_together(self) -> asyncio.Task[None]:
        """The reading that callers shared, which has ended."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read())
        reading = self._reading
        await asyncio.wait({reading})
        return reading

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(READING_SECONDS):
                self._take(await self._fetched())
            failure = ""
        except TimeoutError:
            failure = f"no whole answer within {READING_SECONDS:g} s"
        except Unavailable as error:
            failure = str(error)
        finally:
            self._read_at = self._clock.monotonic()
        if failure and failure != self._failure:
            log.warning("the keys of the issuer cannot be read", issuer=self._issuer, error=failure)
        elif self._failure and not failure:
            log.info("the keys of the issuer are read again", issuer=self._issuer)
        self._failure = failure

    def _take(self, keys: SigningKeys) -> None:
        before, self.keys = self.keys, keys
        if before is not None and not before.thumbprints <= keys.thumbprints:
            self.changed()

    async def _fetched(self) -> SigningKeys:
        metadata = await provider_metadata.discover(self._http, self._issuer)
        if not metadata.jwks_uri:
            raise Unavailable("the discovery document names no key set (jwks_uri)")
        answer = await self._http.get(metadata.jwks_uri)
        if answer.status != _OK:
            raise Unavailable(f"the key set is answered with status {answer.status}")
        return read_keys(answer.body)
