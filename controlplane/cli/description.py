"""Sections of `cpctl describe`: an object as text for people. Scripts ask for JSON instead."""

from __future__ import annotations

from typing import Any

from controlplane.cli import tables
from controlplane.cli.output import AnswerPrinter
from controlplane.model.texts import printable

_LATER = frozenset({"kind", "tasks", "status", "resolved", "live", "observed", "jobs"})


def describe(out: AnswerPrinter, kind: str, item: dict[str, Any]) -> None:
    _section(out, kind, {key: value for key, value in item.items() if key not in _LATER})
    if kind == "Order":
        _order(out, item)
    elif kind == "Target":
        _section(out, "Status", item["status"])
        _section(out, "Joblet", item["live"] or {"session": "none: no joblet is connected"})
    elif kind == "Fulfilment":
        _rows(out, "Tasks", (*tables.TASKS[:2], tables.TASKS[3]), item["tasks"])
        for name, spec in item.get("jobs", {}).items():
            _section(out, f"Job {name}", spec)
        observed = item["observed"]
        _section(out, "Observed", {k: v for k, v in observed.items() if k != "tasks"} if observed else {})
        _rows(out, "Observed tasks", tables.TASKS, observed["tasks"] if observed else [])
    elif kind == "ScalePolicy":
        status = item.get("status") or {}
        _section(out, "Status", {key: status.get(key) for key in ("targets", "up", "acted")}, keep_empty=True)
        _rows(out, "Made", tables.MADE, status.get("made", []))
        _rows(out, "Timeline", tables.SCALING_STEPS, status.get("timeline", []))
    elif kind == "Packet":
        _jobs(out, item.get("jobs", []))


def events(out: AnswerPrinter, items: list[dict[str, Any]]) -> None:
    """The section of the object's events, as far as events are kept."""
    _rows(out, "Events", tables.EVENTS, items)


def _order(out: AnswerPrinter, item: dict[str, Any]) -> None:
    status = item["status"]
    _section(out, "Status", {key: value for key, value in status.items() if key not in ("counts", "reasons")})
    _section(out, "Counts", status["counts"], keep_empty=True)
    _section(out, "Waits for", {reason["reason"]: reason["count"] for reason in status["reasons"]})
    resolved = item.get("resolved") or {}
    _jobs(out, resolved.get("jobs", []))
    for resource in resolved.get("resources", []):
        _section(out, f"Resource {resource['name']}", {key: resource.get(key) for key in ("key", "value", "unique")})
    _rows(out, "Tasks", tables.TASKS, item.get("tasks", []))


def _jobs(out: AnswerPrinter, entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        job = entry.get("job")
        if isinstance(job, dict):
            title = f"Job {job.get('name') or '(inline)'} x {entry.get('count') or 1}"
            hidden = ("name", "id", "created", "revision", "owner", "creator")
            _section(out, title, {key: value for key, value in job.items() if key not in hidden})
        else:
            _section(out, f"Job {job} x {entry.get('count') or 1}", {"after": entry.get("after")})


def _section(out: AnswerPrinter, title: str, values: dict[str, Any], *, keep_empty: bool = False) -> None:
    """A title and a line per field; empty fields are left out."""
    shown = {k: v for k, v in values.items() if keep_empty or v not in (None, "", [], {}, False)}
    if not shown:
        return
    out.text(f"{title}:")
    width = max(len(key) for key in shown)
    for key, value in shown.items():
        out.text(f"  {key:<{width}}  {printable(_value(key, value))}")


def _value(key: str, value: Any) -> str:
    if key in ("requests", "capacity", "used", "free", "stats"):
        return tables.quantities(value)
    if isinstance(value, dict):
        return ", ".join(
            f"{name}={_value(name, part)}" for name, part in value.items() if part not in (None, "", [], {})
        )
    if isinstance(value, list):
        separator = " " if key == "command" else ", "
        return separator.join(_value(key, part) for part in value)
    return str(value)


def _rows(out: AnswerPrinter, title: str, columns: Any, items: list[dict[str, Any]]) -> None:
    if items:
        out.text(f"{title}:")
        out.rows(columns, items)
