"""What a job may say about the inside of a cluster, and where a resource may be mounted."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.apiserver.admission import job_admission, packet_admission, pod_fields, resource_admission
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.job import Constraint, Constraints, Job, Toleration
from controlplane.model.packet import Packet, PacketJob
from controlplane.model.resource import Resource
from tests.unit.apiserver.admission.known import Known

SCENE = Resource(name="scene", key="SCENE", mount="/etc/scene.json")
KNOWN = Known(SCENE, Resource(name="other", key="OTHER", mount="/etc/scene.json"), Job(name="render"))


def a_job(**said: Any) -> Job:
    return Job(name="j", **{"image": "i", "drivers": ("kubernetes",), **said})


def constrained(drivers: tuple[str, ...] = ("kubernetes",), **said: Any) -> Job:
    hard = (Constraint(label="zone", op="Exists"), Constraint(**said))
    return a_job(drivers=drivers, constraints=Constraints(hard=hard))


def tolerating(**said: Any) -> Job:
    return a_job(tolerations=(Toleration(**said),))


GOOD = [
    constrained(label="node/topology.kubernetes.io/zone", values=("a", "")),
    constrained(label="node/cores", op="Gt", values=("4",)),
    constrained(label="node/disk", op="DoesNotExist"),
    a_job(constraints=Constraints(soft=(Constraint(label="node/disk", op="Exists", weight=10),))),
    tolerating(key="gpu", value="a", effect="NoSchedule"),
    tolerating(op="Exists"),
    tolerating(key="gpu", op="Exists", effect="NoExecute", seconds=30),
    a_job(image_pull_secrets=("film", "a.b")),
    a_job(drivers=(), image=""),
    a_job(drivers=("kubernetes", "process"), image=""),
    a_job(resources=("scene",)),
]


@pytest.mark.parametrize("found", GOOD, ids=range(len(GOOD)))
def test_what_a_cluster_understands_is_admitted(found: Job) -> None:
    assert job_admission.admit(found, KNOWN) == found


BAD = [
    (a_job(image=""), "image"),
    (constrained((), label="node/a", op="Exists"), "constraints.hard[1].label"),
    (constrained(("kubernetes", "process"), label="node/a", op="Exists"), "constraints.hard[1].label"),
    (constrained(label="node/", op="Exists"), "constraints.hard[1].label"),
    (constrained(label="node/-a", op="Exists"), "constraints.hard[1].label"),
    (constrained(label="node/disk", values=("s s",)), "constraints.hard[1].values[0]"),
    (constrained(label="node/cores", op="Gt", values=("4.5",)), "constraints.hard[1].values[0]"),
    (tolerating(key="a", op="In"), "tolerations[0].op"),
    (tolerating(), "tolerations[0].key"),
    (tolerating(key="a b"), "tolerations[0].key"),
    (tolerating(key="a", value="a b"), "tolerations[0].value"),
    (tolerating(key="a", op="Exists", value="b"), "tolerations[0].value"),
    (tolerating(key="a", effect="Never"), "tolerations[0].effect"),
    (tolerating(key="a", effect="NoExecute", seconds=-1), "tolerations[0].seconds"),
    (tolerating(key="a", effect="NoSchedule", seconds=1), "tolerations[0].seconds"),
    (a_job(image_pull_secrets=("-a",)), "image_pull_secrets[0]"),
    (a_job(image_pull_secrets=("a", "a")), "image_pull_secrets[1]"),
    (a_job(resources=("scene", "other")), "resources"),
]


@pytest.mark.parametrize(("found", "field"), BAD, ids=range(len(BAD)))
def test_what_no_cluster_understands_is_refused_by_its_path(found: Job, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        job_admission.admit(found, KNOWN)
    assert refused.value.field == field


def test_tolerations_are_few() -> None:
    with pytest.raises(LimitExceeded):
        job_admission.admit(a_job(tolerations=(Toleration(key="a"),) * (pod_fields.MAX_TOLERATIONS + 1)), KNOWN)


@pytest.mark.parametrize("path", ["/etc/scene.json", "/a", "/data/..a/b+c@d=e_f"])
def test_a_file_may_be_mounted_at_a_plain_path(path: str) -> None:
    assert resource_admission.admit(Resource(name="r", key="R", mount=path), KNOWN).mount == path


OUTSIDE = ["etc/x", "/", "/etc/", "//etc", "/etc/../x", "/./x", "/proc/x", "/dev/x", "/sys", "/controlplane/a", "/a b"]


@pytest.mark.parametrize("path", [*OUTSIDE, "/a\n", "/" + "x" * 300])
def test_anywhere_else_it_may_not(path: str) -> None:
    with pytest.raises(Invalid) as refused:
        resource_admission.admit(Resource(name="r", key="R", mount=path), KNOWN)
    assert refused.value.field == "mount"


def mounted(*paths: str) -> list[Resource]:
    return [Resource(name=path, key="R", mount=path) for path in paths]


def test_no_file_lies_where_another_needs_a_folder() -> None:
    with pytest.raises(Invalid, match="cannot both be mounted: /etc/a, /etc/a/b"):
        pod_fields.distinct(mounted("/etc/a/b", "/etc/b", "/etc/a"), "resources")
    pod_fields.distinct(mounted("/etc/a", "/etc/ab", "/etc/a.b"), "resources")


@pytest.mark.parametrize("pack", [0, -1, packet_admission.MAX_PACK + 1])
def test_how_many_share_a_fulfilment_has_bounds(pack: int) -> None:
    with pytest.raises(Invalid) as refused:
        packet_admission.admit(Packet(name="p", jobs=(PacketJob(job="render"),), pack=pack), KNOWN)
    assert refused.value.field == "pack"
