"""The router: the stream of this replica for each target, and the changes of the cache for each stream.

One subscription serves all streams: a change costs one look-up, however many joblets are connected. A target has one
stream here; a newer stream replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.apiserver.joblets.session import name_of
from controlplane.apiserver.joblets.session_stream import SessionStream
from controlplane.apiserver.logs.log_broker import StreamLogs
from controlplane.cache.reflector import Cache, Delta
from controlplane.model.errors import NotFound, StaleAttempt, Unavailable
from controlplane.store import keys


class Router:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._streams: dict[str, SessionStream] = {}
        self._closed = False
        self._unsubscribe = cache.subscribe(self._hear)

    def take(self, stream: SessionStream) -> None:
        """From now on, until `leave`, the stream hears of every change."""
        session = stream.session
        if self._closed:
            stream.end(Unavailable("this replica stops"))
            return
        other = self._streams.get(session.target)
        if other is not None and other.session.revision > session.revision and other.session.lease != session.lease:
            stream.end(StaleAttempt(f"session {other.session.name} followed session {session.name}", field="session"))
            return
        if other is not None:
            other.end(Unavailable(f"a newer stream serves target {session.target}"))
        self._streams[session.target] = stream
        self._end_if_removed(stream)

    def leave(self, stream: SessionStream) -> None:
        if self._streams.get(stream.session.target) is stream:
            del self._streams[stream.session.target]

    def logs_of(self, target: str) -> StreamLogs | None:
        """The logs of the stream which serves the target here."""
        stream = self._streams.get(target)
        return stream.logs if stream is not None else None

    def close(self) -> None:
        """Sends every joblet to another replica."""
        if self._closed:
            return
        self._closed = True
        self._unsubscribe()
        self.send_away("this replica stops")

    def send_away(self, why: str) -> None:
        """Sends the joblets connected now to another replica."""
        for stream in self._streams.values():
            stream.end(Unavailable(why))

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        if not self._streams:
            return
        for delta in deltas:
            if delta.tree == keys.DESIRED:
                stream = self._streams.get(delta.parts[0])
                if stream is not None:
                    stream.touch(delta.parts[1], gone=delta.new is None)
                    if delta.new is None:
                        self._end_if_removed(stream)
            elif delta.tree == keys.TARGETS:
                stream = self._streams.get(delta.parts[0]) if delta.new is None else None
                if stream is not None:
                    self._end_if_removed(stream)
            elif delta.tree == keys.INVENTORY and delta.parts[1] == keys.LIVE:
                self._hear_live(delta)

    def _end_if_removed(self, stream: SessionStream) -> None:
        """The joblet of a deleted target stays until the ends of all its fulfilments are reported."""
        target, snapshot = stream.session.target, self._cache.snapshot
        # A cache that does not know the session yet may not know the target either.
        if snapshot.revision < stream.session.revision or snapshot.has(keys.TARGETS, target):
            return
        if not snapshot.count(keys.DESIRED, target):
            stream.end(NotFound(f"target {target} was deleted", field="target"))

    def _hear_live(self, delta: Delta) -> None:
        stream = self._streams.get(delta.parts[0])
        if stream is None or delta.revision <= stream.session.revision:
            return
        lease = delta.new.stored.lease if delta.new is not None else 0
        if lease != stream.session.lease:
            now = f"session {name_of(lease)} holds it now" if lease else "it is over"
            name = stream.session.name
            stream.end(StaleAttempt(f"session {name} no longer holds target {delta.parts[0]}: {now}", field="session"))
