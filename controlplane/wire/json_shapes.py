"""The JSON that users see, made from messages: `kind` first, then the stored object, then its status.

Keys of the contract are always present; an unknown value is null. Faces print these shapes and build no others.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from controlplane.wire import convert
from controlplane.wire.v1 import cluster_pb2

COUNTS = ("pending", "placed", "running", "succeeded", "failed", "cancelled", "held")


def plain(kind: str, message: Message) -> dict[str, Any]:
    """The JSON of an object of the kind."""
    return {"kind": kind, **_SHAPES.get(kind, convert.to_plain)(message)}


def order(message: Message) -> dict[str, Any]:
    """An order without tasks: tasks belong to the answer for a single order, and are read page by page."""
    value = convert.to_plain(message)
    value.pop("tasks", None)
    value.pop("next_task_token", None)
    # An order that no leader has handled yet has no status: all its tasks are pending.
    status = value.pop("status", None) or {"phase": "Pending", "counts": {"pending": value.get("tasks_total", 0)}}
    counts = status.get("counts", {})
    status["counts"] = {name: counts.get(name, 0) for name in COUNTS}
    always = {"phase": status["phase"], "counts": status["counts"], "percent": status.get("percent")}
    value["status"] = {**always, "reasons": status.get("reasons", []), **_rest(status, always)}
    return value


def tasks(messages: list[Message]) -> list[dict[str, Any]]:
    return [convert.to_plain(message) for message in messages]


def target(message: Message) -> dict[str, Any]:
    value = convert.to_plain(message)
    live = value.pop("live", None)
    value["status"] = value.pop("status", None) or {"phase": "Provisioning", "used": {}, "free": {}}
    value["live"] = live
    return value


def secret(message: Message) -> dict[str, Any]:
    """A secret without its content, which is never answered."""
    value = convert.to_plain(message)
    value.pop("data", None)
    return value


def term(message: Message) -> dict[str, Any]:
    value = convert.to_plain(message)
    value.setdefault("ended", None)
    return value


def leader(message: Message) -> dict[str, Any]:
    return convert.to_plain(message)


def cluster_status(answer: cluster_pb2.StatusResponse) -> dict[str, Any]:
    """The control plane itself: replicas, keys that are set aside or isolated, etcd's space, a restore under way."""
    etcd = answer.etcd
    return {
        "id": answer.id,
        "version": answer.version,
        "revision": answer.revision,
        "leader": answer.leader.id or None,
        "replicas": [
            {
                "id": replica.id,
                "grpc": replica.grpc,
                "http": replica.http,
                "pid": replica.pid,
                "version": replica.version,
                "leads": replica.leads,
            }
            for replica in answer.replicas
        ],
        "orders": answer.orders,
        "targets": answer.targets,
        "keys": answer.keys,
        "poisoned": answer.poisoned,
        "poison": [{"key": poison.key, "rule": poison.rule} for poison in answer.poisoned_keys],
        "repaired": answer.repaired,
        "cache_age_seconds": round(answer.cache_age_seconds, 3),
        "isolated": {"total": answer.isolated, "keys": [_isolated(key) for key in answer.isolated_keys]},
        "etcd": {
            "cluster_id": etcd.cluster_id,
            "version": etcd.version,
            "size": etcd.size,
            "in_use": etcd.in_use,
            "quota": etcd.quota,
            "alarm": etcd.alarm,
            "level": etcd.level,
            "why": etcd.why,
        },
        "archive_error": answer.archive_error or None,
        "restoring": (
            {"since": answer.restoring.since, "waiting_for": list(answer.restoring.waiting_for)}
            if answer.HasField("restoring")
            else None
        ),
    }


def _isolated(key: Any) -> dict[str, Any]:
    return {
        "kind": key.kind,
        "name": key.name,
        "part": key.part,
        "error": key.error,
        "count": key.count,
        "since": key.since,
        "again": key.again,
    }


def _rest(value: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in shown and key != "reasons"}


_SHAPES = {"Order": order, "Target": target, "Secret": secret, "Term": term}
