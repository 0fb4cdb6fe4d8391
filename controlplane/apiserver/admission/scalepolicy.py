"""What a ScalePolicy may say."""

from __future__ import annotations

from controlplane.apiserver.admission import fields
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.fields import at
from controlplane.model.errors import Invalid
from controlplane.model.scalepolicy import ScalePolicy

_MOST = 2**60


def admit(policy: ScalePolicy, _known: Catalogue, path: str = "") -> ScalePolicy:
    for value, field in ((policy.provider, "provider"), (policy.template, "template"), (policy.metric, "metric")):
        fields.line(value, at(path, field))
    for amount, field, least in (
        (policy.threshold, "threshold", 0),
        (policy.min, "min", 0),
        (policy.max, "max", 0),
        (policy.step, "step", 1),
        (policy.cool_down, "cool_down", 0),
        (policy.idle, "idle", 0),
    ):
        if amount is not None:
            fields.number(amount, at(path, field), least=least, most=_MOST)
    if policy.min is not None and policy.max is not None and policy.min > policy.max:
        raise Invalid(at(path, "max"), f"must not be below min, which is {policy.min}")
    return policy
