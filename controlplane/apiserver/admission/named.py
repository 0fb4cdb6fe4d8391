"""The objects that people refer to by name: one door for all of them, and the identity they get on the way in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec.structs import replace

from controlplane.apiserver.admission import fields, job, packet, resource, rule, scalepolicy, secret, target
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.fields import at
from controlplane.apiserver.admission.order import DEFAULT_OWNER
from controlplane.model import identity
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.job import Job
from controlplane.model.object import Named
from controlplane.model.packet import Packet
from controlplane.model.resource import Resource
from controlplane.model.rule import Rule
from controlplane.model.scalepolicy import ScalePolicy
from controlplane.model.secret import Secret, SecretWish
from controlplane.model.target import Target
from controlplane.store import codec

N = TypeVar("N", bound=Named)

MAX_BYTES = 256 * 1024

# The folder below config/ that holds each kind.
FOLDERS: Mapping[type[Named], str] = {
    Job: "jobs",
    Packet: "packets",
    Resource: "resources",
    Target: "targets",
    Rule: "rules",
    ScalePolicy: "scalepolicies",
    Secret: "secrets",
    SecretWish: "secrets",
}
_DOORS: Mapping[type[Named], Callable[[Any, Catalogue, str], Any]] = {
    Job: job.admit,
    Packet: packet.admit,
    Resource: resource.admit,
    Target: target.admit,
    Rule: rule.admit,
    ScalePolicy: scalepolicy.admit,
    SecretWish: secret.admit,
}


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a new object gets when it does not bring its own."""

    identity: str
    now: str


def admit(item: N, known: Catalogue, path: str = "") -> N:
    """The object with its defaults, or a refusal."""
    fields.name(item.name, at(path, "name"))
    if item.id:
        identity.check(item.id, field=at(path, "id"))
    fields.labels(item.labels, at(path, "labels"))
    fields.line(item.owner, at(path, "owner"))
    fields.line(item.creator, at(path, "creator"))
    admitted: N = _DOORS[type(item)](item, known, path)
    size = len(codec.check(admitted, path))
    if size > MAX_BYTES:
        field = at(path, "jobs" if isinstance(item, Packet) else "name")
        raise LimitExceeded(f"{field}: the object must not be above {MAX_BYTES} bytes, but has {size}", field=field)
    return admitted


def create(item: N, stamp: Stamp) -> N:
    owner = item.owner or DEFAULT_OWNER
    return replace(item, id=item.id or stamp.identity, owner=owner, creator=item.creator or owner, created=stamp.now)


def update(item: N, stored: N, path: str = "") -> N:
    """What the user says now, with what stays for an object's whole life."""
    if item.id and stored.id and item.id != stored.id:
        raise Invalid(at(path, "id"), f"cannot be changed: it is {stored.id}")
    return replace(
        item, id=stored.id or item.id, owner=item.owner or stored.owner, creator=stored.creator, created=stored.created
    )
