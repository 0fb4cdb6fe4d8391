"""A valid request for every method of the API, about the work of an owner or the objects of the plane."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from controlplane.wire.v1 import cluster_pb2, joblets_pb2, orders_pb2
from tests.component.access_stage import OTHER_TARGET, TARGET, Work
from tests.kubeconfigs import a_kubeconfig, written

# Methods that read without end or without a change; all others are tried in this order when they are allowed.
LAST = ("Update", "Pause", "Resume", "Tasks", "Task", "Cancel", "Delete", "Ungrant", "RevokeToken")


def requests_for(method: MethodDescriptor, work: Work) -> Sequence[Message]:
    """A KeyError asks for a row here: a new message needs a valid example."""
    content = _content(method, work)
    if isinstance(content, Message):
        return [content]
    make: Callable[..., Message] = message_factory.GetMessageClass(method.input_type)
    return [make(**content)]


def _content(method: MethodDescriptor, work: Work) -> Mapping[str, Any] | Message:
    service, message = method.containing_service.name, method.input_type.name
    if message in _OBJECTS:
        return _OBJECTS[message](work, method.name == "Create")
    if set(method.input_type.fields_by_name) <= {"min_revision"}:
        return {}
    order, step = work.running, f"{work.mark}-step"
    rows: Mapping[str, Mapping[str, Any] | Message] = {
        "GetRequest": {"name": _name_in(service, work)},
        "ListRequest": {},
        "ListEventsRequest": {},
        "WatchRequest": {"name": _name_in(service, work)},
        "WatchEventsRequest": {"name": work.event},
        "DeleteRequest": {"name": work.finished if service == "Orders" else _deletable(service, work)},
        "OrderRequest": {"id": work.waiting},
        "TasksRequest": {"id": work.held if method.name == "ReleaseTasks" else order, "job": step, "index": 0},
        "MoveTaskRequest": {"id": order, "job": step, "index": 0, "to": OTHER_TARGET},
        "ListTasksRequest": {"id": order},
        "UpdateOrderRequest": {"id": work.waiting, "priority": 7},
        "ExplainRequest": {"id": work.waiting},
        "PlanRequest": orders_pb2.PlanRequest(order=work.order(owner=work.owner)),
        "SubmitBatchRequest": orders_pb2.SubmitBatchRequest(orders=[work.order(owner=work.owner)]),
        "LogsRequest": {"id": order, "job": step},
        "ReadLogRequest": {"target": TARGET, "query": {"order": order, "fulfilment": work.fulfilment}},
        "ApplyRequest": cluster_pb2.ApplyRequest(
            objects=[cluster_pb2.Object(job=work.job(name=f"{work.mark}-applied", id="", owner=work.owner))]
        ),
        "CreateTokenRequest": {"subject": "carl", "roles": ["submitter"]},
        "CreateEnrolmentRequest": {"targets": ["new-target"], "driver": "process"},
        "EnrolRequest": {"targets": ["new-target"], "driver": "process", "digest": "d" * 64, "id": work.other_ids[6]},
        "RenewRequest": {"digest": "e" * 64},
        "RevokeTokenRequest": {"id": work.other_ids[5]},
        "Binding": {"role": "viewer", "subject": "carl", "owner": work.owner},
        "UngrantRequest": {"name": "spare-binding"},
        "CanIRequest": {"verb": "read", "kind": "Job"},
        "JobletBatch": a_hello(),
    }
    return rows[message]


def a_hello(**fields: Any) -> joblets_pb2.JobletBatch:
    given = {"target": OTHER_TARGET, "driver": "process", "instance": "life-1", "instance_secret": "s", "version": "1"}
    hello = joblets_pb2.Hello(**{**given, **fields}, capacity={"cpu": 4})
    return joblets_pb2.JobletBatch(messages=[joblets_pb2.JobletMessage(hello=hello)])


def _name_in(service: str, work: Work) -> str:
    return {
        "Jobs": f"{work.mark}-job",
        "Packets": f"{work.mark}-packet",
        "Resources": f"{work.mark}-resource",
        "Orders": work.waiting,
        "Fulfilments": work.fulfilment,
        "Events": work.event,
        "Cycles": "1",
        "Cluster": "1",
        "Targets": TARGET,
        "Rules": "plane-rule",
        "ScalePolicies": "plane-policy",
        "Secrets": "plane-secret",
    }.get(service, "")


def _deletable(service: str, work: Work) -> str:
    """The packet needs the job and the resource, and the target has work."""
    spare = {"Jobs": f"{work.mark}-new", "Resources": f"{work.mark}-new", "Targets": OTHER_TARGET}
    return spare.get(service) or _name_in(service, work)


def _named(work: Work, new: bool, message: Message) -> Message:
    changed: Any = message
    if new:
        changed.name, changed.id = f"{work.mark}-new", ""
        changed.owner = work.owner
    changed.labels["changed"] = "yes"
    return message


_OBJECTS: Mapping[str, Callable[[Work, bool], Mapping[str, Any] | Message]] = {
    "Job": lambda work, new: _named(work, new, work.job()),
    "Packet": lambda work, new: _named(work, new, work.packet()),
    "Resource": lambda work, new: _named(work, new, work.resource()),
    "Order": lambda work, new: work.order(owner=work.owner),
    "Target": lambda work, new: {"name": "new-target" if new else OTHER_TARGET, "driver": "process", "region": "eu"},
    "Rule": lambda work, new: {
        "name": "new-rule" if new else "plane-rule",
        "when": "order.priority > 98",
        "then": {"forbid": True},
    },
    "ScalePolicy": lambda work, new: {
        "name": "new-policy" if new else "plane-policy",
        "provider": "local",
        "metric": "queue",
        "threshold": 6,
        "max": 3,
        "template": {"driver": "process", "capacity": {"cpu": 4}},
    },
    "Secret": lambda work, new: {
        "name": "new-secret" if new else "plane-secret",
        "type": "kubeconfig",
        "data": {"kubeconfig": written(a_kubeconfig(token="t"))},
    },
    "Settings": lambda work, new: {"cycle_budget": 1000},
}
