"""Secret: what replicas need to know and nobody may read.

A `SecretWish` is what a user sends; its data is in clear and is never stored, shown or logged. A `Secret` is what is
stored: the sealed data and what may be told about it. `digest` is keyed, so that nobody can try out contents.
"""

from __future__ import annotations

from controlplane.model.bounds import Count, Line, LongText
from controlplane.model.object import Named, Part

KUBECONFIG = "kubeconfig"
# What each type holds.
TYPES: dict[str, tuple[str, ...]] = {KUBECONFIG: ("kubeconfig",)}


class Sealed(Part, frozen=True, kw_only=True):
    """`key` says with which key it was sealed; `nonce` and `text` are base64."""

    key: Line
    nonce: Line
    text: LongText


class Secret(Named, tag="Secret", frozen=True, kw_only=True):
    type: Line = KUBECONFIG
    size: Count = 0
    digest: Line = ""
    sealed: Sealed | None = None


class SecretWish(Named, tag="Secret", frozen=True, kw_only=True):
    type: str = KUBECONFIG
    data: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"SecretWish(name={self.name!r}, type={self.type!r})"


class Content(Part, frozen=True, kw_only=True):
    """What is sealed. `seed` is made once and stays when the data changes: what must not change with it, such as who
    the joblets are that work with this secret, is derived from it."""

    data: dict[str, str]
    seed: str
