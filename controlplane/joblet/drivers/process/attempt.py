"""One attempt of the process driver: its folder, its newest observation, and how its end will be noticed.

Exactly one of these holds for an attempt that lives, so that its end is never overlooked: the driver waits for its shim
to be forked (`awaited`), watches the process of its shim (`pidfd`), has a timer to look again (`timer`), or reaps the
rest of its command (`being_reaped`).
"""

from __future__ import annotations

import asyncio

import msgspec

from controlplane.aio.backoff import doubling
from controlplane.joblet.attempt_records import AttemptIdentity
from controlplane.joblet.drivers.process.rundir import RunDir, Stop
from controlplane.joblet.reconcile import observed_task
from controlplane.model.fulfilment import ObservedTask, TaskRef
from controlplane.model.task import ALIVE, AttemptPhase

# How long an attempt waits for room at its target before a policy may try the task elsewhere: longer with each attempt.
START_PATIENCE = doubling(5.0, 300.0)
# The pause before a step that failed for want of disk, descriptors or processes is repeated.
TROUBLE_SECONDS = 1.0


class ProcessAttempt:
    """An attempt that the driver knows of, alive or ended.

    pidfd: a descriptor of the shim's process, -1 while the driver watches none.
    give_up_at: when the wait for room to start is over.
    born: the fork server has confirmed that a shim was forked.
    looks: how often the driver looked for a shim that shows no evidence.
    waits_for_room: the start has failed for want of room, and the timer repeats it; nothing of the attempt exists.
    """

    def __init__(self, run: RunDir, subject: AttemptIdentity, observed: ObservedTask, give_up_at: float = 0.0) -> None:
        self.run = run
        self.subject = subject
        self.observed = observed
        self.give_up_at = give_up_at
        self.pidfd = -1
        self.born = False
        self.looks = 0
        self.awaited = False
        self.being_reaped = False
        self.waits_for_room = False
        self.logged_wait = False
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
        """Whether the attempt lives and its end would be overlooked."""
        return self.alive and self.pidfd < 0 and not self.awaited and not self.being_reaped and self.timer is None

    def observe_running(self) -> None:
        """Raises OSError when the folder cannot be read now."""
        evidence = self.run.shim()
        self.observed = msgspec.structs.replace(
            observed_task(self.ref, AttemptPhase.RUNNING),
            started=evidence.started if evidence is not None else "",
            percent=self.run.percent(),
        )

    def observe_end(self) -> bool:
        """Whether the folder holds the end of the attempt. Raises OSError when the folder cannot be read now."""
        end = self.run.end()
        if end is not None:
            self.observed = self.run.observe_end(self.ref, end, self.stopping)
        return end is not None

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
