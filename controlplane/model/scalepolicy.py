"""ScalePolicy: how the number and the size of targets of one class follow the load."""

from __future__ import annotations

from controlplane.model.object import Named
from controlplane.model.quantity import Number


class ScalePolicy(Named, tag="ScalePolicy", frozen=True, kw_only=True):
    provider: str = ""
    template: str = ""
    metric: str = ""
    threshold: Number | None = None
    min: int | None = None
    max: int | None = None
    step: int | None = None
    cool_down: Number | None = None
    idle: Number | None = None
