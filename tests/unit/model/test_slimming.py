"""Ends that are too large to be written whole are written shorter: every attempt ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controlplane.cache.ledger import LiveFulfilment
from controlplane.controller_manager import release
from controlplane.model import slimming
from controlplane.model.fulfilment import EndedTask, ObservedTask
from controlplane.store.transaction import MAX_BYTES
from tests.builders import NOW, a_fulfilment, an_identity

URL = "https://store/" + "x" * 2000


def seen(index: int, *, artefacts: int = 0, message: str = "") -> ObservedTask:
    urls = tuple(f"{URL}{at}" for at in range(artefacts))
    return ObservedTask(job="job-0", index=index, attempt=1, phase="Failed", artefacts=urls, message=message)


def ended_by_report(*tasks: ObservedTask) -> release.ReleasedAttempt:
    builder = a_fulfilment(an_identity())
    for task in tasks:
        builder = builder.task(task.index)
    observed = replace(builder.observed("Failed"), tasks=tasks)
    live = LiveFulfilment(builder.build(), 1, observed, 2)
    return release.ended_by_report(live, None, epoch=1, now=NOW)


@pytest.mark.parametrize(
    "tasks",
    [
        [seen(0, artefacts=500)],
        [seen(index, artefacts=100) for index in range(20)],
        [seen(index, message="\x00" * 4096) for index in range(1000)],
        [seen(index, artefacts=3, message="m" * 4096) for index in range(1000)],
    ],
    ids=["one task", "some tasks", "words that JSON escapes", "many tasks"],
)
def test_a_release_is_never_too_large_to_be_written(tasks: list[ObservedTask]) -> None:
    ended, item = ended_by_report(*tasks)
    assert item.size() <= MAX_BYTES // 2 + 4096
    assert [(task.index, task.phase, task.decision) for task in ended.tasks] == [
        (task.index, "Cancelled", "cancel") for task in tasks
    ]


def test_what_fits_is_kept_as_it_is() -> None:
    tasks = [seen(index, artefacts=2, message="why") for index in range(10)]
    ended, _ = ended_by_report(*tasks)
    assert [(task.artefacts, task.message) for task in ended.tasks] == [(task.artefacts, "why") for task in tasks]


def test_artefacts_are_kept_from_the_first_on_and_the_message_counts_the_others() -> None:
    (task,) = slimming.slim([seen(0, artefacts=10, message="it failed")], 4 * len(URL) + 600)
    assert task.artefacts == tuple(f"{URL}{at}" for at in range(4))
    assert task.message == "(6 artefacts are too large to be kept) it failed"


def test_without_any_room_left_an_end_names_the_targets_to_avoid_that_were_last() -> None:
    task = EndedTask(
        job="j", index=0, attempt=3, phase="Failed", decision="retry", message="m", why="w", avoid=("a", "b", "c")
    )
    assert slimming.shorten([task]) == (replace(task, message="", why="", avoid=("b", "c")),)
