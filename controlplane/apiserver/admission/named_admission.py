"""Admission of named objects: the same entrance for every kind, and the identity of a new object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec.structs import replace

from controlplane.apiserver import authorisation
from controlplane.apiserver.admission import (
    fields,
    job_admission,
    packet_admission,
    resource_admission,
    rule_admission,
    scalepolicy_admission,
    secret_admission,
    target_admission,
)
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.fields import at
from controlplane.apiserver.admission.order_admission import DEFAULT_OWNER
from controlplane.model import identity
from controlplane.model.access import ANYONE, Subject
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.job import Job
from controlplane.model.object import Named
from controlplane.model.packet import Packet
from controlplane.model.resource import Resource
from controlplane.model.rule import Rule
from controlplane.model.scalepolicy import ScalePolicy
from controlplane.model.secret import SecretWish
from controlplane.model.target import Target
from controlplane.store import codec

N = TypeVar("N", bound=Named)

MAX_BYTES = 256 * 1024

_RULES: Mapping[type[Named], Callable[[Any, Catalogue, str], Any]] = {
    Job: job_admission.admit,
    Packet: packet_admission.admit,
    Resource: resource_admission.admit,
    Target: target_admission.admit,
    Rule: rule_admission.admit,
    ScalePolicy: scalepolicy_admission.admit,
    SecretWish: secret_admission.admit,
}


@dataclass(frozen=True, slots=True)
class CreationStamp:
    """The identity and the time of a new object without an identity of its own, and who writes the object."""

    identity: str
    now: str
    subject: Subject = ANYONE


def admit(item: N, existing: Catalogue, path: str = "") -> N:
    """The object with its defaults, or a refusal."""
    fields.name(item.name, at(path, "name"))
    if item.id:
        identity.check(item.id, field=at(path, "id"))
    fields.labels(item.labels, at(path, "labels"))
    fields.line(item.owner, at(path, "owner"))
    fields.line(item.creator, at(path, "creator"))
    admitted: N = _RULES[type(item)](item, existing, path)
    size = len(codec.check(admitted, path))
    if size > MAX_BYTES:
        field = at(path, "jobs" if isinstance(item, Packet) else "name")
        raise LimitExceeded(f"{field}: the object must not be above {MAX_BYTES} bytes, but has {size}", field=field)
    return admitted


def create(item: N, stamp: CreationStamp) -> N:
    owner = authorisation.owner_for(stamp.subject, item.owner) or DEFAULT_OWNER
    creator = authorisation.creator_for(stamp.subject, item.creator) or owner
    return replace(item, id=item.id or stamp.identity, owner=owner, creator=creator, created=stamp.now, changed_by="")


def update(item: N, stored: N, stamp: CreationStamp, path: str = "") -> N:
    """The object as the user sends it now, with the fields that stay for an object's whole life."""
    if item.id and stored.id and item.id != stored.id:
        raise Invalid(at(path, "id"), f"cannot be changed: it is {stored.id}")
    owner = authorisation.owner_for(stamp.subject, item.owner, stored.owner)
    kept = replace(item, id=stored.id or item.id, owner=owner, creator=stored.creator, created=stored.created)
    kept = replace(kept, changed_by=stored.changed_by)
    return kept if kept == stored else replace(kept, changed_by=stamp.subject.name)
