"""The kinds of objects of `get`, `describe` and `delete`, by every name that people may type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from controlplane.cli import tables
from controlplane.cli.output import TableColumn
from controlplane.client import Client
from controlplane.model import kinds
from controlplane.model.errors import Invalid
from controlplane.model.kinds import ObjectKind


@dataclass(frozen=True)
class KindView:
    """`key` is the field that identifies an object; `service` gives the client's calls for the kind."""

    name: str
    plural: str
    key: str
    service: Callable[[Client], Any]
    columns: Sequence[TableColumn]
    deletable: bool


_COLUMNS: Mapping[str, Sequence[TableColumn]] = {
    "Order": tables.ORDERS,
    "Job": tables.JOBS,
    "Packet": tables.PACKETS,
    "Resource": tables.RESOURCES,
    "Target": tables.TARGETS,
    "Fulfilment": tables.FULFILMENTS,
    "Rule": tables.RULES,
    "ScalePolicy": tables.SCALE_POLICIES,
    "Secret": tables.SECRETS,
    "Cycle": tables.CYCLES,
    "Term": tables.TERMS,
    "Event": tables.EVENTS,
    "Settings": tables.SETTINGS,
}


def _view(kind: ObjectKind) -> KindView:
    # Settings are read through the service of the cluster.
    service = attrgetter("cluster" if kind.word == "Settings" else kind.plural)
    return KindView(kind.word, kind.plural, kind.identified_by, service, _COLUMNS[kind.word], kind.deletable)


KINDS = tuple(_view(kind) for kind in kinds.KINDS)
_BY_NAME = {name: kind for kind in KINDS for name in (kind.plural, kind.name.lower())}

# Kinds that only administrators list, by commands of their own.
_LISTED_ELSEWHERE = dict.fromkeys(("token", "tokens"), "cpctl token list") | dict.fromkeys(
    ("binding", "bindings"), "cpctl auth bindings"
)


def find(name: str) -> KindView:
    """The kind of this name: singular or plural, upper or lower case."""
    view = _BY_NAME.get(name.lower())
    if view is None and name.lower() in _LISTED_ELSEWHERE:
        raise Invalid("kind", f"{name} are shown by `{_LISTED_ELSEWHERE[name.lower()]}`")
    if view is None:
        raise Invalid("kind", f"must be one of {', '.join(kind.plural for kind in KINDS)}, not {name!r}")
    return view
