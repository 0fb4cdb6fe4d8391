"""Builds a small history the way etcd keeps one: transactions, revisions, create revisions; and shows it to a check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from controlplane.model.fulfilment import Claim, Ended, EndedTask, Fulfilment, Observed, ObservedTask, TaskRef
from controlplane.model.leadership import Candidate, Cycle, Term, TermEnd
from controlplane.model.order import Counts, Order, OrderStatus
from controlplane.model.quantity import Number
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.store import codec, keys
from controlplane.store.transaction import Value
from controlplane.store.watch import Change
from controlplane.verify import history
from controlplane.verify.promise_verdicts import HistoryListener

L = TypeVar("L", bound=HistoryListener)
Written = msgspec.Struct | bytes | None
ORDER = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
NOW = "2026-11-16T00:00:00.000Z"


class Past:
    """Revision 1 is the empty etcd. Each `commit` is one transaction: key -> object, raw bytes, or None to delete."""

    def __init__(self) -> None:
        self.revision = 1
        self._created: dict[str, int] = {}
        self.changes: list[Change] = []

    def commit(self, writes: Mapping[str, Written]) -> int:
        self.revision += 1
        for key, written in writes.items():
            self.changes.append(Change(key, self.revision, self._value(key, written)))
        return self.revision

    def _value(self, key: str, written: Written) -> Value | None:
        if written is None:
            self._created.pop(key, None)
            return None
        raw = written if isinstance(written, bytes) else codec.encode(written)
        return Value(key, raw, self._created.setdefault(key, self.revision), self.revision, 0)

    def elect(self, lease: int = 1) -> int:
        """A candidate enters the queue; the epoch it will lead under is the answer."""
        return self.commit({keys.candidate(lease): candidate()})

    def told_to(self, check: L, *, since: int = 1) -> L:
        """Shows the check the state at that revision and everything after it."""
        state: dict[str, Value] = {}
        for change in self.changes:
            if change.revision > since:
                continue
            state.pop(change.key, None)
            if change.value is not None:
                state[change.key] = change.value
        check.start([history.of_value(state[key]) for key in sorted(state)])
        later = [change for change in self.changes if change.revision > since]
        for revision, events in history.by_revision(later):
            check.change(revision, events)
        return check


def candidate(name: str = "replica-1") -> Candidate:
    return Candidate(id=name, incarnation="i", grpc="g", http="h", pulse="p", pid=1, version="1")


def term(epoch: int, ended: TermEnd | None = None) -> Term:
    return Term(epoch=epoch, id="replica-1", since=NOW, ended=ended)


def cycle(epoch: int, n: int, *, revision: int = 1) -> Cycle:
    return Cycle(
        epoch=epoch, n=n, revision=revision, now=NOW, seed=0, settings_digest="s", engine="e", considered=0, placed=0,
        seconds=0.0, hash="h",
    )  # fmt: skip


def order(name: str = ORDER, *, digest: str = "d", resolved: bytes = b"{}", cancel: bool = False) -> Order:
    return Order(
        id=name, priority=50, created=NOW, orchestration="push", tasks_total=1, digest=digest, resolved_digest="r",
        resolved=msgspec.Raw(resolved), cancel=cancel,
    )  # fmt: skip


def status(phase: str, *, epoch: int = 2) -> OrderStatus:
    return OrderStatus(order=ORDER, epoch=epoch, phase=phase, counts=Counts())


def target_status(phase: str) -> TargetStatus:
    return TargetStatus(target="eu", epoch=2, phase=phase)


def target(**capacity: Number) -> Target:
    return Target(name="eu", capacity=capacity)


def live(**capacity: Number) -> Live:
    return Live(target="eu", session="s", instance="i", secret_digest="d", driver="process", capacity=capacity)


def fulfilment(
    name: str, *, attempt: int = 1, index: int = 0, holds: tuple[str, ...] = (), want: str = "run", cpu: Number = 1
) -> Fulfilment:
    return Fulfilment(
        id=name, epoch=2, cycle=1, order=ORDER, target="eu", holds=holds, want=want, requests={"cpu": cpu},
        tasks=(TaskRef(job="render", index=index, attempt=attempt),),
    )  # fmt: skip


def claim(resource: str, holder: str) -> Claim:
    return Claim(resource=resource, fulfilment=holder, order=ORDER, target="eu", epoch=2)


def ended(name: str, *, attempt: int = 1) -> Ended:
    task = EndedTask(job="render", index=0, attempt=attempt, phase="Failed", decision="retry")
    return Ended(id=name, order=ORDER, target="eu", epoch=2, cycle=1, tasks=(task,), ended=NOW)


def observed(name: str, phase: str) -> Observed:
    task = ObservedTask(job="render", index=0, attempt=1, phase=phase)
    return Observed(id=name, target="eu", session="s", report=1, phase=phase, tasks=(task,))


def place(name: str) -> str:
    return keys.desired("eu", name)
