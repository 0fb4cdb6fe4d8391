"""What ledgers make of wishes about single tasks and of the deadline; a replica that starts anew comes to the same."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.placement_hint import PlacementHint
from controlplane.model.order import Counts, Move, Order, OrderStatus, Release, TaskSelection
from controlplane.model.task import TaskState
from controlplane.store import keys
from tests.builders import NOW, FulfilmentBuilder, OrderBuilder, a_fulfilment, an_order
from tests.picture import Told
from tests.scenes import examples

LATER = "2100-01-01T00:00:00.000Z"
TWO_JOBS = an_order().of(3).jobs(cpu=1).of(2).jobs(cpu=1)


class Stage:
    def __init__(self, builder: OrderBuilder) -> None:
        self.told = Told()
        self.order = builder.build()
        self.told.write({keys.order(self.order.id): self.order})

    @property
    def ledger(self) -> OrderLedger:
        return self.told.ledgers.orders[self.order.id]

    def wish(self, **said: Any) -> None:
        self.order = msgspec.structs.replace(self.order, **said)
        self.told.write({keys.order(self.order.id): self.order})

    def place(self, index: int, *, job: str = "job-0", attempt: int = 1) -> FulfilmentBuilder:
        one = a_fulfilment(self.order.id).task(index, job=job, attempt=attempt)
        self.told.write({keys.desired("t1", one.identity): one.build()})
        return one

    def end(self, one: FulfilmentBuilder, decision: str, **said: Any) -> None:
        ended = one.ended(decision, **said)
        self.told.write({keys.desired("t1", one.identity): None, keys.ended(self.order.id, one.identity): ended})

    def expire(self, *jobs: str) -> None:
        status = OrderStatus(order=self.order.id, epoch=1, phase="Running", counts=Counts(), expired=jobs)
        self.told.write({keys.order_status(self.order.id): status})

    def checked(self) -> Counts:
        """The counts, after a look at whether a fresh replica sees the same."""
        assert picture(self.told.ledgers, self.order) == picture(self.told.rebuilt(), self.order)
        return self.ledger.counts()


def picture(ledgers: Ledgers, order: Order) -> Any:
    ledger = ledgers.orders[order.id]
    jobs = {
        name: (
            bytes(job.state),
            job.counts,
            [job.attempt(index) for index in range(job.count)],
            [(hint, count, sorted(job.take(99, LATER, hint))) for hint, count in job.parts(LATER)],
            job.parts(NOW),
            [job.retried(index) for index in range(job.count) if job.state[index] < 3],
        )
        for name, job in ledger.jobs.items()
    }
    return jobs, ledger.counts(), ledger.doomed, ledger.expired, ledger.pending(), ledger.stuck


def test_a_waiting_task_that_its_user_cancels_is_over() -> None:
    stage = Stage(TWO_JOBS)
    stage.wish(cancel_tasks=(TaskSelection(job="job-0", index=1),))
    assert stage.checked() == Counts(pending=4, cancelled=1)
    assert stage.ledger.jobs["job-0"].take(9, NOW) == [(0, 1), (2, 1)]


def test_a_cancelled_job_is_over_but_for_what_is_placed() -> None:
    stage = Stage(TWO_JOBS)
    one, other = stage.place(0), stage.place(1)
    stage.end(other, "retry", not_before=LATER)
    stage.wish(cancel_tasks=(TaskSelection(job="job-0"),))
    assert stage.checked() == Counts(pending=2, placed=1, cancelled=2)
    stage.end(one, "cancel")
    assert stage.checked() == Counts(pending=2, cancelled=3)


@pytest.mark.parametrize("decision", ["retry", "move", "hold"])
def test_what_comes_back_from_a_target_after_it_was_cancelled_is_over(decision: str) -> None:
    stage = Stage(an_order().jobs(cpu=1))
    one = stage.place(0)
    stage.wish(cancel_tasks=(TaskSelection(job="job-0", index=0),))
    stage.end(one, decision)
    assert stage.checked() == Counts(cancelled=1)


def test_a_placement_that_crossed_with_the_wish_is_live_until_it_ends() -> None:
    stage = Stage(an_order().jobs(cpu=1))
    stage.wish(cancel_tasks=(TaskSelection(job="job-0", index=0),))
    one = stage.place(0)
    assert stage.checked() == Counts(placed=1)
    stage.end(one, "cancel")
    assert stage.checked() == Counts(cancelled=1)


def test_a_held_task_waits_until_it_is_released_and_is_held_anew_after_that() -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1))
    stage.end(stage.place(0), "hold")
    assert stage.checked() == Counts(pending=1, held=1)
    stage.wish(releases=(Release(until=stage.told.history.revision, job="job-0", index=0),))
    assert stage.checked() == Counts(pending=2)
    assert stage.ledger.jobs["job-0"].take(9, NOW) == [(0, 2), (1, 1)]
    stage.end(stage.place(0, attempt=2), "hold")
    assert stage.checked() == Counts(pending=1, held=1)


@pytest.mark.parametrize(
    ("job", "index", "held"), [("", None, 0), ("job-0", None, 1), ("job-1", 0, 2), ("job-1", 1, 3)]
)
def test_a_release_is_for_one_task_a_job_or_the_order(job: str, index: int | None, held: int) -> None:
    stage = Stage(TWO_JOBS)
    for name, at in (("job-0", 0), ("job-0", 2), ("job-1", 0)):
        stage.end(stage.place(at, job=name), "hold")
    stage.wish(releases=(Release(until=stage.told.history.revision, job=job, index=index),))
    assert stage.checked().held == held


def test_a_task_that_left_a_target_avoids_it_and_forms_its_own_group() -> None:
    stage = Stage(an_order().of(3).jobs(cpu=1))
    stage.end(stage.place(1), "retry", avoid=("t1",))
    job = stage.ledger.jobs["job-0"]
    assert job.parts(NOW) == [(PlacementHint(), 2), (PlacementHint(("t1",)), 1)]
    assert job.take(9, NOW) == [(0, 1), (2, 1)]
    assert job.take(9, NOW, PlacementHint(("t1",))) == [(1, 2)]
    stage.checked()


def test_the_deadline_fails_what_waits_and_nothing_else() -> None:
    stage = Stage(TWO_JOBS)
    one = stage.place(0)
    stage.end(stage.place(1), "hold")
    stage.expire("job-0")
    assert stage.checked() == Counts(pending=2, placed=1, failed=2)
    stage.end(one, "retry")
    assert stage.checked() == Counts(pending=2, failed=3)


def test_jobs_that_wait_for_one_that_is_over_without_success_never_run() -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1).after("job-0").jobs(cpu=1))
    stage.wish(cancel_tasks=(TaskSelection(job="job-0", index=0),))
    assert stage.checked() == Counts(pending=1, cancelled=3)


def test_one_task_may_fail_the_whole_order() -> None:
    stage = Stage(TWO_JOBS)
    stage.place(0)
    stage.end(stage.place(1), "fail_order")
    assert stage.checked() == Counts(placed=1, failed=1, cancelled=3)
    assert not stage.ledger.wants_room()


class Storm:
    """Things that may happen to an order, in any order; wishes as an apiserver lets them in."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.stage = Stage(TWO_JOBS)
        self.live: list[FulfilmentBuilder] = []

    def happen(self) -> None:
        acts = [self.place, self.place, self.end, self.end, self.cancel, self.move, self.release, self.expire]
        self.random.choice(acts)()

    def place(self) -> None:
        name = self.random.choice(["job-0", "job-1"])
        ledger = self.stage.ledger
        if not ledger.wants_room():
            return
        for hint, _ in ledger.jobs[name].parts(LATER):
            for index, attempt in ledger.jobs[name].take(1, LATER, hint):
                self.live.append(self.stage.place(index, job=name, attempt=attempt))

    def end(self) -> None:
        if self.live:
            one = self.live.pop(self.random.randrange(len(self.live)))
            decision = self.random.choice(["retry", "retry", "move", "hold", "fail", "done", "ignore", "cancel"])
            avoid = self.random.choice([(), ("t1",), ("t1", "t2")])
            self.stage.end(one, decision, reason=self.random.choice(["Lost", "Evicted"]), avoid=avoid)

    def _task(self) -> tuple[str, int]:
        name = self.random.choice(["job-0", "job-1"])
        return name, self.random.randrange(self.stage.ledger.jobs[name].count)

    def cancel(self) -> None:
        name, index = self._task()
        if name not in self.stage.ledger.expired and self.random.random() < 0.3:
            wish = TaskSelection(job=name, index=self.random.choice([index, index, None]))
            self.stage.wish(cancel_tasks=(*self.stage.order.cancel_tasks, wish))

    def move(self) -> None:
        name, index = self._task()
        attempt = self.stage.ledger.jobs[name].attempt(index)
        others = tuple(one for one in self.stage.order.moves if (one.job, one.index) != (name, index))
        live = self.stage.ledger.jobs[name].state[index] == TaskState.PLACED
        to = self.random.choice(["", "t1", "t2"] if live else ["t1", "t2"])
        self.stage.wish(moves=(*others, Move(job=name, index=index, attempt=attempt, to=to)))

    def release(self) -> None:
        name, index = self._task()
        until = self.stage.told.history.revision
        release = self.random.choice([Release(until=until), Release(until=until, job=name, index=index)])
        self.stage.wish(releases=(*self.stage.order.releases, release))

    def expire(self) -> None:
        wished = {one.job for one in self.stage.order.cancel_tasks}
        if self.random.random() < 0.1 and "job-1" not in wished:
            self.stage.expire("job-1")


@examples(150)
@given(st.binary(min_size=8, max_size=8))
def test_a_replica_that_starts_anew_sees_every_order_as_the_others_do(seed: bytes) -> None:
    storm = Storm(Random(seed))
    for _ in range(25):
        storm.happen()
        counts = storm.stage.checked()
        assert sum(msgspec.structs.astuple(counts)) == storm.stage.order.tasks_total
        assert min(msgspec.structs.astuple(counts)) >= 0
