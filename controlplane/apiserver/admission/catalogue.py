"""The catalogue of existing objects for admission: looked up by name, never listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from controlplane.model.errors import Broken, Invalid, NotFound
from controlplane.model.job import Job
from controlplane.model.object import Named
from controlplane.model.packet import Packet
from controlplane.model.resource import Resource
from controlplane.model.secret import Secret
from controlplane.model.settings import Settings
from controlplane.model.target import Target
from controlplane.store import codec

N = TypeVar("N", bound=Named)


class Catalogue(Protocol):
    """`revision` is that of the cache's snapshot; None when results of admission must not be kept."""

    @property
    def revision(self) -> int | None: ...

    def find(self, kind: type[N], name: str) -> N | None: ...

    def settings(self) -> Settings: ...


class Overlay:
    """Objects about to be admitted together, over the existing objects."""

    revision = None

    def __init__(self, below: Catalogue, objects: Mapping[tuple[type[Named], str], Named], settings: Settings) -> None:
        self._below = below
        self._objects = objects
        self._settings = settings

    def find(self, kind: type[N], name: str) -> N | None:
        item = self._objects.get((kind, name))
        return item if isinstance(item, kind) else self._below.find(kind, name)

    def settings(self) -> Settings:
        return self._settings


def job(catalogue: Catalogue, name: str, field: str) -> Job:
    return _known(catalogue, Job, name, field)


def packet(catalogue: Catalogue, name: str, field: str) -> Packet:
    return _known(catalogue, Packet, name, field)


def resource(catalogue: Catalogue, name: str, field: str) -> Resource:
    return _known(catalogue, Resource, name, field)


def target(catalogue: Catalogue, name: str, field: str) -> Target:
    return _known(catalogue, Target, name, field)


def secret(catalogue: Catalogue, name: str, field: str) -> Secret:
    return _known(catalogue, Secret, name, field)


def _known(catalogue: Catalogue, kind: type[N], name: str, field: str) -> N:
    """An insane stored object is refused by its field, as if sent."""
    try:
        item = catalogue.find(kind, name)
    except Broken as error:
        fault = codec.fault_of(error)
        if fault is None:
            raise
        raise Invalid(f"{field}{fault[0]}", fault[1]) from None
    if item is None:
        raise NotFound(f"{field}: there is no {kind.__name__.lower()} {name!r}", field=field)
    return item
