"""The gate: every call of every service passes here before its request is read.

The gate authenticates the caller, asks the table of rights whether the caller may ever use the method, counts the call
against the limits of its subject, and puts the subject where `grpc_calls` finds it. Streams are open for as long as the
rights with which they began: a stream ends when its token is revoked or expires, or when a binding changes what its
subject may do. Mutating and refused calls are written to the audit log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import grpc
from msgspec.structs import replace

from controlplane.aio.clock import Clock
from controlplane.apiserver import authorisation
from controlplane.apiserver.access_book import AccessBook
from controlplane.apiserver.audit import AuditLog, AuditRecord, Decision
from controlplane.apiserver.authorisation import Right, Verb
from controlplane.apiserver.call import Metadata
from controlplane.apiserver.edge.call_notes import NOTE, REFUSALS, CallNote, object_in
from controlplane.apiserver.edge.subject_limits import SubjectLimits
from controlplane.cache.reflector import Cache
from controlplane.model import times
from controlplane.model.access import ANYONE, Role, Subject
from controlplane.model.errors import ControlPlaneError, Unauthenticated, Unavailable
from controlplane.model.identity import Mint

# The subject of the call that the present task serves.
CALLER: ContextVar[Subject] = ContextVar("caller", default=ANYONE)
# A replica that has not heard of etcd for longer may have missed a revocation.
MOST_AGE_SECONDS = 5.0
_LEAST_LOOK_SECONDS = 0.05
_SCHEME = "bearer "
_UNLIMITED = (Role.JOBLET, Role.REPLICA)

# The context of a call is gRPC's.
Context = Any
Serve = Callable[[Any, Context], Awaitable[Any]]
Refuse = Callable[[Context, ControlPlaneError], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class GatePorts:
    """Without a book the plane is open: every caller is ANYONE. `refuse` answers a call with an error."""

    cache: Cache
    clock: Clock
    mint: Mint
    refuse: Refuse
    book: AccessBook | None
    audit: AuditLog


class AccessGate:
    def __init__(self, ports: GatePorts) -> None:
        self._ports = ports
        self._limits = SubjectLimits(ports.clock)
        # By the credential with which they began.
        self._streams: dict[str, set[_OpenStream]] = {}
        if ports.book is not None:
            ports.book.changed = self._end_streams

    def guarded(self, method: str, serve: Serve, *, stream: bool) -> Serve:
        """Broken for a method without a row in the table of rights."""
        right = authorisation.right_of(method)
        if right.verb is Verb.OPEN:
            return serve

        async def call(request: Any, context: Context) -> Any:
            note = CallNote()
            NOTE.set(note)
            subject, answer = Subject(), None
            try:
                text, subject = await self._authenticate(context)
                self._admit(right, subject)
                CALLER.set(subject)
                if stream:
                    await _open(context)
                if stream and self._ports.book is not None:
                    answer = await self._follow(text, subject, serve(request, context))
                else:
                    answer = await serve(request, context)
                return answer
            except ControlPlaneError as error:
                return await self._ports.refuse(context, error)
            finally:
                await self._audit(_Heard(method, right, subject, context.peer()), note, answer)

        return call

    def received(self, byte_count: int) -> None:
        """Counts a request of the present call; LimitExceeded when its subject sent too much."""
        subject = CALLER.get()
        if self._is_limited(subject):
            self._limits.received(subject.name, byte_count)

    async def _authenticate(self, context: Context) -> tuple[str, Subject]:
        """The credentials and the subject of the caller."""
        book, cache = self._ports.book, self._ports.cache
        if book is None:
            return "", ANYONE
        if cache.age_seconds > MOST_AGE_SECONDS:
            raise Unavailable(f"this replica has not heard from etcd for {cache.age_seconds:.0f} s; ask another")
        text = _token_in(context.invocation_metadata())
        return text, await book.authenticate(text)

    def _admit(self, right: Right, subject: Subject) -> None:
        """Forbidden when the subject may never use the method, LimitExceeded when it calls too often."""
        if self._ports.book is not None:
            authorisation.check(subject, right.verb, right.kind)
            if self._is_limited(subject):
                self._limits.admit(subject.name)

    def _is_limited(self, subject: Subject) -> bool:
        """Joblets and replicas are bounded by the number of their streams and targets."""
        return self._ports.book is not None and not all(role in _UNLIMITED for role in subject.roles)

    async def _follow(self, text: str, subject: Subject, serving: Awaitable[Any]) -> Any:
        """Serves until the call or the rights of its subject end."""
        work = asyncio.ensure_future(serving)
        try:
            if not self._is_limited(subject):
                return await self._until_over(text, subject, work)
            with self._limits.stream(subject.name):
                return await self._until_over(text, subject, work)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def _until_over(self, text: str, subject: Subject, work: asyncio.Future[Any]) -> Any:
        assert self._ports.book is not None
        stream = _OpenStream(self._ports.book, text, subject)
        self._streams.setdefault(subject.via, set()).add(stream)
        try:
            await asyncio.wait({work, stream.over}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise stream.over.result()
            return work.result()
        finally:
            self._streams[subject.via].discard(stream)
            if not self._streams[subject.via]:
                del self._streams[subject.via]
            stream.close()

    def _end_streams(self, tokens: set[str] | None) -> None:
        for via in list(self._streams) if tokens is None else tokens:
            for stream in self._streams.get(via, ()):
                stream.look()

    async def _audit(self, heard: _Heard, note: CallNote, answer: Any) -> None:
        refused = isinstance(note.error, REFUSALS)
        if not self._ports.audit.enabled or not (refused or heard.right.mutates):
            return
        decision: Decision = "refused" if refused else "allowed" if answer is not None else "failed"
        name, owner = object_in(note.request, answer)
        record = AuditRecord(
            time=times.show(self._ports.clock.wall()),
            subject=heard.subject.name,
            via=heard.subject.via,
            peer=heard.peer,
            method=heard.method,
            verb=heard.right.verb,
            kind=heard.right.kind,
            name=name,
            owner=owner,
            decision=decision,
            reason="" if note.error is None else f"{type(note.error).__name__}: {note.error}",
            revision=getattr(answer, "revision", 0),
            request_id=self._ports.mint.make(),
        )
        if refused:
            self._ports.audit.refuse(record)
        else:
            # The change is made: a client who hangs up now does not take its record along.
            await asyncio.shield(self._ports.audit.write(record))


@dataclass(frozen=True, slots=True)
class _Heard:
    """A call as the gate heard it."""

    method: str
    right: Right
    subject: Subject
    peer: str


class _OpenStream:
    """`over` is done with an error when the rights with which the stream began are gone."""

    def __init__(self, book: AccessBook, text: str, subject: Subject) -> None:
        loop = asyncio.get_running_loop()
        self._book = book
        self._text = text
        self._subject = subject
        self.over: asyncio.Future[ControlPlaneError] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self.look()

    def look(self) -> None:
        """Looks again when the token expires, by the wall clock of that moment."""
        if self.over.done():
            return
        self.stop_timer()
        try:
            subject = self._book.subject_of(self._text)
        except Unauthenticated as error:
            self.over.set_result(error)
            return
        # A renewed credential ends sooner, which changes no rights. A later end means that the end with which the
        # stream began has come: of a JWT, calls are taken a little longer.
        if (
            replace(subject, expires="") != replace(self._subject, expires="")
            or subject.expires > self._subject.expires
        ):
            self.over.set_result(Unavailable(f"the rights of {self._subject.name!r} changed; connect again"))
        elif subject.expires:
            left = max(self._book.seconds_left(subject), _LEAST_LOOK_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(left, self.look)

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        self.stop_timer()
        self.over.cancel()


async def _open(context: Context) -> None:
    """Sends the head of a stream's answer ahead, in the task that also ends the stream.

    A writer that is cancelled amid its first answer leaves gRPC in the belief that the head is not sent; the status
    that ends the stream would then be refused for having a second head, and the client would wait for ever.
    """
    # A client that left meanwhile is no failure: whoever reads or writes the stream is told.
    with suppress(grpc.aio.InternalError):
        await context.send_initial_metadata(())


def _token_in(metadata: Metadata | None) -> str:
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str) and value[: len(_SCHEME)].lower() == _SCHEME:
            return value[len(_SCHEME) :].strip()
    raise Unauthenticated("credentials are missing: send the metadata `authorization: Bearer TOKEN`")
