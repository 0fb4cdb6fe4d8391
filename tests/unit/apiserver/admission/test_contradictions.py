"""What contradicts itself or could never be placed whole is refused; what only no present target can hold is not."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.apiserver.admission import gang, named_admission, order_admission
from controlplane.apiserver.admission.resolve import Resolution, resolve
from controlplane.engine.decision import Placement
from controlplane.engine.signature import signature_of
from controlplane.model.access import ANYONE
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.job import Constraint, Constraints, Job
from controlplane.model.order import OrderRequest
from controlplane.model.packet import Packet, PacketJob
from controlplane.model.resource import Resource
from controlplane.model.target import Target
from controlplane.scheduler.binder import Binder, Stamp
from controlplane.store import keys, transaction
from tests.builders import NOW, an_identity
from tests.picture import Told
from tests.unit.apiserver.admission.known import Known


def one(label: str, op: str, *values: str) -> Constraint:
    return Constraint(label=label, op=op, values=values)


def hard(*constraints: Constraint) -> Job:
    return Job(name="j", constraints=Constraints(hard=constraints))


TARGETS = Known(Target(name="eu-1", region="eu"), Target(name="us-1", region="us"), Target(name="bare"))


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (hard(one("zone", "In", "a", "b"), one("zone", "NotIn", "b", "a")), "constraints.hard[1]"),
        (hard(one("zone", "NotIn", "a", "b"), one("disk", "Exists"), one("zone", "In", "a")), "constraints.hard[2]"),
        (hard(one("zone", "In", "a"), one("zone", "In", "b")), "constraints.hard[1]"),
        (hard(one("zone", "Exists"), one("zone", "DoesNotExist")), "constraints.hard[1]"),
        (hard(one("zone", "DoesNotExist"), one("zone", "In", "a")), "constraints.hard[1]"),
        (hard(one("cores", "Gt", "8"), one("cores", "Lt", "8")), "constraints.hard[1]"),
        (
            Job(name="j", affinity=(one("app", "In", "a", "b"),), anti_affinity=(one("app", "In", "b", "a"),)),
            "anti_affinity[0]",
        ),
        (Job(name="j", prefer=(("a", "b"), ("c", "a"))), "prefer[1][1]"),
        (Job(name="j", prefer=(("a", "a"),)), "prefer[0][1]"),
    ],
)
def test_a_job_that_contradicts_itself_is_refused_by_the_field_that_does(job: Job, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        named_admission.admit(job, TARGETS)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "job",
    [
        hard(one("zone", "In", "a", "b"), one("zone", "NotIn", "b")),
        hard(one("zone", "In", "a"), one("disk", "NotIn", "a")),
        hard(one("zone", "NotIn", "a"), one("zone", "DoesNotExist")),
        hard(one("cores", "Gt", "8"), one("cores", "Lt", "9")),
        hard(one("cores", "In", "4", "8"), one("cores", "In", "8", "16")),
        Job(name="j", affinity=(one("app", "In", "a"),), anti_affinity=(one("app", "In", "b"),)),
        Job(name="j", prefer=(("a", "b"), ("c",))),
        Job(name="j", requests={"cpu": 10**9}, region="nowhere", spread="order"),
    ],
)
def test_what_some_target_could_hold_is_admitted(job: Job) -> None:
    named_admission.admit(job, TARGETS)


def agreed(job: Job, count: int = 2, policy: str | None = None) -> OrderRequest:
    request = OrderRequest(packet=Packet(jobs=(PacketJob(job=job, count=count),)), target_policy=policy)
    order_admission.check(request, TARGETS)
    assert isinstance(request.packet, Packet)
    order_admission.agree(request, resolve(request.packet, TARGETS))
    return request


def test_tasks_that_must_be_apart_cannot_all_go_to_one_target() -> None:
    apart = Job(spread="order")
    for job, policy in ((Job(spread="order", target_policy="strict:eu-1"), None), (apart, "strict:eu-1")):
        with pytest.raises(Invalid) as caught:
            agreed(job, policy=policy)
        assert caught.value.field == "packet.jobs[0].job.spread"
    agreed(apart, count=1, policy="strict:eu-1")
    agreed(apart)
    # The order's word goes before the job's.
    agreed(Job(spread="order", target_policy="strict:eu-1"), policy="any")


@pytest.mark.parametrize(
    ("region", "policy", "job_policy", "warned"),
    [
        ("eu", "strict:us-1", None, True),
        ("eu", None, "strict:bare", True),
        ("eu", "strict:eu-1", "strict:us-1", False),
        ("eu", None, None, False),
        ("", "strict:us-1", None, False),
    ],
)
def test_a_region_that_the_only_target_allowed_is_not_in_is_warned_of(
    region: str, policy: str | None, job_policy: str | None, warned: bool
) -> None:
    request = agreed(Job(region=region, target_policy=job_policy), policy=policy)
    assert isinstance(request.packet, Packet)
    found = order_admission.doubts(request, resolve(request.packet, TARGETS), TARGETS)
    assert [warning.field for warning in found] == (["packet.jobs[0].job.region"] if warned else [])


def a_gang(*parts: PacketJob, known: Known = TARGETS, **fields: Any) -> Resolution:
    packet = Packet(jobs=parts, gang=True, **fields)
    resolution = resolve(packet, known)
    order_admission.agree(OrderRequest(packet=packet), resolution)
    return resolution


def test_a_gang_of_two_thousand_tasks_and_claims_is_the_largest() -> None:
    plain = Job(command=("true",))
    a_gang(PacketJob(job=plain, count=2000))
    with pytest.raises(LimitExceeded) as caught:
        a_gang(PacketJob(job=plain, count=2001))
    assert caught.value.field == "packet.gang"
    known = Known(Resource(name="licence", key="L", unique=True))
    holder = PacketJob(job=Job(resources=("licence",)))
    a_gang(PacketJob(job=plain, count=1998), holder, known=known)
    with pytest.raises(LimitExceeded) as caught:
        a_gang(PacketJob(job=plain, count=1999), holder, known=known)
    assert caught.value.field == "packet.gang"


def test_a_gang_beyond_one_transaction_of_bytes_is_refused_and_the_same_work_without_gang_is_not() -> None:
    long = Job(command=("render", "x" * 2000))
    a_gang(PacketJob(job=long, count=400))
    with pytest.raises(LimitExceeded) as caught:
        a_gang(PacketJob(job=long, count=450))
    assert caught.value.field == "packet.gang"
    resolve(Packet(jobs=(PacketJob(job=long, count=450),)), TARGETS)


def test_what_a_resource_hands_to_each_task_counts_for_the_size_of_a_gang() -> None:
    known = Known(Resource(name="scene", key="SCENE", value="x" * 3000))
    with pytest.raises(LimitExceeded):
        a_gang(PacketJob(job=Job(), count=400), known=known, resources=("scene",))


def test_a_long_name_of_an_owner_counts_once_a_task() -> None:
    packet = Packet(jobs=(PacketJob(job=Job(command=("true",)), count=2000),), gang=True)
    resolution = resolve(packet, TARGETS)
    order_admission.agree(OrderRequest(packet=packet, owner="ada"), resolution)
    with pytest.raises(LimitExceeded):
        order_admission.agree(OrderRequest(packet=packet, owner="a" * 256), resolution)


def test_a_gang_may_not_need_a_unique_resource_twice() -> None:
    known = Known(Resource(name="licence", key="L", unique=True), Resource(name="scene", key="S"))
    held = Job(resources=("licence", "scene"))
    a_gang(PacketJob(job=held), PacketJob(job=Job(resources=("scene",)), count=5), known=known)
    for parts, field in (
        ((PacketJob(job=held, count=2),), "packet.jobs[0].job.resources"),
        ((PacketJob(job=Job()), PacketJob(job=held), PacketJob(job=held)), "packet.jobs[1].job.resources"),
    ):
        with pytest.raises(Invalid) as caught:
            a_gang(*parts, known=known)
        assert caught.value.field == field
        resolve(Packet(jobs=parts), known)


def test_a_gang_has_no_more_unique_resources_than_a_transaction_can_compare() -> None:
    unique = [Resource(name=f"u{number}", key="U", unique=True) for number in range(gang.MAX_CLAIMS + 1)]
    parts = tuple(PacketJob(job=Job(resources=(resource.name,))) for resource in unique)
    a_gang(*parts[1:], known=Known(*unique))
    with pytest.raises(LimitExceeded) as caught:
        a_gang(*parts, known=Known(*unique))
    assert caught.value.field == "packet.gang"


def test_jobs_of_a_gang_that_wait_for_each_other_may_hold_the_same_in_turn() -> None:
    known = Known(Resource(name="licence", key="L", unique=True))
    first = PacketJob(job=Job(name="a", resources=("licence",)))
    a_gang(first, PacketJob(job=Job(name="b", resources=("licence",)), after=("a",)), known=known)
    with pytest.raises(Invalid):
        a_gang(first, PacketJob(job=Job(name="b", resources=("licence",)), count=2, after=("a",)), known=known)


def test_a_gang_that_is_larger_than_any_target_is_admitted() -> None:
    a_gang(PacketJob(job=Job(requests={"cpu": 10**9}), count=100))


def test_the_largest_gang_that_is_admitted_fits_into_one_transaction() -> None:
    labels = {"team": "film", "kind": "heavy"}
    known = Known(*(Resource(name=f"u{number}", key="U", value="1", unique=True) for number in range(16)))
    held = PacketJob(job=Job(resources=tuple(f"u{number}" for number in range(16)), labels=labels, exclusive=True))
    plain = Job(command=("render", "x" * 60), labels=labels, class_="c", requests={"cpu": 0.5}, preemptible=True)
    packet = Packet(jobs=(held, PacketJob(job=plain, count=1400)), gang=True)
    request = OrderRequest(packet=packet, owner="a" * 40)
    resolution = resolve(packet, known)
    order_admission.agree(request, resolution)
    stored = order_admission.build(request, resolution, subject=ANYONE, identity=an_identity(), now=NOW, content="")
    told = Told()
    told.write({keys.order(stored.id): stored})
    ledger = told.ledgers.orders[stored.id]
    placements = [
        Placement(stored.id, part.job.name, "x" * 63, part.count, signature_of(ledger, part.job), gang=True)
        for part in ledger.resolved.jobs
    ]
    (item,) = Binder(told.ledgers, an_identity).items(placements, Stamp(10**9, 10**9, NOW))
    assert len(transaction.nested([item], transaction.Fence("/controlplane/election/1", 1, 1))) > 0
    told_size = resolution.gang_bytes + 1401 * 60
    assert item.size() <= told_size <= 1.1 * item.size()
