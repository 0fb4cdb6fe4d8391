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

NO_EFFECT = "is stored, but has no effect yet"

WITHOUT_EFFECT: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    Job: ("work", "min_chunk", "max_chunks"),
    OrderRequest: ("orchestration",),
}
# What these hold is what would happen without them.
_SAME_AS_UNSET: Mapping[str, tuple[Any, ...]] = {
    "orchestration": ("push",),
    "work": (0,),
}


@dataclass(frozen=True, slots=True)
class Warning:
    field: str
    message: str


def of(item: msgspec.Struct, path: str = "") -> list[Warning]:
    """Warnings for the object and, for a packet, for the jobs written into it."""
    found = []
    for name in WITHOUT_EFFECT.get(type(item), ()):
        value = getattr(item, name)
        if value and value not in _SAME_AS_UNSET.get(name, ()):
            found.append(Warning(at(path, name.rstrip("_")), NO_EFFECT))
    if isinstance(item, OrderRequest) and isinstance(item.packet, Packet):
        found += of(item.packet, at(path, "packet"))
    for position, part in enumerate(item.jobs if isinstance(item, Packet) else ()):
        if isinstance(part.job, Job):
            found += of(part.job, at(path, f"jobs[{position}].job"))
    return found
