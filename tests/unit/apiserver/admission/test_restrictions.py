"""What the orders of a role may not ask for: each restriction refuses by its field, and restricts nothing else."""

from __future__ import annotations

import pytest

from controlplane.apiserver.admission import restrictions, settings_admission
from controlplane.apiserver.admission.restrictions import Demands, demands_of
from controlplane.model.access import ANYONE, Grant, Role, Subject
from controlplane.model.errors import Forbidden, Invalid
from controlplane.model.job import Constraint, Constraints, Job, Toleration
from controlplane.model.settings import Restriction, Settings

ADA = Subject(name="ada", grants=(Grant(Role.SUBMITTER),))
ROOT = Subject(name="root", grants=(Grant(Role.ADMIN), Grant(Role.SUBMITTER)))
TIGHT = Restriction(
    max_priority=60,
    strict_targets=("eu-1",),
    preempts=False,
    images=("registry.example/film/",),
    secrets=False,
    nodes=False,
)
ALLOWED = Job(image="registry.example/film/render:1", target_policy="strict:eu-1")


def judge(restriction: Restriction | None, *jobs: Job, priority: int = 50, preempts: bool = False) -> None:
    restrictions.check(
        restriction, demands_of(jobs or (ALLOWED,)), priority=priority, target_policy=None, preempts=preempts
    )


def refused_field(restriction: Restriction, *jobs: Job, priority: int = 50, preempts: bool = False) -> str:
    with pytest.raises(Forbidden) as caught:
        judge(restriction, *jobs, priority=priority, preempts=preempts)
    return caught.value.field


def test_an_order_within_all_bounds_passes() -> None:
    judge(TIGHT, priority=60)
    judge(TIGHT, Job(), Job(target_policy="any"), ALLOWED)


def test_each_restriction_names_its_field() -> None:
    assert refused_field(TIGHT, priority=61) == "priority"
    assert refused_field(TIGHT, preempts=True) == "preempts"
    assert refused_field(TIGHT, ALLOWED, Job(target_policy="strict:eu-2")) == "target_policy"
    assert refused_field(TIGHT, ALLOWED, Job(image="docker.example/other:1")) == "packet"
    assert refused_field(TIGHT, Job(image_pull_secrets=("pull",))) == "packet"
    assert refused_field(TIGHT, Job(tolerations=(Toleration(op="Exists"),))) == "packet"
    on_control_plane = Constraint(label="node/node-role.kubernetes.io/control-plane", op="Exists")
    for constraints in (Constraints(hard=(on_control_plane,)), Constraints(soft=(on_control_plane,))):
        assert refused_field(TIGHT, Job(constraints=constraints)) == "packet"
    judge(TIGHT, Job(constraints=Constraints(hard=(Constraint(label="region", op="Exists"),))))


def test_the_policy_of_the_order_overrides_those_of_its_jobs() -> None:
    elsewhere = demands_of([Job(target_policy="strict:eu-2")])
    restrictions.check(TIGHT, elsewhere, priority=1, target_policy="strict:eu-1", preempts=False)
    with pytest.raises(Forbidden, match="eu-2"):
        restrictions.check(TIGHT, Demands(), priority=1, target_policy="strict:eu-2", preempts=False)


def test_a_restriction_without_values_restricts_nothing() -> None:
    wild = Job(image="x", target_policy="strict:anywhere", image_pull_secrets=("s",))
    judge(Restriction(), wild, priority=100, preempts=True)
    judge(None, wild, priority=100, preempts=True)


def test_the_most_powerful_role_counts_and_an_open_plane_restricts_nobody() -> None:
    settings = Settings(restrictions={"submitter": TIGHT})
    assert restrictions.restriction_of(ADA, settings) == TIGHT
    assert restrictions.restriction_of(ROOT, settings) is None
    assert restrictions.restriction_of(ANYONE, settings) is None
    assert restrictions.restriction_of(ADA, Settings()) is None
    assert restrictions.restriction_of(ROOT, Settings(restrictions={"admin": TIGHT})) == TIGHT


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ({"viewer": Restriction()}, "restrictions.viewer"),
        ({"submitter": Restriction(max_priority=101)}, "restrictions.submitter.max_priority"),
        ({"submitter": Restriction(strict_targets=("NO NAME",))}, "restrictions.submitter.strict_targets[0]"),
    ],
)
def test_settings_with_a_wrong_restriction_are_refused_by_its_field(
    written: dict[str, Restriction], field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        settings_admission.admit(Settings(restrictions=written))
    assert caught.value.field == field
