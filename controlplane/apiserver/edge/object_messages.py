"""Objects of queries -> messages of the wire, for gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import structlog
from google.protobuf.message import Message

from controlplane.apiserver.admission.field_warnings import FieldWarning
from controlplane.apiserver.queries.views.fulfilment_view import ShownFulfilment
from controlplane.apiserver.queries.views.named_view import Shown, ShownScalePolicy, ShownTarget
from controlplane.model.event import Event
from controlplane.model.leadership import Cycle, Term
from controlplane.model.object import Named
from controlplane.model.scalepolicy import REMOVE, MadePhase
from controlplane.model.secret import Secret
from controlplane.wire import convert
from controlplane.wire.v1 import (
    cluster_pb2,
    cycles_pb2,
    events_pb2,
    fulfilments_pb2,
    scalepolicies_pb2,
    targets_pb2,
)

log = structlog.get_logger(__name__)

T = TypeVar("T")
M = TypeVar("M", bound=Message)
# Errors of filling a message with a value beyond the range of its field.
CONVERSION = (ValueError, TypeError, OverflowError)


class ObjectMessages(Generic[T, M]):
    """`message` encodes an object of one kind; `bare` gives a message with the identity in a key only."""

    def __init__(self, kind: type[M], message: Callable[[T], M], bare: Callable[[str], M]) -> None:
        self.kind = kind
        self.message = message
        self.bare = bare

    def encoded(self, key: str, item: T) -> M | None:
        try:
            return self.message(item)
        except CONVERSION as error:
            log.error("an object cannot be shown, stepping over it", key=key, error=str(error))
            return None

    def size(self, encoded: M) -> int:
        return encoded.ByteSize()


class _Warned(Protocol):
    @property
    def warnings(self) -> Any: ...


W = TypeVar("W", bound=_Warned)


def warned(message: W, warnings: Iterable[FieldWarning]) -> W:
    for warning in warnings:
        message.warnings.add(field=warning.field, message=warning.message)
    return message


def build(kind: type[M], **fields: Any) -> M:
    """A message of a class which is known at run time only."""
    make: Callable[..., M] = kind
    return make(**fields)


def named(kind: type[M]) -> ObjectMessages[Shown[Any], M]:
    return ObjectMessages(
        kind, lambda shown: stored(kind, shown.item, shown.revision), lambda key: build(kind, name=key)
    )


def stored(kind: type[M], item: Named, revision: int) -> M:
    """A named object as its user wrote it. A secret shows the name of its key, neither content nor seal."""
    message: Any = convert.to_wire(item, kind)
    message.revision = revision
    if isinstance(item, Secret) and item.sealed is not None:
        message.key = item.sealed.key
    result: M = message
    return result


def _scale_policy(shown: ShownScalePolicy) -> scalepolicies_pb2.ScalePolicy:
    message = stored(scalepolicies_pb2.ScalePolicy, shown.item, shown.revision)
    status = message.status
    status.SetInParent()
    if shown.scaling is not None:
        convert.fill(shown.scaling, status)
    for made in shown.made:
        convert.fill(made, status.made.add())
        status.targets += made.want != REMOVE
        status.up += made.want != REMOVE and made.phase in (MadePhase.UP, MadePhase.RESIZING)
    return message


def _target(shown: ShownTarget) -> targets_pb2.Target:
    message = stored(targets_pb2.Target, shown.item, shown.revision)
    message.status.phase = shown.phase
    if shown.status is not None:
        convert.fill(shown.status, message.status)
    if shown.hosting is not None:
        message.status.hosted_by, message.status.hosting = shown.hosting.replica, shown.hosting.reason
    if shown.live is not None:
        message.live.SetInParent()
        convert.fill(shown.live, message.live)
    return message


def _fulfilment(shown: ShownFulfilment) -> fulfilments_pb2.Fulfilment:
    message = convert.to_wire(shown.fulfilment, fulfilments_pb2.Fulfilment)
    message.revision = shown.revision
    if shown.observed is not None:
        message.observed.SetInParent()
        convert.fill(shown.observed, message.observed)
    return message


def _bare_fulfilment(key: str) -> fulfilments_pb2.Fulfilment:
    identity, _, target = key.partition("/")
    return fulfilments_pb2.Fulfilment(id=identity, target=target)


def _cycle(cycle: Cycle) -> cycles_pb2.Cycle:
    return convert.to_wire(cycle, cycles_pb2.Cycle)


def _bare_cycle(key: str) -> cycles_pb2.Cycle:
    epoch, _, n = key.partition("/")
    return cycles_pb2.Cycle(epoch=_number(epoch), n=_number(n))


def _term(term: Term) -> cluster_pb2.Term:
    return convert.to_wire(term, cluster_pb2.Term)


def _event(event: Event) -> events_pb2.Event:
    return convert.to_wire(event, events_pb2.Event)


def _number(padded: str) -> int:
    """0 for a key not written by a leader."""
    number = int(padded) if padded.isascii() and padded.isdigit() and len(padded) == 20 else 0
    return number if number < 2**63 else 0


SCALE_POLICIES = ObjectMessages(
    scalepolicies_pb2.ScalePolicy, _scale_policy, lambda key: scalepolicies_pb2.ScalePolicy(name=key)
)
TARGETS = ObjectMessages(targets_pb2.Target, _target, lambda key: targets_pb2.Target(name=key))
FULFILMENTS = ObjectMessages(fulfilments_pb2.Fulfilment, _fulfilment, _bare_fulfilment)
CYCLES = ObjectMessages(cycles_pb2.Cycle, _cycle, _bare_cycle)
TERMS = ObjectMessages(cluster_pb2.Term, _term, lambda key: cluster_pb2.Term(epoch=_number(key)))
EVENTS = ObjectMessages(events_pb2.Event, _event, lambda key: events_pb2.Event(id=key))
