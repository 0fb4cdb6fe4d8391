"""P4 on lost clusters: a claim that went while its holder may have lived is found."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controlplane.model.fulfilment import TaskSpec
from controlplane.model.order import Stopped
from controlplane.store import keys
from controlplane.verify.p4_exclusive import ExclusiveCheck
from tests.unit.verify import past
from tests.unit.verify.past import ORDER, Past

LICENCE = keys.claim("licence")


def a_loss(
    *, driver: str = "kubernetes", phase: str | None = "Running", limit: float | None = 60, after: str = "00:01:00",
    epoch: int = 2, words: tuple[Stopped, ...] = (), reason: str = "TargetLost",
) -> list[str]:  # fmt: skip
    """The whys of a holder that was given up `after` its target failed at midnight."""
    story = Past()
    jobs = {"render": TaskSpec(time_limit=limit)}
    holder = replace(past.fulfilment("A", holds=("licence",)), jobs=jobs)
    story.commit({past.place("A"): holder, LICENCE: past.claim("licence", "A")})
    if phase is not None:
        story.commit({keys.observed("eu", "A"): past.observed("A", phase)})
    failed = replace(past.target_status("Failed"), since=past.NOW, driver=driver)
    story.commit({keys.target_status("eu"): failed})
    if words:
        story.commit({keys.order(ORDER): replace(past.order(), stopped=words)})
    ended = past.ended("A")
    tasks = tuple(replace(task, reason=reason) for task in ended.tasks)
    ended = replace(ended, tasks=tasks, epoch=epoch, ended=past.NOW.replace("00:00:00", after))
    writes = {keys.ended(ORDER, "A"): ended, past.place("A"): None, LICENCE: None}
    if phase is not None:
        writes[keys.observed("eu", "A")] = None
    story.commit(writes)
    return [violation.why for violation in story.told_to(ExclusiveCheck()).verdict().violations]


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"driver": "process", "limit": None, "after": "00:00:00"},
        {"phase": None, "limit": None, "after": "00:00:00"},
        {"limit": None, "words": (Stopped(job="render", index=0, attempt=1),)},
        {"reason": "Evicted", "limit": None},
        # Two leaders' clocks are not compared.
        {"after": "00:00:01", "epoch": 3},
    ],
)
def test_a_claim_that_goes_when_its_holder_is_over_is_good(said: dict[str, object]) -> None:
    assert a_loss(**said) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"limit": None}, "it has no time limit"),
        ({"phase": "Starting"}, "it may begin to run at any time"),
        ({"after": "00:00:59"}, "its time limit is 60 s, and the target failed 59.0 s before"),
        ({"limit": None, "words": (Stopped(job="render", index=0, attempt=2),)}, "it has no time limit"),
    ],
)
def test_a_claim_that_goes_while_its_holder_may_live_is_found(said: dict[str, object], why: str) -> None:
    assert a_loss(**said) == [f"gave up licence on the lost target eu: {why}"]  # type: ignore[arg-type]
