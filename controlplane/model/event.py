"""Event: an occurrence, its object, reason and originator; and how repeated happenings become a single event.

A Happening is a single observation. `Folding` turns happenings into events: the same object, reason and message within
the window make an event whose count grows. New events are limited by an allowance that refills with time; happenings
beyond the allowance are counted by reason and told in an event of their own. Pure: no writes, and no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from controlplane.model import texts
from controlplane.model.bounds import MAX_LINE, Count, Line, Revision, Text, Time
from controlplane.model.object import Object

NORMAL, WARNING = "Normal", "Warning"
DROPPED = "EventsDropped"
WINDOW_SECONDS = 600.0
# The number of new events at once, and per second in the long run.
ALLOWANCE = 500.0
ALLOWANCE_A_SECOND = 5.0
# The least time between writes of the same event.
AGAIN_SECONDS = 2.0
# Longer messages are cut: details are in the object itself.
MOST_TEXT = 512
_MOST_KNOWN = 5000


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Of an object without a name, the name is the identity."""

    kind: Line
    name: Text


class Event(Object, tag="Event", frozen=True, kw_only=True):
    """`events/<id>`. `at_revision` is the revision of the newest change told; `epoch` is set when a leader wrote the
    event. `owner` is that of the object, which may be gone when the event is read.
    """

    id: Line
    about: About
    type: Line = NORMAL
    reason: Line
    message: Text = ""
    by: Line = ""
    count: Count = 1
    first: Time
    last: Time
    at_revision: Revision = 0
    epoch: Revision = 0
    owner: Line = ""


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence that a person may ask about later. Revision 0: not about the change of a key."""

    about: About
    reason: str
    message: str = ""
    by: str = ""
    type: str = NORMAL
    revision: int = 0
    owner: str = ""


Record = Callable[[Happening], None]


def ignore(_happening: Happening) -> None:
    """For callers without use for events."""


@dataclass(slots=True)
class _Known:
    event: Event
    at: float
    told_at: float | None = None

    def due(self, at: float) -> bool:
        return self.told_at is None or at - self.told_at >= AGAIN_SECONDS


class Folding:
    """Happenings in, events to write out. Times are passed in: `at` is monotonic, `now` a stamp for people."""

    def __init__(self, make_identity: Callable[[], str], *, by: str, epoch: int = 0, at: float = 0.0) -> None:
        self._make_identity = make_identity
        self._by = by
        self._epoch = epoch
        self._known: dict[tuple[str, ...], _Known] = {}
        self._changed: dict[tuple[str, ...], _Known] = {}
        self._dropped: Counter[str] = Counter()
        self._allowance = ALLOWANCE
        self._filled_at = at

    def go_on_from(self, events: Iterable[Event], at: float) -> None:
        """Existing events, oldest first: their happenings are counted on, not told again."""
        for event in events:
            self._know(_key(event), _Known(event, at, told_at=at))

    def add(self, happening: Happening, at: float, now: str) -> None:
        key = _key(happening)
        folded = self._known.get(key)
        if folded is not None and at - folded.at < WINDOW_SECONDS:
            folded.event = msgspec.structs.replace(
                folded.event,
                count=folded.event.count + 1,
                last=now,
                at_revision=max(folded.event.at_revision, happening.revision),
                epoch=self._epoch,
            )
            self._changed[key] = folded
        elif self._allowed(at):
            self._know(key, _Known(self._event(happening, now), at))
            self._changed[key] = self._known[key]
        else:
            self._dropped[happening.reason] += 1

    def take(self, most: int, at: float, now: str) -> list[Event]:
        """Up to `most` events that are new or changed since they were last taken."""
        if self._dropped and self._allowed(at):
            self._tell_dropped(at, now)
        taken = []
        for key in [key for key, folded in self._changed.items() if folded.due(at)][:most]:
            folded = self._changed.pop(key)
            folded.told_at = at
            taken.append(folded.event)
        return taken

    def give_back(self, events: Iterable[Event]) -> None:
        """Events that could not be written: they are taken again, unless a newer version is folded."""
        for event in events:
            folded = self._known.get(_key(event))
            if folded is not None and folded.event.id == event.id:
                self._changed.setdefault(_key(event), folded)

    @property
    def waiting(self) -> bool:
        return bool(self._changed or self._dropped)

    def _allowed(self, at: float) -> bool:
        self._allowance = min(ALLOWANCE, self._allowance + (at - self._filled_at) * ALLOWANCE_A_SECOND)
        self._filled_at = at
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    def _tell_dropped(self, at: float, now: str) -> None:
        most = ", ".join(f"{reason} {count}" for reason, count in self._dropped.most_common(5))
        about = About(kind="Cluster", name="events")
        message = f"{self._dropped.total()} events were not kept: {most}"
        event = self._event(Happening(about=about, reason=DROPPED, message=message, type=WARNING), now)
        self._dropped.clear()
        folded = _Known(event, at)
        self._know(_key(event), folded)
        self._changed[_key(event)] = folded

    def _event(self, happening: Happening, now: str) -> Event:
        return Event(
            id=self._make_identity(),
            about=happening.about,
            type=happening.type,
            reason=happening.reason,
            message=texts.cut(happening.message, MOST_TEXT),
            by=texts.cut(happening.by or self._by, MAX_LINE),
            first=now,
            last=now,
            at_revision=happening.revision,
            epoch=self._epoch,
            owner=happening.owner,
        )

    def _know(self, key: tuple[str, ...], folded: _Known) -> None:
        """The oldest events are forgotten; a repetition makes a new event."""
        self._known.pop(key, None)
        self._known[key] = folded
        while len(self._known) > _MOST_KNOWN:
            self._known.pop(next(iter(self._known)))


def _key(subject: Happening | Event) -> tuple[str, ...]:
    return (subject.about.kind, subject.about.name, subject.reason, texts.cut(subject.message, MOST_TEXT))
