"""Orders, tasks and results of commands -> messages of the wire, for gRPC."""

from __future__ import annotations

import structlog

from controlplane.aio.lru import Lru
from controlplane.apiserver.commands.change_order import ChangedOrder
from controlplane.apiserver.commands.submit import Submitted
from controlplane.apiserver.edge.object_messages import CONVERSION, ObjectMessages, warned
from controlplane.apiserver.queries.views.order_view import Progress, ShownOrder
from controlplane.apiserver.queries.views.task_view import ShownTask
from controlplane.cache.ledgers import Ledgers
from controlplane.model import texts
from controlplane.model.errors import ControlPlaneError, LimitExceeded
from controlplane.model.lifecycle import OrderPhase
from controlplane.model.order import Order, OrderStatus, content_digest
from controlplane.wire import convert
from controlplane.wire.v1 import orders_pb2

log = structlog.get_logger(__name__)

_MOST_RESOLVED = 200
# The lists of an order which users may change after its submit.
_WISHES = ("resources", "cancel_tasks", "moves", "releases", "stopped")


class OrderMessages(ObjectMessages[ShownOrder, orders_pb2.Order]):
    """Remembers the messages of resolved packets: many orders share a packet."""

    def __init__(self, ledgers: Ledgers) -> None:
        super().__init__(orders_pb2.Order, self.shown, lambda key: orders_pb2.Order(id=key))
        self._ledgers = ledgers
        self._resolved: Lru[str, orders_pb2.Resolved] = Lru(_MOST_RESOLVED)

    def shown(self, shown: ShownOrder) -> orders_pb2.Order:
        message = self.order(shown.order, shown.revision, shown.status)
        message.resolved.CopyFrom(self._resolved_of(shown))
        if shown.now is not None:
            _fill_progress(shown.order.id, shown.now, message.status)
        for task in shown.tasks:
            fill_task(task, message.tasks.add())
        message.next_task_token = shown.next_task_token
        return message

    def changed(self, changed: ChangedOrder) -> orders_pb2.OrderResponse:
        resolved = self._ledgers.resolved(changed.order)
        item = self.shown(ShownOrder(changed.order, changed.revision, resolved, changed.status))
        return orders_pb2.OrderResponse(revision=changed.revision, item=item)

    @staticmethod
    def order(order: Order, revision: int, status: OrderStatus | None) -> orders_pb2.Order:
        """The order without its resolved packet."""
        message = orders_pb2.Order(
            id=order.id, priority=order.priority, owner=order.owner, creator=order.creator, created=order.created,
            revision=revision, labels=order.labels, target_policy=order.target_policy, deadline=order.deadline,
            not_before=order.not_before, orchestration=order.orchestration, preempts=order.preempts,
            cancel=order.cancel, paused=order.paused, tasks_total=order.tasks_total, digest=order.digest,
            template=order.template, scheduled=order.scheduled, changed_by=order.changed_by,
        )  # fmt: skip
        message.packet.name = order.packet
        for policy in order.failure_policies:
            convert.fill(policy, message.failure_policies.add())
        for field in _WISHES:
            for item in getattr(order, field):
                convert.fill(item, getattr(message, field).add())
        if order.schedule is not None:
            convert.fill(order.schedule, message.schedule)
        if status is None:
            message.status.phase = OrderPhase.PENDING
            # A recurring order has no tasks of its own.
            message.status.counts.pending = order.tasks_total if order.schedule is None else 0
        else:
            convert.fill(status, message.status)
        return message

    def _resolved_of(self, shown: ShownOrder) -> orders_pb2.Resolved:
        digest = content_digest(shown.order.resolved)
        message = self._resolved.get(digest)
        if message is None:
            message = convert.to_wire(shown.resolved, orders_pb2.Resolved)
            self._resolved.put(digest, message)
        return message


def _fill_progress(identity: str, now: Progress, status: orders_pb2.OrderStatus) -> None:
    """An order with numbers beyond the range of its message is shown without them."""
    try:
        convert.fill(now.counts, status.counts)
        status.percent = now.percent
        for reason in now.reasons:
            status.reasons.add(reason=reason.reason, count=reason.count)
    except CONVERSION as error:
        log.error("an order cannot be explained", order=identity, error=repr(error))


def fill_task(task: ShownTask, message: orders_pb2.Task) -> None:
    message.job, message.index, message.phase, message.attempt = task.job, task.index, task.phase, task.attempt
    for field in _OPTIONAL:
        value = getattr(task, field)
        if value is not None:
            setattr(message, field, value)
    message.artefacts.extend(task.artefacts)
    message.avoid.extend(task.avoid)


_OPTIONAL = (
    "target", "fulfilment", "exit_code", "reason", "percent", "decision", "policy", "why", "not_before", "message",
)  # fmt: skip


def fill_result(result: orders_pb2.SubmitResult, identity: str, done: Submitted | ControlPlaneError) -> None:
    """Written in place: a message put into another message is copied with all of its content."""
    if isinstance(done, ControlPlaneError):
        result.id = identity
        result.failure.code = type(done).__name__
        result.failure.message = texts.cut(str(done), 1000)
        result.failure.field = getattr(done, "field", "")[:200]
        if isinstance(done, LimitExceeded) and done.retry_after_seconds is not None:
            result.failure.retry_after_seconds = done.retry_after_seconds
        return
    result.id = done.order.id
    result.revision = done.revision
    if done.repeated:
        result.repeated = True
    if done.warnings:
        warned(result, done.warnings)
