"""Admission of orders: a request becomes the order to be stored, and the write which stores the order.

Admission is cheap for many alike orders: the resolution of a packet, and the order of a request apart from identity and
time, are kept until an object they may refer to changes. Kept results belong to one subject.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from controlplane.aio.lru import Lru
from controlplane.apiserver import authorisation
from controlplane.apiserver.admission import catalogue, field_warnings, order_admission, restrictions
from controlplane.apiserver.admission.admit_caught_up import gives_time_limits
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.field_warnings import FieldWarning
from controlplane.apiserver.admission.resolve import Resolution, resolve
from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.authorisation import Verb
from controlplane.cache.reflector import Delta
from controlplane.model import schedule, times
from controlplane.model.access import Subject
from controlplane.model.order import Order, OrderRequest, content_digest
from controlplane.model.packet import Packet
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item

# The trees that a resolution may refer to.
_REFERRED = frozenset({keys.CONFIG, keys.JOBS, keys.PACKETS, keys.RESOURCES, keys.TARGETS})
_MOST_KEPT = 200

V = TypeVar("V")
Key = tuple[Subject, str]


class AdmittedOrder(NamedTuple):
    """The order of a request, apart from its identity and its time."""

    order: Order
    warnings: list[FieldWarning]


class PreparedOrder(NamedTuple):
    order: Order
    item: Item
    warnings: list[FieldWarning]


class OrderAdmission:
    def __init__(self, reads: Reads, writes: Writes) -> None:
        self._reads = reads
        self._writes = writes
        self._resolutions: Lru[Key, Resolution] = Lru(_MOST_KEPT)
        self._admitted: Lru[Key, AdmittedOrder] = Lru(_MOST_KEPT)
        self._keeping = threading.Lock()
        self._referred_revision = 0
        reads.cache.subscribe(self._hear)

    def identified(self, request: OrderRequest) -> OrderRequest:
        return request if request.id else replace(request, id=self._writes.mint.make())

    def prepare(
        self, subject: Subject, request: OrderRequest, existing: Catalogue, *, digest: str = "", now: str = ""
    ) -> PreparedOrder:
        """The order as stored, and the write for it. An empty `digest` or `now` is worked out.

        The request has its identity (`identified`): preparing may run in a thread, identities are made on the loop.
        """
        digest = digest or order_admission.digest_of(request, subject)
        admitted = self._admitted.get((subject, digest)) if existing.revision is not None else None
        if admitted is None:
            admitted = self._admit(subject, request, digest, existing)
        order = replace(admitted.order, id=request.id, created=now or times.show(self._writes.clock.wall()))
        if order.schedule is not None:
            schedule.check_fires(order.schedule, times.parse(order.created, "created"))
        return PreparedOrder(
            order, transaction.create_item(keys.order(order.id), codec.encode(order)), admitted.warnings
        )

    def _admit(self, subject: Subject, request: OrderRequest, digest: str, existing: Catalogue) -> AdmittedOrder:
        order_admission.check(request, existing)
        resolution = self._resolution(subject, request.packet, existing)
        limited = bool(resolution.gang_bytes) and gives_time_limits(self._reads.cache.snapshot)
        order_admission.agree(request, resolution, limited=limited)
        now = times.show(times.FIRST)
        order = order_admission.build(request, resolution, subject=subject, identity="", now=now, content=digest)
        authorisation.check(subject, Verb.CREATE, "Order", order.owner, field="owner")
        restrictions.check(
            restrictions.restriction_of(subject, existing.settings()),
            resolution.demands,
            priority=order.priority,
            target_policy=order.target_policy,
            preempts=order.preempts,
        )
        codec.check(order)
        warnings = field_warnings.of(request) + order_admission.doubts(request, resolution, existing)
        admitted = AdmittedOrder(order, warnings)
        self._keep(self._admitted, (subject, digest), admitted, existing)
        return admitted

    def _resolution(self, subject: Subject, packet: str | Packet, existing: Catalogue) -> Resolution:
        if existing.revision is None:
            return _resolved(packet, existing)
        # A name cannot be taken for a digest, which has an upper-case letter in front.
        key = subject, packet if isinstance(packet, str) else f"D{content_digest(codec.encode(packet))}"
        resolution = self._resolutions.get(key)
        if resolution is None:
            resolution = _resolved(packet, existing)
            self._keep(self._resolutions, key, resolution, existing)
        return resolution

    def _keep(self, kept: Lru[Key, V], key: Key, value: V, existing: Catalogue) -> None:
        """Keeps the value, unless the catalogue is not the cache's, or an object referred to changed since.

        Large requests are admitted in threads.
        """
        with self._keeping:
            if existing.revision is not None and existing.revision >= self._referred_revision:
                kept.put(key, value)

    def _hear(self, deltas: Sequence[Delta], revision: int) -> None:
        if any(delta.tree in _REFERRED for delta in deltas):
            with self._keeping:
                self._referred_revision = revision
                self._resolutions.clear()
                self._admitted.clear()


def _resolved(packet: str | Packet, existing: Catalogue) -> Resolution:
    return resolve(catalogue.packet(existing, packet, "packet") if isinstance(packet, str) else packet, existing)
