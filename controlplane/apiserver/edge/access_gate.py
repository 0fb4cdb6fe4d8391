"""The gate: every call of every service passes here before its request is read.

The gate authenticates the caller, asks the table of rights whether the caller may ever use the method, and puts the
subject where `grpc_calls` finds it. Streams are open for as long as the rights with which they began: a stream ends
when its token is revoked or expires, or when a binding changes what its subject may do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol

from controlplane.apiserver import authorisation
from controlplane.apiserver.access_book import AccessBook
from controlplane.apiserver.authorisation import Right, Verb
from controlplane.apiserver.call import Metadata
from controlplane.cache.reflector import Cache
from controlplane.model.access import ANYONE, Subject
from controlplane.model.errors import ControlPlaneError, Unauthenticated, Unavailable

# The subject of the call that the present task serves.
CALLER: ContextVar[Subject] = ContextVar("caller", default=ANYONE)
# A replica that has not heard of etcd for longer may have missed a revocation.
MOST_AGE_SECONDS = 5.0
_SCHEME = "bearer "


class CallContext(Protocol):
    def invocation_metadata(self) -> Metadata | None: ...


Serve = Callable[[Any, Any], Awaitable[Any]]
Refuse = Callable[[Any, ControlPlaneError], Awaitable[Any]]


class AccessGate:
    """Without a book the plane is open: every caller is ANYONE."""

    def __init__(self, cache: Cache, book: AccessBook | None, refuse: Refuse) -> None:
        self._cache = cache
        self._book = book
        self._refuse = refuse
        self._streams: dict[_OpenStream, None] = {}
        if book is not None:
            book.changed = self._end_streams

    def guarded(self, method: str, serve: Serve, *, stream: bool) -> Serve:
        """Broken for a method without a row in the table of rights."""
        right = authorisation.right_of(method)
        if self._book is None or right.verb is Verb.OPEN:
            return serve
        book = self._book

        async def call(request: Any, context: Any) -> Any:
            try:
                text, subject = await self._admit(book, right, context)
            except ControlPlaneError as error:
                return await self._refuse(context, error)
            CALLER.set(subject)
            if not stream:
                return await serve(request, context)
            return await self._follow(_OpenStream(book, text, subject), serve(request, context), context)

        return call

    async def _admit(self, book: AccessBook, right: Right, context: CallContext) -> tuple[str, Subject]:
        if self._cache.age_seconds > MOST_AGE_SECONDS:
            raise Unavailable(f"this replica has not heard from etcd for {self._cache.age_seconds:.0f} s; ask another")
        text = _token_in(context.invocation_metadata())
        subject = await book.authenticate(text)
        authorisation.check(subject, right.verb, right.kind)
        return text, subject

    async def _follow(self, stream: _OpenStream, serving: Awaitable[Any], context: Any) -> Any:
        """Serves until the call or the rights of its subject end."""
        work = asyncio.ensure_future(serving)
        self._streams[stream] = None
        try:
            await asyncio.wait({work, stream.over}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                return await self._refuse(context, stream.over.result())
            return work.result()
        finally:
            del self._streams[stream]
            stream.close()
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    def _end_streams(self) -> None:
        for stream in list(self._streams):
            stream.look()


class _OpenStream:
    """`over` is done with an error when the rights with which the stream began are gone."""

    def __init__(self, book: AccessBook, text: str, subject: Subject) -> None:
        loop = asyncio.get_running_loop()
        self._book = book
        self._text = text
        self._subject = subject
        self.over: asyncio.Future[ControlPlaneError] = loop.create_future()
        left = book.seconds_left(subject) if subject.expires else None
        self._timer = loop.call_later(max(left, 0.0), self.look) if left is not None else None

    def look(self) -> None:
        if self.over.done():
            return
        try:
            if self._book.subject_of(self._text) != self._subject:
                self.over.set_result(Unavailable(f"the rights of {self._subject.name!r} changed; connect again"))
        except Unauthenticated as error:
            self.over.set_result(error)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.over.cancel()


def _token_in(metadata: Metadata | None) -> str:
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str) and value[: len(_SCHEME)].lower() == _SCHEME:
            return value[len(_SCHEME) :].strip()
    raise Unauthenticated("credentials are missing: send the metadata `authorization: Bearer TOKEN`")
