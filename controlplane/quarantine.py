"""Quarantine: isolated failures, so that an error in the handling of a key concerns only the same key.

Components report the keys whose handling raised. A failure is logged with its traceback, told in an event, counted, and
the key is tried again with back-off: each failure in a row makes the key wait longer. A key that was handled again is
forgotten after a while; until then its next failure counts on. The component keeps the timer of the key; the quarantine
only says how long to wait. Deposed and cancellation are no failures of a key and are never reported (`ends_term`).
"""

from __future__ import annotations

import asyncio
import heapq
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from controlplane.aio.clock import Clock
from controlplane.model import times
from controlplane.model.errors import Deposed
from controlplane.model.event import WARNING, About, Happening, Record, ignore
from controlplane.model.isolation import FAILED, HANDLED, Isolated, sentence

log = structlog.get_logger(__name__)

BACK_OFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
# A changed key may be tried before its back-off is over, but never sooner after a failure than this.
LEAST_SECONDS = 1.0
_REMEMBERED_SECONDS = 600.0
# Supervised work counts as handled again when the work has not failed for so long.
_HEALED_SECONDS = 10.0
_MANY = 1000
_MOST_LOGGED, _LOG_SECONDS = 50, 10.0
_MOST_FRAMES = 25

Key = tuple[str, str, str]


@dataclass(slots=True)
class _Case:
    error: str
    since: str
    count: int
    failed_at: float
    again_at: float
    again: str
    healed: bool = False


class Quarantine:
    """`failures` counts every isolated failure so far; `changed` is set whenever the set of isolated keys changes."""

    def __init__(self, clock: Clock, record: Record = ignore) -> None:
        self._clock = clock
        self._record = record
        self._cases: dict[Key, _Case] = {}
        self._ill = 0
        self._logged, self._logged_since = 0, 0.0
        self.failures = 0
        self.changed = asyncio.Event()

    def ward(self, part: str) -> PartWard:
        return PartWard(self, part)

    def failed(self, part: str, kind: str, name: str, error: Exception) -> float:
        """Isolates the key; returns the seconds after which the key is tried again."""
        key, now = (part, kind, name), self._clock.monotonic()
        before = self._cases.get(key)
        count = before.count + 1 if before is not None else 1
        seconds = BACK_OFF_SECONDS[min(count, len(BACK_OFF_SECONDS)) - 1]
        wall = self._clock.wall()
        since = before.since if before is not None and not before.healed else times.show(wall)
        again = times.show(wall + timedelta(seconds=seconds))
        if before is None or before.healed:
            self._ill += 1
        self._cases[key] = _Case(sentence(error), since, count, now, now + seconds, again)
        self.failures += 1
        fields = {"part": part, "kind": kind, "name": name, "count": count, "again_seconds": seconds}
        if self._logs_now(now):
            log.error("handling of a key failed, the key is tried again later", **fields, traceback=_traceback(error))
        message = f"{part}: {sentence(error)}"
        self._record(Happening(about=About(kind=kind, name=name), reason=FAILED, message=message, type=WARNING))
        self._forget_old(now)
        self.changed.set()
        return seconds

    def _logs_now(self, now: float) -> bool:
        """A traceback takes a millisecond, and many keys may fail at once: only the first of each period are logged."""
        if now - self._logged_since >= _LOG_SECONDS:
            self._logged, self._logged_since = 0, now
        self._logged += 1
        return self._logged <= _MOST_LOGGED

    def passed(self, part: str, kind: str, name: str) -> None:
        case = self._cases.get((part, kind, name)) if self._ill else None
        if case is not None and not case.healed:
            case.healed = True
            self._ill -= 1
            about, message = About(kind=kind, name=name), f"{part} handles it again"
            self._record(Happening(about=about, reason=HANDLED, message=message))
            self.changed.set()

    def holds(self, part: str, kind: str, name: str) -> bool:
        """Whether the key failed and its time to be tried again has not come."""
        case = self._cases.get((part, kind, name)) if self._ill else None
        return case is not None and not case.healed and self._clock.monotonic() < case.again_at

    def left_seconds(self, part: str, kind: str, name: str) -> float:
        """How long the key has to wait at least, although the key changed; 0 when a try is allowed now."""
        case = self._cases.get((part, kind, name)) if self._ill else None
        if case is None or case.healed:
            return 0.0
        return max(0.0, case.failed_at + LEAST_SECONDS - self._clock.monotonic())

    def hurry(self, part: str, kind: str, name: str) -> None:
        """Notes that the key changed: a try is allowed as soon as LEAST_SECONDS have passed since the failure."""
        case = self._cases.get((part, kind, name)) if self._ill else None
        if case is not None:
            case.again_at = min(case.again_at, case.failed_at + LEAST_SECONDS)

    def took_part(self, part: str, since: float) -> None:
        """Marks all keys of the component as handled again that were free to be tried at `since` and did not fail."""
        if not self._ill:
            return
        for key, case in tuple(self._cases.items()):
            if key[0] == part and not case.healed and case.failed_at < since and case.again_at <= since:
                self.passed(*key)

    def names(self, part: str, kind: str, held_at: float) -> list[str]:
        """The keys of the kind that the component left out at the moment `held_at`, in order."""
        if not self._ill:
            return []
        return sorted(
            name
            for (of_part, of_kind, name), case in self._cases.items()
            if (of_part, of_kind) == (part, kind)
            and not case.healed
            and (case.again_at > held_at or case.failed_at >= held_at)
        )

    def next_seconds(self, part: str) -> float | None:
        """How long until a key of the component may be tried again; None when none is isolated."""
        moments = [case.again_at for key, case in self._cases.items() if key[0] == part and not case.healed]
        return max(0.0, min(moments) - self._clock.monotonic()) if moments else None

    def due(self, part: str, kind: str) -> list[str]:
        """The isolated keys of the kind whose time to be tried again has come."""
        now = self._clock.monotonic()
        return [
            name
            for (of_part, of_kind, name), case in self._cases.items()
            if (of_part, of_kind) == (part, kind) and not case.healed and case.again_at <= now
        ]

    @property
    def total(self) -> int:
        return self._ill

    def isolated(self, most: int) -> tuple[Isolated, ...]:
        """The newest isolated keys, at most `most`."""
        if not self._ill:
            return ()
        every = ((key, case) for key, case in self._cases.items() if not case.healed)
        ill = heapq.nlargest(most, every, key=lambda pair: pair[1].since)
        return tuple(
            Isolated(
                about=About(kind=kind, name=name),
                part=part,
                error=case.error,
                count=case.count,
                since=case.since,
                again=case.again,
            )
            for (part, kind, name), case in ill
        )

    async def supervise(self, part: str, kind: str, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Runs the work until the work returns; starts the work again, with back-off, after any error but Deposed."""
        healing: asyncio.TimerHandle | None = None
        try:
            while True:
                try:
                    return await work()
                except Exception as error:
                    if ends_term(error):
                        raise
                    if healing is not None:
                        healing.cancel()
                    seconds = self.failed(part, kind, name, error)
                    await self._clock.sleep(seconds)
                    loop = asyncio.get_running_loop()
                    healing = loop.call_later(_HEALED_SECONDS, self.passed, part, kind, name)
        finally:
            if healing is not None:
                healing.cancel()

    def _forget_old(self, now: float) -> None:
        if len(self._cases) > 2 * self._ill + _MANY:
            self._cases = {
                key: case
                for key, case in self._cases.items()
                if not case.healed or now - case.failed_at < _REMEMBERED_SECONDS
            }


class PartWard:
    """The ward of one component in a quarantine."""

    def __init__(self, quarantine: Quarantine, part: str) -> None:
        self._quarantine = quarantine
        self._part = part

    def empty(self) -> bool:
        return not self._quarantine.total

    def holds(self, kind: str, name: str) -> bool:
        return self._quarantine.holds(self._part, kind, name)

    def failed(self, kind: str, name: str, error: Exception) -> None:
        self._quarantine.failed(self._part, kind, name, error)

    def passed(self, kind: str, name: str) -> None:
        self._quarantine.passed(self._part, kind, name)


def _traceback(error: Exception) -> str:
    """A traceback of bounded length, and without the values of variables, however logs are written."""
    return "".join(traceback.format_exception(error, limit=-_MOST_FRAMES, chain=False))


def ends_term(error: BaseException) -> bool:
    """Whether the error is Deposed, or a group with Deposed among others: the replica no longer leads."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(Deposed)[0] is not None
    return isinstance(error, Deposed)
