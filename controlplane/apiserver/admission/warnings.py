"""Fields that are admitted and stored, and whose effect is not built yet: setting one answers with a warning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from controlplane.apiserver.admission.fields import at
from controlplane.model.job import Job
from controlplane.model.order import OrderRequest
from controlplane.model.packet import Packet
from controlplane.model.scalepolicy import ScalePolicy
from controlplane.model.target import Target

NO_EFFECT = "is stored, but has no effect yet"
DEADLINE = "decides who is served first; nothing is failed at its deadline yet"

WITHOUT_EFFECT: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    Job: ("failure_policies", "work", "min_chunk", "max_chunks"),
    Packet: ("pack",),
    OrderRequest: ("orchestration", "failure_policies"),
    Target: ("kubeconfig_secret",),
}
# What these hold is what would happen without them.
_SAME_AS_UNSET: Mapping[str, tuple[Any, ...]] = {
    "pack": (1,),
    "orchestration": ("push",),
    "work": (0,),
}
_WHOLE_OBJECTS = (ScalePolicy,)


@dataclass(frozen=True, slots=True)
class Warning:
    field: str
    message: str


def of(item: msgspec.Struct, path: str = "") -> list[Warning]:
    """Warnings for the object and, for a packet, for the jobs written into it."""
    if isinstance(item, _WHOLE_OBJECTS):
        return [Warning(at(path, "kind"), f"a {type(item).__name__} {NO_EFFECT}")]
    found = []
    for name in WITHOUT_EFFECT.get(type(item), ()):
        value = getattr(item, name)
        if value and value not in _SAME_AS_UNSET.get(name, ()):
            found.append(Warning(at(path, name.rstrip("_")), NO_EFFECT))
    if isinstance(item, OrderRequest) and item.deadline is not None:
        found.append(Warning(at(path, "deadline"), DEADLINE))
    if isinstance(item, OrderRequest) and isinstance(item.packet, Packet):
        found += of(item.packet, at(path, "packet"))
    for position, part in enumerate(item.jobs if isinstance(item, Packet) else ()):
        if isinstance(part.job, Job):
            found += of(part.job, at(path, f"jobs[{position}].job"))
    return found
