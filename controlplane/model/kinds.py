"""The kinds of objects: the word for each, its plural, its structs, and the field that identifies an object.

Other tables of kinds derive from KINDS: the trees of `store/keys`, the documents of `model/manifest`, the subjects of
events, the arguments of `cpctl get`. Messages, admission rules and columns are looked up by kind in their own layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from controlplane.model.event import Event
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.job import Job
from controlplane.model.leadership import Cycle, Term
from controlplane.model.object import Named
from controlplane.model.order import Order, OrderRequest
from controlplane.model.packet import Packet
from controlplane.model.resource import Resource
from controlplane.model.rule import Rule
from controlplane.model.scalepolicy import ScalePolicy
from controlplane.model.secret import Secret, SecretWish
from controlplane.model.settings import Settings
from controlplane.model.target import Target


class ObjectKind(NamedTuple):
    """`plural` is the folder of a config object, the service of a client and the argument of a command.

    `written` is the struct of a document that a person writes; None for objects that only the system writes.
    `identified_by` is empty for Settings, of which there is a single object.
    """

    word: str
    plural: str
    stored: type[msgspec.Struct]
    written: type[msgspec.Struct] | None
    identified_by: str = "name"

    @property
    def deletable(self) -> bool:
        """Whether a person may delete an object of the kind."""
        return self.written is not None and bool(self.identified_by)


KINDS = (
    ObjectKind("Order", "orders", Order, OrderRequest, "id"),
    ObjectKind("Job", "jobs", Job, Job),
    ObjectKind("Packet", "packets", Packet, Packet),
    ObjectKind("Resource", "resources", Resource, Resource),
    ObjectKind("Target", "targets", Target, Target),
    ObjectKind("Fulfilment", "fulfilments", Fulfilment, None, "id"),
    ObjectKind("Rule", "rules", Rule, Rule),
    ObjectKind("ScalePolicy", "scalepolicies", ScalePolicy, ScalePolicy),
    ObjectKind("Secret", "secrets", Secret, SecretWish),
    ObjectKind("Cycle", "cycles", Cycle, None, "n"),
    ObjectKind("Term", "terms", Term, None, "epoch"),
    ObjectKind("Event", "events", Event, None, "id"),
    ObjectKind("Settings", "settings", Settings, Settings, ""),
)
# Config objects that people refer to by name.
NAMED = tuple(kind for kind in KINDS if issubclass(kind.stored, Named))
WRITTEN: Mapping[str, type[msgspec.Struct]] = {kind.word: kind.written for kind in KINDS if kind.written is not None}
_BY_STRUCT = {struct: kind for kind in KINDS for struct in (kind.stored, kind.written) if struct is not None}


def kind_of(struct: type[msgspec.Struct]) -> ObjectKind:
    """The kind of objects of this struct, as they are stored or as they are written."""
    return _BY_STRUCT[struct]
