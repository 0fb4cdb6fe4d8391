"""The part of P9 about dead processes: an attempt whose process is gone does not stay Running.

A shim records the end of its attempt, and its joblet notices when a shim was killed. So an attempt that was started,
whose process is gone and whose end is not recorded, must be reported as ended soon, as long as its target is Ready.
Only the process driver starts processes that can be looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controlplane.model.driver_traits import traits_of
from controlplane.verify.joblet_records import JobletRecord
from controlplane.verify.p9_orders import TAKEN_UP_SECONDS
from controlplane.verify.present import Present
from controlplane.verify.suspicion import Suspicion

_READY = "Ready"


class UnnoticedDeaths:
    """`lives` tells whether the attempt of a record runs now, on this machine."""

    promise = "P9"

    def __init__(self, records: Iterable[JobletRecord], lives: Callable[[JobletRecord], bool]) -> None:
        self._lives = lives
        self._unended: dict[str, dict[tuple[str, str, int, int], JobletRecord]] = {}
        for record in records:
            attempts = self._unended.setdefault(record.key, {})
            if record.event == "started":
                attempts[record.run] = record
            else:
                attempts.pop(record.run, None)
            if not attempts:
                del self._unended[record.key]

    def subjects(self, present: Present) -> Iterable[str]:
        return [key for key in self._unended if key in present.placements]

    def suspect(self, present: Present, subject: str) -> Suspicion | None:
        placement, report = present.placements.get(subject), present.reports.get(subject)
        if placement is None or report is None or report.over:
            return None
        target = placement.fulfilment.target
        session, status = present.sessions.get(target), present.targets.get(target)
        if session is None or not traits_of(session.driver).runs_commands or status is None or status.phase != _READY:
            return None
        dead = [record for record in self._unended[subject].values() if not self._lives(record)]
        if not dead:
            return None
        names = ", ".join(f"{record.job}/{record.index}" for record in dead)
        why = f"is reported as under way, but the process of {names} is gone and no end is on record"
        return Suspicion(subject, report.revision, why, TAKEN_UP_SECONDS)
