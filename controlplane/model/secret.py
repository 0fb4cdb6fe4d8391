"""Secret: data that replicas need and no user may read.

A `SecretWish` is sent by a user; its data is in clear and is never stored, shown or logged. A `Secret` is stored: the
sealed data and the facts that may be shown. `digest` is keyed, so that contents cannot be guessed by trying.
"""

from __future__ import annotations

from controlplane.model.bounds import Count, Line, LongText
from controlplane.model.object import Named, Part

KUBECONFIG = "kubeconfig"
# The fields of each type.
TYPES: dict[str, tuple[str, ...]] = {KUBECONFIG: ("kubeconfig",)}


class Sealed(Part, frozen=True, kw_only=True):
    """`key` names the sealing key; `nonce` and `text` are base64."""

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
    """The sealed content. `seed` is made once and stays when the data changes: values that must not change with the
    data, such as the identities of joblets that use this secret, are derived from the seed.
    """

    data: dict[str, str]
    seed: str
