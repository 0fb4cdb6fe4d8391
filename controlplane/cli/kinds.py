"""The kinds of objects that `get`, `describe` and `delete` know, by every name people may call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.cli import tables
from controlplane.cli.output import Column
from controlplane.client import Client
from controlplane.model.errors import Invalid


@dataclass(frozen=True)
class Kind:
    """`key` identifies an object of the kind; `service` finds it in a client; what cannot be deleted says so."""

    name: str
    plural: str
    key: str
    service: Callable[[Client], Any]
    columns: Sequence[Column]
    deletable: bool = True


KINDS = (
    Kind("Order", "orders", "id", lambda client: client.orders, tables.ORDERS),
    Kind("Job", "jobs", "name", lambda client: client.jobs, tables.JOBS),
    Kind("Packet", "packets", "name", lambda client: client.packets, tables.PACKETS),
    Kind("Resource", "resources", "name", lambda client: client.resources, tables.RESOURCES),
    Kind("Target", "targets", "name", lambda client: client.targets, tables.TARGETS),
    Kind("Fulfilment", "fulfilments", "id", lambda client: client.fulfilments, tables.FULFILMENTS, False),
    Kind("Rule", "rules", "name", lambda client: client.rules, tables.RULES),
    Kind("ScalePolicy", "scalepolicies", "name", lambda client: client.scalepolicies, tables.SCALE_POLICIES),
    Kind("Secret", "secrets", "name", lambda client: client.secrets, tables.SECRETS),
    Kind("Cycle", "cycles", "n", lambda client: client.cycles, tables.CYCLES, False),
    Kind("Term", "terms", "epoch", lambda client: client.terms, tables.TERMS, False),
    Kind("Event", "events", "id", lambda client: client.events, tables.EVENTS, False),
    Kind("Settings", "settings", "", lambda client: client.cluster, tables.SETTINGS, False),
)
_BY_NAME = {name: kind for kind in KINDS for name in (kind.plural, kind.name.lower())}


def find(name: str) -> Kind:
    """The kind called that: singular or plural, upper or lower case."""
    found = _BY_NAME.get(name.lower())
    if found is None:
        raise Invalid("kind", f"must be one of {', '.join(kind.plural for kind in KINDS)}, not {name!r}")
    return found
