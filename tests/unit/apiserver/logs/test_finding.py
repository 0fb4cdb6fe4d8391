"""Which task and which attempt a reader of logs means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from controlplane.apiserver.logs.task_attempts import TaskAttempt, TaskPlace, attempts_of, check, choose, place_of
from controlplane.cache.snapshot import Entry
from controlplane.model.errors import Invalid, NotFound, Refused
from controlplane.model.fulfilment import Ended, EndedTask
from controlplane.model.job import Job
from controlplane.model.order import Order, Resolved, ResolvedJob
from controlplane.store import codec, keys
from controlplane.store.transaction import Value
from controlplane.wire.v1.logs_pb2 import LogResume, LogsRequest
from tests.builders import an_order

ORDER = "01HZZZZZZZZZZZZZZZZZZZZZZZ"
RESOLVED = Resolved(jobs=(ResolvedJob(job=Job(name="a"), count=1), ResolvedJob(job=Job(name="b"), count=3)))


def asked(**fields: Any) -> LogsRequest:
    return LogsRequest(id=ORDER, **fields)


def order() -> Order:
    return an_order().build()


def an_attempt(number: int) -> TaskAttempt:
    return TaskAttempt(number, "here", f"f{number}", begun=True, over=True)


def an_end(*tasks: tuple[str, int, int], target: str = "here") -> Entry[Ended]:
    ended = Ended(
        id="f", order=ORDER, target=target, epoch=1, cycle=1, ended="",
        tasks=tuple(
            EndedTask(job=job, index=index, attempt=attempt, phase="Failed", decision="retry")
            for job, index, attempt in tasks
        ),
    )  # fmt: skip
    return Entry[Ended](keys.ENDED, (ORDER, "f"), Value("key", codec.encode(ended), 1, 1, 0))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"stream": "both"}, "stream"),
        ({"attempt": -1}, "attempt"),
        ({"attempt": 1, "previous": True}, "previous"),
        ({"tail_lines": -1}, "tail_lines"),
        ({"resume": LogResume(attempt=-1)}, "resume"),
        ({"resume": LogResume(attempt=2), "attempt": 1}, "resume"),
    ],
)
def test_a_question_that_is_not_clear_is_refused_with_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        check(asked(**fields))
    assert refused.value.field == field


def test_an_order_that_is_no_identity_is_refused() -> None:
    with pytest.raises(Invalid, match="ULID"):
        check(LogsRequest(id="nothing"))


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({}, Invalid, "job"),
        ({"job": "c"}, NotFound, "job"),
        ({"job": "b"}, Invalid, "index"),
        ({"job": "b", "index": 3}, NotFound, "index"),
        ({"job": "b", "index": -1}, NotFound, "index"),
    ],
)
def test_a_task_that_is_not_there_or_not_one_is_refused(
    fields: dict[str, Any], error: type[Refused], field: str
) -> None:
    with pytest.raises(error) as refused:
        place_of(asked(**fields), order(), RESOLVED)
    assert refused.value.field == field


def test_positions_count_through_all_jobs_and_one_task_needs_no_index() -> None:
    assert place_of(asked(job="a"), order(), RESOLVED) == TaskPlace("a", 0, 0)
    assert place_of(asked(job="b", index=2), order(), RESOLVED) == TaskPlace("b", 2, 3)


def test_attempts_of_other_tasks_and_poison_are_stepped_over() -> None:
    poison = Entry[Ended](keys.ENDED, (ORDER, "p"), Value("key", b'{"index":1,', 1, 1, 0))
    ended = [an_end(("b", 1, 2)), an_end(("b", 1, 1), ("b", 2, 1)), an_end(("a", 1, 7)), poison]
    assert [attempt.number for attempt in attempts_of(TaskPlace("b", 1, 2), None, ended)] == [1, 2]


@pytest.mark.parametrize(
    ("known", "fields", "after", "number"),
    [
        ([1, 2, 3], {}, 0, 3),
        ([1, 2, 3], {"previous": True}, 0, 2),
        ([1, 2, 3], {"attempt": 1}, 0, 1),
        ([1, 2, 3], {"resume": LogResume(attempt=2)}, 0, 2),
        ([1, 2, 5], {}, 2, 5),
        ([1, 2], {}, 2, None),
        ([], {}, 0, None),
    ],
)
def test_the_newest_attempt_is_read_unless_another_is_asked_for(
    known: Sequence[int], fields: dict[str, Any], after: int, number: int | None
) -> None:
    chosen = choose([an_attempt(one) for one in known], asked(**fields), after)
    assert (chosen.number if chosen is not None else None) == number


def test_an_attempt_that_never_was_is_not_found() -> None:
    with pytest.raises(NotFound, match="1, 2"):
        choose([an_attempt(1), an_attempt(2)], asked(attempt=3), 0)
    with pytest.raises(NotFound, match="previous"):
        choose([an_attempt(1)], asked(previous=True), 0)


@pytest.mark.parametrize(("reason", "trouble"), [("StartError", "StartError: no such file"), ("Failed", "")])
def test_an_attempt_that_could_not_be_started_says_so_instead_of_having_output(reason: str, trouble: str) -> None:
    task = EndedTask(
        job="a", index=0, attempt=1, phase="Failed", decision="fail", reason=reason, message="no such file"
    )
    ended = Ended(id="f", order=ORDER, target="here", epoch=1, cycle=1, ended="", tasks=(task,))
    entry = Entry[Ended](keys.ENDED, (ORDER, "f"), Value("key", codec.encode(ended), 1, 1, 0))
    [attempt] = attempts_of(TaskPlace("a", 0, 0), None, [entry])
    assert (attempt.trouble, attempt.failed_to_start) == (trouble, bool(trouble))
