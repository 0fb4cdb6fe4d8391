"""One attempt of the process driver: its folder, what is observed of it, and who looks at it next.

Exactly one of these holds for an attempt that lives, so that its end is always seen by somebody: its shim is awaited
(`awaited`), its shim's process is watched (`pidfd`), a timer looks again (`timer`), or it is being buried (`buried`).
"""

from __future__ import annotations

import asyncio

from controlplane.joblet.drivers.rundir import RunDir, Stop
from controlplane.joblet.reconcile import ALIVE
from controlplane.joblet.records import Subject
from controlplane.model.fulfilment import ObservedTask, TaskRef

# How long an attempt waits for room at its target before it may go elsewhere: longer with each attempt.
START_SECONDS = 5.0
MOST_START_SECONDS = 300.0
# After what pause is tried again what failed for want of something.
TROUBLE_SECONDS = 1.0


class Attempt:
    """`pidfd` is the shim's; -1 when none is watched. `give_up_at`: when waiting for room to start is over.

    Of one that is `born` a shim was certainly made. While it `waits_for_room` nothing of it was begun, and its timer
    begins it.
    """

    def __init__(self, run: RunDir, subject: Subject, observed: ObservedTask, give_up_at: float = 0.0) -> None:
        self.run = run
        self.subject = subject
        self.observed = observed
        self.give_up_at = give_up_at
        self.pidfd = -1
        self.born = False
        self.looks = 0
        self.awaited = False
        self.buried = False
        self.waits_for_room = False
        self.told_to_wait = False
        self.timer: asyncio.TimerHandle | None = None
        self.stopping: Stop | None = None

    @property
    def ref(self) -> TaskRef:
        return self.subject.ref

    @property
    def alive(self) -> bool:
        return self.observed.phase in ALIVE

    @property
    def unwatched(self) -> bool:
        """Whether it lives and nobody would see its end."""
        return self.alive and self.pidfd < 0 and not self.awaited and not self.buried and self.timer is None

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def patience_seconds(attempt: int) -> float:
    """How long the attempt of that number waits for room."""
    return min(MOST_START_SECONDS, START_SECONDS * 2.0 ** min(attempt - 1, 10))
