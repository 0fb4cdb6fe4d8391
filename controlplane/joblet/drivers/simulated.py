"""Attempts that only pass time: for tests and benchmarks of all other parts.

A running attempt is a timer. A task overrides the settings of the driver with SIMULATE_DURATION and SIMULATE_EXIT_CODE
in its environment. Holders end as Lost when the session is no longer confirmed, like real ones.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Collection, Mapping

import msgspec

from controlplane.aio.clock import Clock
from controlplane.joblet.attempt_records import AttemptRecords, identity_of
from controlplane.joblet.driver import Notice
from controlplane.joblet.joblet_state import JobletState
from controlplane.joblet.log_source import LogQuery, LogSource
from controlplane.joblet.reconcile import lost, observed_task
from controlplane.model import times
from controlplane.model.driver_traits import SIMULATED, traits_of
from controlplane.model.errors import Refused
from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef
from controlplane.model.quantity import Number
from controlplane.model.task import ALIVE, AttemptPhase


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    duration: Number = 0.05
    failure_rate: float = 0.0
    seed: int = 0


class SimulatedAttempt:
    __slots__ = ("fulfilment", "observed", "timer")

    def __init__(self, fulfilment: Fulfilment, observed: ObservedTask) -> None:
        self.fulfilment = fulfilment
        self.observed = observed
        self.timer: asyncio.TimerHandle | None = None


class SimulatedDriver:
    traits = traits_of(SIMULATED)
    gate = None
    capacity = None

    def __init__(
        self, simulation: Simulation, state: JobletState, *, clock: Clock, records: AttemptRecords | None = None
    ) -> None:
        self._simulation = simulation
        self._random = random.Random(simulation.seed)
        self._state = state
        self._clock = clock
        self._records = records
        self._attempts: dict[str, dict[TaskRef, SimulatedAttempt]] = {}
        self._running = 0
        self._notice: Notice = lambda identity: None

    def attach(self, notice: Notice) -> None:
        self._notice = notice

    def fulfilments(self) -> Collection[str]:
        return list(self._attempts)

    def recall(self, fulfilment: Fulfilment) -> None:
        """Earlier joblets leave no attempts behind."""

    def seen(self, fulfilment: str) -> Mapping[TaskRef, ObservedTask]:
        attempts = self._attempts.get(fulfilment)
        return {ref: attempt.observed for ref, attempt in attempts.items()} if attempts else {}

    def running(self) -> int:
        return self._running

    def busy(self) -> bool:
        return self._running > 0

    def start(self, fulfilment: Fulfilment, task: TaskRef) -> None:
        observed = msgspec.structs.replace(observed_task(task, AttemptPhase.RUNNING), started=self._now())
        attempt = SimulatedAttempt(fulfilment, observed)
        self._attempts.setdefault(fulfilment.id, {})[task] = attempt
        try:
            seconds, exit_code = self._fate(fulfilment, task)
            if self._records is not None:
                self._records.append("started", identity_of(fulfilment, task), pid=os.getpid())
        except ValueError as error:
            attempt.observed = observed_task(task, AttemptPhase.FAILED, reason="StartError", message=str(error))
            return
        except OSError as error:
            attempt.observed = observed_task(
                task, AttemptPhase.FAILED, reason="Evicted", message=f"it cannot be recorded: {error}"
            )
            return
        self._running += 1
        loop = asyncio.get_running_loop()
        if fulfilment.holds:
            end_at = self._clock.monotonic() + seconds
            attempt.timer = loop.call_later(0, self._hold, attempt, task, end_at, exit_code)
        elif seconds <= 0:
            self._exit(attempt, task, exit_code)
        else:
            attempt.timer = loop.call_later(seconds, self._exit_later, attempt, task, exit_code)

    def stop(self, fulfilment: str, task: TaskRef, reason: str) -> None:
        attempt = self._attempts[fulfilment][task]
        self._end(attempt, task, observed_task(task, AttemptPhase.CANCELLED, reason=reason))
        asyncio.get_running_loop().call_soon(self._notice, fulfilment)

    def drop(self, fulfilment: str) -> None:
        for task, attempt in self._attempts.pop(fulfilment, {}).items():
            if attempt.observed.phase in ALIVE:
                self._end(attempt, task, observed_task(task, AttemptPhase.CANCELLED))

    def dying(self) -> int:
        """Ending takes no time."""
        return 0

    def blocks(self, fulfilment: Fulfilment) -> bool:
        """Ending takes no time, so all living attempts are desired, and desired ones never share a unique resource."""
        return False

    async def run(self) -> None:
        """Timers do all the work."""
        await asyncio.Event().wait()

    def logs(self, query: LogQuery) -> LogSource:
        raise Refused("the simulated driver runs nothing that could write anything: it has no logs")

    def _fate(self, fulfilment: Fulfilment, task: TaskRef) -> tuple[float, int]:
        spec = fulfilment.jobs.get(task.job)
        environment = spec.environment if spec is not None else {}
        seconds = float(environment.get("SIMULATE_DURATION", self._simulation.duration))
        fails = self._simulation.failure_rate > 0 and self._random.random() < self._simulation.failure_rate
        return seconds, int(environment.get("SIMULATE_EXIT_CODE", 1 if fails else 0))

    def _hold(self, attempt: SimulatedAttempt, task: TaskRef, end_at: float, exit_code: int) -> None:
        """Wakes at the end of the attempt or of the session, whichever is first."""
        now = self._clock.monotonic()
        if now >= self._state.confirmed_until:
            self._end(attempt, task, lost(task, "the session ran out"))
            self._notice(attempt.fulfilment.id)
        elif now >= end_at:
            self._exit_later(attempt, task, exit_code)
        else:
            wake_in = min(end_at, self._state.confirmed_until) - now
            attempt.timer = asyncio.get_running_loop().call_later(wake_in, self._hold, attempt, task, end_at, exit_code)

    def _exit_later(self, attempt: SimulatedAttempt, task: TaskRef, exit_code: int) -> None:
        self._exit(attempt, task, exit_code)
        self._notice(attempt.fulfilment.id)

    def _exit(self, attempt: SimulatedAttempt, task: TaskRef, exit_code: int) -> None:
        failed = exit_code != 0
        end = observed_task(
            task,
            AttemptPhase.FAILED if failed else AttemptPhase.SUCCEEDED,
            reason="Failed" if failed else "",
            message="simulated failure" if failed else "",
        )
        self._end(attempt, task, msgspec.structs.replace(end, exit_code=exit_code))

    def _end(self, attempt: SimulatedAttempt, task: TaskRef, end: ObservedTask) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        self._running -= 1
        if self._records is not None:
            identity = identity_of(attempt.fulfilment, task)
            self._records.append_later("ended", identity, pid=os.getpid(), exit_code=end.exit_code)
        attempt.observed = msgspec.structs.replace(end, started=attempt.observed.started, finished=self._now())

    def _now(self) -> str:
        return times.show(self._clock.wall())
