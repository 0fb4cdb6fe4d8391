"""Messages as the JSON that users see: `kind` first, then the object as stored, then what is known about it.

Keys of the contract are always there; what is not known is null.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from controlplane.wire import convert

COUNTS = ("pending", "placed", "running", "succeeded", "failed", "cancelled", "held")


def plain(kind: str, message: Message) -> dict[str, Any]:
    """The JSON of one object of that kind."""
    return {"kind": kind, **_SHAPES.get(kind, convert.to_plain)(message)}


def order(message: Message) -> dict[str, Any]:
    """Without tasks: those belong to the answer for one order, and are read page by page."""
    value = convert.to_plain(message)
    value.pop("tasks", None)
    value.pop("next_task_token", None)
    # An order that the leader has not looked at yet has no status: all of its tasks are pending.
    status = value.pop("status", None) or {"phase": "Pending", "counts": {"pending": value.get("tasks_total", 0)}}
    counts = status.get("counts", {})
    status["counts"] = {name: counts.get(name, 0) for name in COUNTS}
    known = {"phase": status["phase"], "counts": status["counts"], "percent": status.get("percent")}
    value["status"] = {**known, "reasons": status.get("reasons", []), **_rest(status, known)}
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
    """What it holds is never answered, so there is no field for it."""
    value = convert.to_plain(message)
    value.pop("data", None)
    return value


def term(message: Message) -> dict[str, Any]:
    value = convert.to_plain(message)
    value.setdefault("ended", None)
    return value


def leader(message: Message) -> dict[str, Any]:
    return convert.to_plain(message)


def _rest(value: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in known and key != "reasons"}


_SHAPES = {"Order": order, "Target": target, "Secret": secret, "Term": term}
