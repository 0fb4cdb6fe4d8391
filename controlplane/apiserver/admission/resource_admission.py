"""The rules of a Resource."""

from __future__ import annotations

from msgspec.structs import replace

from controlplane.apiserver.admission import fields, pod_fields
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.fields import at
from controlplane.model.resource import Resource


def admit(resource: Resource, _known: Catalogue, path: str = "") -> Resource:
    fields.env_name(resource.key, at(path, "key"))
    fields.text(resource.value, at(path, "value"))
    if resource.mount:
        pod_fields.mount(resource.mount, at(path, "mount"))
    return replace(resource, unique=bool(resource.unique))
