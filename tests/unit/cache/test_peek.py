"""Peeks say what decoding says."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controlplane.cache import peek
from controlplane.cache.snapshot import Entry
from controlplane.model.fulfilment import Ended, EndedTask, Fulfilment, TaskRef, TaskStop, Traits
from controlplane.model.lifecycle import FINAL_ORDER, OrderPhase, TargetPhase
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.target import Live, TargetStatus
from controlplane.model.task import TaskPhase
from controlplane.store import codec, keys
from controlplane.store.transaction import Value

S = TypeVar("S", bound=msgspec.Struct)

NAMES = st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True)
# Free texts try to look like fields.
TEXTS = st.sampled_from(["", '"phase":"Failed"', '"want":"stop"', '"held":0', '"index":3,', "x\u2028", '\\"'])
SMALL = st.integers(0, 30)
DECISIONS = ("done", "ignore", "retry", "move", "hold", "fail", "fail_order", "cancel")

COUNTS = st.builds(Counts, pending=SMALL, running=SMALL, failed=SMALL, held=st.integers(0, 2))
ORDER_STATUS = st.builds(
    OrderStatus, order=NAMES, epoch=SMALL, phase=st.sampled_from(list(OrderPhase)), counts=COUNTS, percent=SMALL,
    expired=st.lists(NAMES, max_size=2).map(tuple), replaced_by=NAMES,
)  # fmt: skip
TARGET_STATUS = st.builds(
    TargetStatus, target=NAMES, epoch=SMALL, phase=st.sampled_from(list(TargetPhase)), reason=TEXTS, driver=NAMES
)
LIVE = st.builds(
    Live, target=NAMES, session=NAMES, instance=NAMES, secret_digest=NAMES, driver=NAMES, version=TEXTS, cluster=NAMES
)
ENDED_TASK = st.builds(
    EndedTask, job=NAMES, index=SMALL, attempt=SMALL, phase=st.sampled_from(list(TaskPhase)),
    decision=st.sampled_from(DECISIONS), reason=TEXTS, message=TEXTS,
)  # fmt: skip
ENDED = st.builds(
    Ended, id=NAMES, order=NAMES, target=NAMES, epoch=SMALL, cycle=SMALL, ended=st.just(""),
    tasks=st.lists(ENDED_TASK, min_size=1, max_size=3).map(tuple),
)  # fmt: skip
FULFILMENT = st.builds(
    Fulfilment, id=NAMES, epoch=SMALL, cycle=SMALL, order=NAMES, target=NAMES, want=st.sampled_from(["run", "stop"]),
    tasks=st.just((TaskRef(job="a", index=0, attempt=1),)), reason=TEXTS,
    stop=st.lists(st.builds(TaskStop, job=NAMES, index=SMALL, reason=TEXTS), max_size=2).map(tuple),
)  # fmt: skip


def stored(item: S) -> Entry[S]:
    return Entry(keys.tree_of(type(item)), ("x",), Value("x", codec.encode(item), 1, 1, 0))


@given(ORDER_STATUS)
def test_of_an_order(status: OrderStatus) -> None:
    entry = stored(status)
    assert peek.phase(entry) == status.phase
    assert peek.is_final(entry) == (status.phase in FINAL_ORDER)
    assert peek.has_held_tasks(entry) == (status.counts.held > 0)


@given(TARGET_STATUS)
def test_of_a_target(status: TargetStatus) -> None:
    assert peek.phase(stored(status)) == status.phase


@given(LIVE)
def test_of_a_session(live: Live) -> None:
    entry = Entry[Live](keys.INVENTORY, ("x", keys.LIVE), Value("x", codec.encode(live), 1, 1, 0))
    assert peek.session(entry) == live.session
    assert peek.instance(entry) == live.instance


@given(ENDED, SMALL)
def test_of_ended_attempts(ended: Ended, index: int) -> None:
    entry = stored(ended)
    assert peek.has_failed(entry) == any(task.phase == "Failed" for task in ended.tasks)
    assert peek.goes_on(entry) == any(task.decision in ("retry", "hold") for task in ended.tasks)
    assert list(peek.with_index([entry], index)) == ([entry] if index in {task.index for task in ended.tasks} else [])


@given(FULFILMENT)
def test_of_a_fulfilment(fulfilment: Fulfilment) -> None:
    assert peek.wants_stop(stored(fulfilment)) == (fulfilment.want == "stop")
    labelled = msgspec.structs.replace(fulfilment, traits=Traits(labels={"want": "stop"}))
    assert peek.wants_stop(stored(labelled)), "decoding says that this is a label"


def test_of_a_key_that_is_not_there() -> None:
    assert (peek.phase(None), peek.session(None), peek.instance(None)) == ("", "", "")


def test_of_a_value_that_is_no_object() -> None:
    poison = Entry[OrderStatus](keys.ORDER_STATUS, ("x",), Value("x", b"\xff", 1, 1, 0))
    assert peek.phase(poison) == ""
    assert not peek.is_final(poison)
