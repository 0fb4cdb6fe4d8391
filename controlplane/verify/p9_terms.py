"""The part of P9 about changes of leader: at most one change of leader for each fault, and not again in 3 TTL.

Terms are dated by the clocks of their leaders, and clocks of two machines are never compared. So each span of time lies
between two terms of the same writer. A process that gains and loses leadership over and over cannot do its work; the
same holds for a replica that restarts each time, but a person may restart a replica more often.
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
# Faults in a row can take leadership from a process and give it back: twice in 3 TTL, and twice more by hand.
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
    """Too many terms of the same writer; `last` is the first term above the limit."""

    last: Recorded
    why: str


def rushes(recorded: Sequence[Recorded], ttl_seconds: float) -> Iterable[Rush]:
    """The rushes of all writers; a rush that lasts is given once per 3 TTL and writer."""
    window = WINDOW_TTLS * ttl_seconds
    yield from _rushes(recorded, lambda term: term.incarnation, MOST_OF_A_PROCESS, window)
    yield from _rushes(_first_of_a_process(recorded), lambda term: term.id, MOST_OF_A_REPLICA, window)


def _first_of_a_process(recorded: Iterable[Recorded]) -> Iterable[Recorded]:
    """The first term of every process."""
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
        # After a clock was set back, earlier terms cannot be compared.
        recent = [(at, term) for at, term in lately[name] if 0 <= _seconds(at, since) <= window]
        lately[name] = [*recent, (since, record)]
        reported = name in muted and 0 <= _seconds(muted[name], since) <= window
        if name and len(recent) >= most and not reported:
            muted[name] = since
            shown = f"{record.term.id} ({name})" if name != record.term.id else name
            why = f"is term {len(recent) + 1} of {shown} within {window:g} s (3 TTL)"
            yield Rush(record, f"{why}, of which the first was {recent[0][1].term.epoch}")


def _seconds(before: datetime, after: datetime) -> float:
    return (after - before).total_seconds()
