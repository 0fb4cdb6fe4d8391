"""The rules of a Secret. No refusal shows a value."""

from __future__ import annotations

from controlplane.apiserver.admission import fields
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.fields import at
from controlplane.model import kubeconfig
from controlplane.model.errors import Invalid
from controlplane.model.secret import KUBECONFIG, TYPES, SecretWish


def admit(wish: SecretWish, _known: Catalogue, path: str = "") -> SecretWish:
    fields.one_of(wish.type, tuple(TYPES), at(path, "type"))
    existing = TYPES[wish.type]
    here = at(path, "data")
    for name in wish.data:
        if name not in existing:
            raise Invalid(here, f"must hold {', '.join(existing)} only for the type {wish.type}")
    for name in existing:
        if not wish.data.get(name):
            raise Invalid(at(here, name), "must not be empty: what a secret holds is sent whole each time")
    if wish.type == KUBECONFIG:
        kubeconfig.parse(wish.data["kubeconfig"], at(here, "kubeconfig"))
    return wish
