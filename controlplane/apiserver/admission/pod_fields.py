"""The rules of a job's fields for the inside of a cluster: nodes, taints, images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from controlplane.apiserver.admission import fields
from controlplane.apiserver.admission.fields import at
from controlplane.model import nodes
from controlplane.model.driver_traits import NEEDING_IMAGES, WITH_NODES
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.job import Constraint, Job, Toleration
from controlplane.model.resource import Resource

MAX_TOLERATIONS = 64
MAX_PATH = 255
OPERATORS = ("Equal", "Exists")
EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
# The forms of a cluster: labels, values of labels, names of objects.
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_PART = re.compile(r"[A-Za-z0-9._+@=-]+")
# Top-level directories which a mount must not shadow.
_KEPT = ("controlplane", "dev", "proc", "sys")


def in_job(job: Job, path: str) -> None:
    if job.drivers == NEEDING_IMAGES and not job.image:
        raise Invalid(at(path, "image"), f"is required for a job that only {job.drivers[0]} may run")
    for kind in ("hard", "soft"):
        constraints = getattr(job.constraints, kind) if job.constraints is not None else ()
        _of_nodes(job, constraints, at(path, f"constraints.{kind}"))
    if len(job.tolerations) > MAX_TOLERATIONS:
        field = at(path, "tolerations")
        raise LimitExceeded(f"{field}: must not hold more than {MAX_TOLERATIONS} items", field=field)
    for position, toleration in enumerate(job.tolerations):
        _toleration(toleration, f"{at(path, 'tolerations')}[{position}]")
    fields.names(job.image_pull_secrets, at(path, "image_pull_secrets"), most=16)
    for position, name in enumerate(job.image_pull_secrets):
        if not _OBJECT.fullmatch(name):
            raise Invalid(
                f"{at(path, 'image_pull_secrets')}[{position}]", f"{name!r} is no name that a secret may have"
            )


def _of_nodes(job: Job, constraints: Sequence[Constraint], field: str) -> None:
    for position, constraint in enumerate(constraints):
        if not nodes.is_of_node(constraint):
            continue
        here = f"{field}[{position}]"
        if job.drivers != WITH_NODES:
            rule = f"is about nodes of a cluster, so drivers must be [{', '.join(WITH_NODES)}]"
            raise Invalid(f"{here}.label", rule)
        if not _KEY.fullmatch(constraint.label.removeprefix(nodes.PREFIX)):
            raise Invalid(f"{here}.label", f"must be {nodes.PREFIX} and a label that a node may have")
        numbers = constraint.op in ("Gt", "Lt")
        for number, value in enumerate(constraint.values):
            if not (_WHOLE if numbers else _VALUE).fullmatch(value):
                rule = "a whole number" if numbers else "a value that a node's label may have"
                raise Invalid(f"{here}.values[{number}]", f"must be {rule}")


def _toleration(toleration: Toleration, here: str) -> None:
    fields.one_of(toleration.op, OPERATORS, f"{here}.op")
    if toleration.effect not in EFFECTS:
        raise Invalid(f"{here}.effect", f"must be one of {', '.join(EFFECTS[1:])}, or be absent")
    if toleration.key and not _KEY.fullmatch(toleration.key):
        raise Invalid(f"{here}.key", "must be a key that a taint may have")
    if not toleration.key and toleration.op != "Exists":
        raise Invalid(f"{here}.key", "is required, unless op is Exists")
    if not _VALUE.fullmatch(toleration.value):
        raise Invalid(f"{here}.value", "must be a value that a taint may have")
    if toleration.op == "Exists" and toleration.value:
        raise Invalid(f"{here}.value", "must be empty when op is Exists")
    if toleration.seconds is not None:
        fields.number(toleration.seconds, f"{here}.seconds", least=0, most=2**31 - 1)
        if toleration.effect != "NoExecute":
            raise Invalid(f"{here}.seconds", "belongs to the effect NoExecute")


def mount(path: str, field: str) -> None:
    """The path of a mounted file: absolute, without detours, and outside the system's own folders."""
    parts = path.split("/")
    if len(path) > MAX_PATH or parts[0] or len(parts) < 2 or not all(map(_PART.fullmatch, parts[1:])):
        rule = f"must be an absolute path of at most {MAX_PATH} letters, digits and ._+@=-"
        raise Invalid(field, rule)
    if {".", ".."}.intersection(parts) or parts[1] in _KEPT:
        raise Invalid(field, f"must not be below /{', /'.join(_KEPT)}, nor hold '.' or '..'")


def distinct(resources: Iterable[Resource], field: str) -> None:
    """A task has one file at a path, and no file in place of another file's folder."""
    mounted = [(f"{resource.mount}/", resource.name) for resource in resources if resource.mount]
    for (path, name), (longer, other) in pairwise(sorted(mounted)):
        if longer.startswith(path):
            raise Invalid(field, f"{name!r} and {other!r} cannot both be mounted: {path[:-1]}, {longer[:-1]}")
