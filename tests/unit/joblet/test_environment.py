"""What a task sees."""

from __future__ import annotations

import pytest

from controlplane.joblet.environment import environment_of, expand
from controlplane.model.fulfilment import Fulfilment, TaskRef, TaskSpec

TASK = TaskRef(job="render", index=7, attempt=2)


def test_the_environment_says_who_the_task_is_and_what_it_was_given() -> None:
    spec = TaskSpec(environment={"SCENE": "42", "CONTROLPLANE_INDEX": "forged"})
    work = Fulfilment(id="F", epoch=1, cycle=1, order="O", target="T", tasks=(TASK,), jobs={"render": spec})
    assert environment_of(work, TASK) == {
        "SCENE": "42",
        "CONTROLPLANE_ORDER": "O",
        "CONTROLPLANE_JOB": "render",
        "CONTROLPLANE_INDEX": "7",
        "CONTROLPLANE_ATTEMPT": "2",
        "CONTROLPLANE_TARGET": "T",
    }


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("$(INDEX)", "7"),
        ("$(CONTROLPLANE_INDEX)/$(SCENE)", "7/42"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(SCENE)", "$(SCENE)"),
        ("$SCENE ${SCENE}", "$SCENE ${SCENE}"),
        ("$(NESTED)", "$(SCENE)"),
    ],
)
def test_names_in_a_command_are_replaced_once(written: str, meant: str) -> None:
    environment = {"CONTROLPLANE_INDEX": "7", "SCENE": "42", "NESTED": "$(SCENE)"}
    assert expand([written], environment) == [meant]
