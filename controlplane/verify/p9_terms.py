"""The part of P9 about how often leaders change: at most one change of leader for each fault, and not again in 3 TTL.

Terms are dated by the clocks of the machines that led, which are not compared. So each span of time is taken between
two terms of one and the same writer. A process that leads, loses that and leads again soon, over and over, falls over
its own work; a replica that is started again each time does so too, but a person may restart it more often.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.model import times
from controlplane.model.errors import Invalid
from controlplane.model.leadership import Term

WINDOW_TTLS = 3
# Faults in a row can take leadership from one process and give it back: two of them in 3 TTL, and as many by hand.
MOST_OF_A_PROCESS = 4
# A drill kills and restarts a replica of two every other second, which is seven times in 3 TTL of 5 s.
MOST_OF_A_REPLICA = 8


@dataclass(frozen=True, slots=True)
class Recorded:
    """A term with the key and the revision of its record."""

    key: str
    revision: int
    term: Term


@dataclass(frozen=True, slots=True)
class Rush:
    """Too many terms of one writer; `last` is the one with which there were too many."""

    last: Recorded
    why: str


def rushes(recorded: Sequence[Recorded], ttl_seconds: float) -> Iterable[Rush]:
    """Of a rush that goes on, one for every 3 TTL and writer."""
    window = WINDOW_TTLS * ttl_seconds
    yield from _rushes(recorded, lambda term: term.incarnation, MOST_OF_A_PROCESS, window)
    yield from _rushes(_first_of_a_process(recorded), lambda term: term.id, MOST_OF_A_REPLICA, window)


def _first_of_a_process(recorded: Iterable[Recorded]) -> Iterable[Recorded]:
    """Terms by which a replica that was started again leads for the first time."""
    processes: set[str] = set()
    for record in recorded:
        process = record.term.incarnation
        if not process or process not in processes:
            yield record
        processes.add(process)


def _rushes(recorded: Iterable[Recorded], writer: Callable[[Term], str], most: int, window: float) -> Iterable[Rush]:
    lately: defaultdict[str, list[tuple[datetime, Recorded]]] = defaultdict(list)
    muted: dict[str, datetime] = {}
    for record in recorded:
        name = writer(record.term)
        try:
            since = times.parse(record.term.since, "since")
        except Invalid:
            continue
        # A clock that was set back says nothing about the terms before.
        recent = [(at, term) for at, term in lately[name] if 0 <= _seconds(at, since) <= window]
        lately[name] = [*recent, (since, record)]
        reported = name in muted and 0 <= _seconds(muted[name], since) <= window
        if name and len(recent) >= most and not reported:
            muted[name] = since
            who = f"{record.term.id} ({name})" if name != record.term.id else name
            why = f"is term {len(recent) + 1} of {who} within {window:g} s (3 TTL)"
            yield Rush(record, f"{why}, of which the first was {recent[0][1].term.epoch}")


def _seconds(before: datetime, after: datetime) -> float:
    return (after - before).total_seconds()
