"""What an order resolves to, what it gets by default, and which fields warn."""

from __future__ import annotations

import math

import msgspec
import pytest

from controlplane.apiserver.admission import field_warnings, named_admission, order_admission
from controlplane.apiserver.admission.catalogue import Overlay
from controlplane.apiserver.admission.named_admission import CreationStamp
from controlplane.apiserver.admission.resolve import Resolution, resolve
from controlplane.model.access import ANYONE, Subject
from controlplane.model.errors import Invalid, LimitExceeded, NotFound
from controlplane.model.job import Constraint, Constraints, FailurePolicy, Job
from controlplane.model.order import OrderRequest, Resolved
from controlplane.model.packet import Packet, PacketJob
from controlplane.model.resource import Resource
from controlplane.model.scalepolicy import ScalePolicy
from controlplane.model.settings import Settings
from controlplane.model.target import Target
from tests.unit.apiserver.admission.known import Known


def decoded(resolution: Resolution) -> Resolved:
    return msgspec.json.decode(bytes(resolution.raw), type=Resolved)


def test_a_packet_resolves_to_copies_of_all_that_it_names() -> None:
    known = Known(
        Job(name="render", resources=("licence",), command=("render",)),
        Resource(name="licence", key="LICENCE", value="1", unique=True),
        Resource(name="scene", key="SCENE", value="42"),
    )
    packet = Packet(
        name="film",
        jobs=(PacketJob(job="render", count=3), PacketJob(job=Job(command=("sum",)), after=("render",))),
        resources=("scene",),
    )
    found = resolve(packet, known)
    whole = decoded(found)
    assert [(job.job.name, job.count, job.after) for job in whole.jobs] == [
        ("render", 3, ()),
        ("job-2", 1, ("render",)),
    ]
    assert [job.job.resources for job in whole.jobs] == [("scene", "licence"), ("scene",)]
    assert {resource.name: resource.value for resource in whole.resources} == {"scene": "42", "licence": "1"}
    assert (found.packet, found.tasks_total) == ("film", 4)


def test_what_a_job_leaves_open_is_filled_in_and_shown() -> None:
    known = Known(chosen=Settings(default_requests={"cpu": 2, "memory": 1024}))
    packet = Packet(jobs=(PacketJob(job=Job()), PacketJob(job=Job(requests={}))))
    first, second = decoded(resolve(packet, known)).jobs
    assert (first.job.requests, first.job.target_policy) == ({"cpu": 2, "memory": 1024}, "any")
    assert second.job.requests == {}


def test_the_same_content_has_the_same_digest_and_other_content_another() -> None:
    one = Packet(jobs=(PacketJob(job=Job(command=("a",))),))
    two = Packet(jobs=(PacketJob(job=Job(command=("b",))),))
    assert resolve(one, Known()).digest == resolve(one, Known()).digest
    assert resolve(one, Known()).digest != resolve(two, Known()).digest


def test_what_a_packet_names_must_still_be_there_when_it_is_ordered() -> None:
    for packet, field in (
        (Packet(jobs=(PacketJob(job="gone"),)), "packet.jobs[0].job"),
        (Packet(jobs=(PacketJob(job=Job()),), resources=("gone",)), "packet.resources[0]"),
        (Packet(jobs=(PacketJob(job="stale"),)), "packet.jobs[0].job.resources[0]"),
    ):
        with pytest.raises(NotFound) as caught:
            resolve(packet, Known(Job(name="stale", resources=("gone",))))
        assert caught.value.field == field


def test_limits_of_an_order_are_exact() -> None:
    def of(count: int, pack: int) -> Resolution:
        return resolve(Packet(jobs=(PacketJob(job=Job(), count=count),), pack=pack), Known())

    assert of(100_000, 1).tasks_total == 100_000
    assert of(1_000_000, 10).tasks_total == 1_000_000
    for count, pack in ((100_001, 1), (1_000_000, 9)):
        with pytest.raises(LimitExceeded, match="use pack"):
            of(count, pack)
    parts = tuple(PacketJob(job=Job(), count=600_000) for _ in range(2))
    with pytest.raises(LimitExceeded, match="1000000 tasks"):
        resolve(Packet(jobs=parts, pack=100), Known())


def test_sixteen_unique_resources_a_job_are_the_most() -> None:
    unique = [Resource(name=f"u{number}", key="U", unique=True) for number in range(17)]
    names = tuple(resource.name for resource in unique)
    resolve(Packet(jobs=(PacketJob(job=Job(resources=names[1:])),)), Known(*unique))
    with pytest.raises(LimitExceeded) as caught:
        resolve(Packet(jobs=(PacketJob(job=Job(resources=names[1:])),), resources=names[:1]), Known(*unique))
    assert caught.value.field == "packet.jobs[0].job.resources"


def test_an_order_that_resolves_to_too_much_is_refused() -> None:
    jobs = [Job(name=f"j{number}", env={"A": "x" * 30_000}) for number in range(9)]
    packet = Packet(jobs=tuple(PacketJob(job=job.name) for job in jobs))
    with pytest.raises(LimitExceeded) as caught:
        resolve(packet, Known(*jobs))
    assert caught.value.field == "packet"


def test_an_order_gets_its_defaults() -> None:
    packet = Packet(jobs=(PacketJob(job=Job()),))
    request = OrderRequest(packet=packet, not_before="2026-12-01T01:00:00+01:00")
    found = resolve(packet, Known())
    content = order_admission.digest_of(request, ANYONE)
    built = order_admission.build(request, found, subject=ANYONE, identity="I", now="NOW", content=content)
    assert (built.priority, built.orchestration, built.owner, built.creator) == (50, "push", "anonymous", "anonymous")
    assert (built.id, built.created, built.packet, built.tasks_total) == ("I", "NOW", "", 1)
    assert built.not_before == "2026-12-01T00:00:00.000Z"
    assert msgspec.json.decode(msgspec.json.encode(built))["resolved"]["jobs"][0]["job"]["name"] == "job-1"


def test_the_digest_of_a_request_depends_on_all_but_its_identity() -> None:
    request = OrderRequest(packet="p", labels={"b": "1", "a": "2"})
    same = OrderRequest(id="X", packet="p", labels={"a": "2", "b": "1"})
    assert order_admission.digest_of(request, ANYONE) == order_admission.digest_of(same, ANYONE)
    for other in (
        msgspec.structs.replace(request, packet="q"),
        msgspec.structs.replace(request, priority=50),
        msgspec.structs.replace(request, owner="ada"),
    ):
        assert order_admission.digest_of(other, ANYONE) != order_admission.digest_of(request, ANYONE)


def test_two_subjects_that_send_the_same_request_have_two_digests() -> None:
    request = OrderRequest(packet="p")
    subjects = (ANYONE, Subject(name="ada"), Subject(name="bob"))
    digests = {order_admission.digest_of(request, subject) for subject in subjects}
    assert len(digests) == 3


def test_objects_of_one_file_are_known_to_each_other() -> None:
    job = Job(name="render")
    overlay = Overlay(Known(), {(Job, "render"): job}, Settings())
    assert decoded(resolve(Packet(jobs=(PacketJob(job="render"),)), overlay)).jobs[0].job.name == "render"
    with pytest.raises(NotFound):
        resolve(Packet(jobs=(PacketJob(job="other"),)), overlay)


def test_an_update_keeps_identity_maker_and_time() -> None:
    stamp = CreationStamp("01ARZ3NDEKTSV4RRFFQ69G5FAV", "THEN")
    stored = named_admission.create(Job(name="j", owner="ada"), stamp)
    assert (stored.owner, stored.creator, stored.created) == ("ada", "ada", "THEN")
    updated = named_admission.update(Job(name="j", image="x", creator="eve"), stored, stamp)
    assert (updated.id, updated.owner, updated.creator, updated.created) == (stored.id, "ada", "ada", "THEN")
    with pytest.raises(Invalid, match="cannot be changed"):
        named_admission.update(Job(name="j", id="01ARZ3NDEKTSV4RRFFQ69G5FAW"), stored, stamp)


def test_fields_without_effect_warn_and_their_defaults_do_not() -> None:
    job = Job(
        constraints=Constraints(hard=(Constraint(label="a", op="Exists"),)), spread="order", class_="c", work=5,
        failure_policies=(FailurePolicy(),),
    )  # fmt: skip
    packet = Packet(jobs=(PacketJob(job=job, after=("x",)),), gang=True, pack=2)
    found = {warning.field for warning in field_warnings.of(OrderRequest(packet=packet, orchestration="pull"))}
    assert found == {"orchestration", "packet.jobs[0].job.work"}
    quiet = Packet(jobs=(PacketJob(job=Job(spread="none", work=0, time_limit=5, drivers=("process",))),), pack=1)
    assert not field_warnings.of(OrderRequest(packet=quiet, orchestration="push", priority=9, target_policy="any"))
    secret = Target(drain=True, cordoned=True, max_fulfilments=3, kubeconfig_secret="s")
    assert not field_warnings.of(secret)
    assert not field_warnings.of(ScalePolicy(), "objects[1]")


def test_a_quantity_that_is_none_is_refused_inside_an_order() -> None:
    with pytest.raises(Invalid) as caught:
        resolve(Packet(jobs=(PacketJob(job=Job(requests={"cpu": math.nan})),)), Known())
    assert caught.value.field == "packet.jobs[0].job.requests.cpu"
