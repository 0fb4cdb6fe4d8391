"""Fields which are admitted and stored, but have no effect yet: a request with such a field gets a warning."""

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
# Values with the same effect as an absent field.
_SAME_AS_UNSET: Mapping[str, tuple[Any, ...]] = {
    "orchestration": ("push",),
    "work": (0,),
}


@dataclass(frozen=True, slots=True)
class FieldWarning:
    field: str
    message: str


def of(item: msgspec.Struct, path: str = "") -> list[FieldWarning]:
    """Warnings for the object and, for a packet, for its inline jobs."""
    warnings = []
    for name in WITHOUT_EFFECT.get(type(item), ()):
        value = getattr(item, name)
        if value and value not in _SAME_AS_UNSET.get(name, ()):
            warnings.append(FieldWarning(at(path, name.rstrip("_")), NO_EFFECT))
    if isinstance(item, OrderRequest) and isinstance(item.packet, Packet):
        warnings += of(item.packet, at(path, "packet"))
    for position, part in enumerate(item.jobs if isinstance(item, Packet) else ()):
        if isinstance(part.job, Job):
            warnings += of(part.job, at(path, f"jobs[{position}].job"))
    return warnings
