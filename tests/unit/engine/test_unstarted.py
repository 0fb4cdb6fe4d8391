"""Explain, of tasks that are placed and do not start."""

from __future__ import annotations

from msgspec.structs import replace

from controlplane.model.fulfilment import Fulfilment, Observed, ObservedTask
from controlplane.store import keys
from controlplane.survey.explaining import explain
from tests.engine_stage import Stage, a_job

SENTENCE = "CreateContainerConfigError: container has runAsNonRoot and image will run as root"


def seen(placed: Fulfilment, phase: str, reason: str = "", message: str = "") -> Observed:
    tasks = tuple(
        ObservedTask(job=ref.job, index=ref.index, attempt=ref.attempt, phase=phase, reason=reason, message=message)
        for ref in placed.tasks
    )
    return Observed(id=placed.id, target=placed.target, session="s", report=1, phase=phase, tasks=tasks)


def report(stage: Stage, observed: Observed) -> None:
    stage.told.write({keys.observed(observed.target, observed.id): observed})


def conclusion(stage: Stage, order: str) -> str:
    return explain(stage.told.ledgers, order, stage.now).conclusion


def test_a_placed_task_that_does_not_start_says_so_with_the_clusters_sentence() -> None:
    stage = Stage()
    stage.target("eu-1")
    order = stage.submit((1, a_job()))
    stage.cycle()
    [placed] = stage.live(order)
    assert conclusion(stage, order) == "Nothing of this order waits."
    report(stage, seen(placed, "Starting", "StartError", SENTENCE))
    assert conclusion(stage, order) == f"1 task is placed and does not start: on eu-1, StartError: {SENTENCE}."
    report(stage, replace(seen(placed, "Running"), report=2))
    assert conclusion(stage, order) == "Nothing of this order waits."


def test_what_waits_comes_first_and_causes_are_counted() -> None:
    stage = Stage()
    stage.target("eu-1", cpu=3)
    order = stage.submit((4, a_job()))
    stage.cycle()
    first, second, third = stage.live(order)
    for placed in (first, second):
        report(stage, seen(placed, "Starting", "ImageError", "refused"))
    report(stage, seen(third, "Starting", "Unschedulable", "full"))
    found = conclusion(stage, order)
    assert found.startswith("1 task waits: no target takes it")
    assert found.endswith(
        "3 tasks are placed and do not start: 2 on eu-1, ImageError: refused; 1 on eu-1, Unschedulable: full."
    )
