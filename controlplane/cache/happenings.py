"""The meaning of a change to a person who may ask about the change later: a Delta in, Happenings out.

The plain good path leaves no event: an order that is submitted, runs and succeeds. Most changes are on that path, so
that each change is first judged by a peek into the value, and decoded only if there is something to tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal

import msgspec

from controlplane.cache import peek
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model import kinds, texts
from controlplane.model.errors import Broken
from controlplane.model.event import NORMAL, WARNING, About, Happening
from controlplane.model.fulfilment import EndedTask
from controlplane.model.order import OrderStatus
from controlplane.model.task import AttemptPhase, TaskEvent
from controlplane.store import keys

Look = Callable[[], Snapshot]
Tell = Callable[[Delta, Look], Iterator[Happening]]

# The kinds of config objects, by their trees.
_KINDS: Mapping[str, str] = {keys.tree_of(kind.stored): kind.word for kind in kinds.NAMED}
# The reasons for a wish that is made, and for a wish that is taken back.
_WISHES = {
    "cancel": ("CancelWished", "CancelTakenBack"),
    "paused": ("PauseWished", "ResumeWished"),
    "cordoned": ("CordonWished", "UncordonWished"),
    "drain": ("DrainWished", "DrainTakenBack"),
}
_SILENT_FIELDS = frozenset({"resolved", "resolved_digest", "digest", "value", "secrets", "sealed"})
# Texts that name objects of the control plane. Any other text (env, command, labels, url, ...) may hold a password, and
# everybody reads events: of such fields only the names are told. Numbers are always told.
_OPEN_TEXTS = frozenset({
    "target_policy", "not_before", "deadline", "region", "driver", "owner", "creator", "packet", "placement", "metric",
    "provider", "image", "class", "kubeconfig_secret", "security", "orchestration", "mount", "name", "id",
})  # fmt: skip
_DECISIONS: Mapping[str, str] = {TaskEvent.RETRY: "Retry", TaskEvent.HOLD: "Held", TaskEvent.IGNORE: "Ignored"}
_TROUBLE = frozenset({"Suspect", "Failed"})
_TOLD_PHASES = frozenset({"Failed", "Cancelled", "Paused"})
_MOST_ENDS = 50
_MOST_KEY = 512
# Characters of an attempt's message, and of a value or its keys.
_MOST_MESSAGE, _MOST_VALUE = 300, 60
# Creating and deleting these keys is routine.
_COME_AND_GO = frozenset({keys.ORDERS, keys.DESIRED})


def happenings_of(delta: Delta, look: Look) -> Iterator[Happening]:
    """`look` gives the snapshot that contains the change. Unreadable values are reported by the ledgers."""
    tell = _TELLERS.get(delta.tree)
    if tell is None:
        return
    try:
        for happening in tell(delta, look):
            yield msgspec.structs.replace(happening, owner=_owner(happening.about, delta, look))
    except (Broken, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return


def owned(happening: Happening, snapshot: Snapshot) -> Happening:
    """A happening that no change tells of, with the owner of the order it is about: the owner may see it then."""
    if happening.about.kind != "Order":
        return happening
    return msgspec.structs.replace(happening, owner=peek.owner(snapshot.get(keys.ORDERS, happening.about.name)))


def _owner(about: About, delta: Delta, look: Look) -> str:
    """The owner of the object that a happening is about; empty for objects of the plane."""
    if about.kind == "Order":
        return peek.owner(look().get(keys.ORDERS, about.name) or (delta.old if delta.tree == keys.ORDERS else None))
    return peek.owner(delta.new or delta.old) if about.kind in ("Job", "Packet", "Resource") else ""


def is_routine(delta: Delta) -> bool:
    """Whether the key alone puts the change on the good path: true for most changes, and asked on every replica."""
    if delta.tree in _COME_AND_GO:
        return delta.old is None or delta.new is None
    return delta.tree == keys.INVENTORY and delta.parts[1] != keys.LIVE


def poison(key: str, rule: str, revision: int) -> Happening:
    about = About(kind="Key", name=key[:_MOST_KEY])
    message = f"is set aside: {rule}"
    return Happening(about=about, reason="Poison", message=message, by="cache", type=WARNING, revision=revision)


def mended(key: str, revision: int) -> Happening:
    about = About(kind="Key", name=key[:_MOST_KEY])
    return Happening(
        about=about, reason="Mended", message="can be read again, or is gone", by="cache", revision=revision
    )


# Orders


def _order_wishes(delta: Delta, look: Look) -> Iterator[Happening]:
    if delta.old is not None and delta.new is not None:
        yield from _changed(delta, About(kind="Order", name=delta.parts[0]))


def _order_status(delta: Delta, look: Look) -> Iterator[Happening]:
    if delta.new is None:
        return
    before, phase = peek.phase(delta.old), peek.phase(delta.new)
    held = peek.has_held_tasks(delta.new)
    changed = phase != before and (phase in _TOLD_PHASES or before == "Paused")
    if not changed and not held:
        return
    about = About(kind="Order", name=delta.parts[0])
    by = _leader(delta.new, look, "controller_manager")
    if changed and phase in _TOLD_PHASES:
        status = delta.new.read()
        message = _why_failed(status, delta.parts[0], look) if phase == "Failed" else _counted(status)
        kind = WARNING if phase == "Failed" else NORMAL
        yield _told(delta, about, phase, message, by, kind)
    elif changed:
        yield _told(delta, about, "Resumed", f"is {phase}", by)
    if held and _held(delta.new) > (_held(delta.old) if delta.old is not None else 0):
        yield _told(delta, about, "Held", f"{_held(delta.new)} tasks are held for a person to decide", by, WARNING)


def _held(entry: Entry[OrderStatus]) -> int:
    return entry.read().counts.held


def _counted(status: OrderStatus) -> str:
    counts = msgspec.structs.asdict(status.counts)
    return ", ".join(f"{count} {phase}" for phase, count in counts.items() if count) or "no tasks"


def _why_failed(status: OrderStatus, order: str, look: Look) -> str:
    """The most frequent messages of failed attempts; of an order with many attempts, of some attempts."""
    messages: Counter[str] = Counter()
    for entry in islice(look().all(keys.ENDED, order), _MOST_ENDS):
        for task in entry.read().tasks:
            if task.phase == AttemptPhase.FAILED:
                messages[_end(task)] += 1
    why = "; ".join(text for text, _ in messages.most_common(3))
    return f"{_counted(status)}: {why}" if why else _counted(status)


def _attempt(delta: Delta, look: Look) -> Iterator[Happening]:
    """A happening for all tasks of the fulfilment that ended alike."""
    if delta.new is None or delta.old is not None:
        return
    if not peek.has_failed(delta.new) and not peek.goes_on(delta.new):
        return
    ended = delta.new.read()
    by = _leader(delta.new, look, "controller_manager")
    for message, reason in {_attempt_told(task, ended.target): _reason(task) for task in ended.tasks}.items():
        if reason:
            yield _told(delta, About(kind="Order", name=ended.order), reason, message, by, WARNING)


def _reason(task: EndedTask) -> str:
    cancelled = task.phase == AttemptPhase.CANCELLED and task.decision == TaskEvent.CANCEL
    if task.phase == AttemptPhase.SUCCEEDED or cancelled:
        return ""
    return _DECISIONS.get(task.decision, "AttemptFailed")


def _attempt_told(task: EndedTask, target: str) -> str:
    where = f" on {target}" if target else ""
    later = f", not before {task.not_before}" if task.not_before else ""
    why = f" ({task.why})" if task.why else ""
    return f"attempt {task.attempt} of {task.job}{where} ended: {_end(task)}; decision: {task.decision}{why}{later}"


def _end(task: EndedTask) -> str:
    code = f"exit code {task.exit_code}" if task.exit_code is not None else ""
    return ", ".join(part for part in (task.reason or task.phase, code, _message(task)) if part)


def _message(task: EndedTask) -> str:
    """The message as the joblet cut it; a longer text keeps the end, where the cause usually stands."""
    keep: Literal["start", "end"] = "end" if task.reason in ("StartError", "ImageError", "Failed") else "start"
    return texts.cut(task.message, _MOST_MESSAGE, keep=keep)


def _stop(delta: Delta, look: Look) -> Iterator[Happening]:
    """Work that is stopped without a cancel."""
    if delta.new is None or not peek.wants_stop(delta.new):
        return
    if delta.old is not None and peek.wants_stop(delta.old):
        return
    fulfilment = delta.new.read()
    if fulfilment.reason in ("", "Cancelled"):
        return
    preempted = look().get(keys.PREEMPTIONS, fulfilment.target, fulfilment.id)
    preemption = preempted.readable() if preempted is not None else None
    room_for = f" to make room for order {preemption.by}" if preemption is not None else ""
    message = f"{len(fulfilment.tasks)} tasks are stopped on {fulfilment.target}{room_for}"
    by = _leader(delta.new, look, "scheduler" if fulfilment.reason == "Preempted" else "controller_manager")
    yield _told(delta, About(kind="Order", name=fulfilment.order), fulfilment.reason, message, by, WARNING)


# Targets


def _target_status(delta: Delta, look: Look) -> Iterator[Happening]:
    phase, before = peek.phase(delta.new), peek.phase(delta.old) or "Provisioning"
    if delta.new is None or phase == before or (before, phase) == ("Provisioning", "Ready"):
        return
    why = delta.new.read().reason
    message = f"was {before}" + (f": {why}" if why else "")
    by = _leader(delta.new, look, "controller_manager")
    kind = WARNING if phase in _TROUBLE else NORMAL
    yield _told(delta, About(kind="Target", name=delta.parts[0]), phase, message, by, kind)


def _session(delta: Delta, look: Look) -> Iterator[Happening]:
    if delta.parts[1] != keys.LIVE:
        return
    target = delta.parts[0]
    about, by = About(kind="Target", name=target), f"joblet@{target}"
    if delta.new is None:
        yield _told(delta, about, "Left", "its joblet's session is over", by, WARNING)
    elif peek.session(delta.old) != peek.session(delta.new):
        live = delta.new.read()
        # The same joblet with another lease has not been away.
        if peek.instance(delta.old) != live.instance:
            yield _told(delta, about, "Joined", f"{live.driver} joblet, version {live.version}", by)


# The control plane and configuration


def _term(delta: Delta, look: Look) -> Iterator[Happening]:
    if delta.new is None or delta.old is not None:
        return
    term = delta.new.read()
    ended = term.ended if term.ended is not None and term.ended.epoch else None
    how = f"; epoch {ended.epoch} ended: {ended.how}" if ended is not None else ""
    message = f"{term.id} leads, epoch {term.epoch}{how}"
    yield _told(delta, About(kind="Cluster", name="leader"), "LeaderElected", message, f"election@{term.id}")


def _config(delta: Delta, look: Look) -> Iterator[Happening]:
    about = About(kind=_KINDS.get(delta.tree, "Settings"), name=delta.parts[0])
    if delta.old is not None and delta.new is not None:
        yield from _changed(delta, about)
    else:
        reason, entry = ("Created", delta.new) if delta.new is not None else ("Deleted", delta.old)
        yield _told(delta, about, reason, "", _user(_fields(entry)))


def _changed(delta: Delta, about: About) -> Iterator[Happening]:
    """A happening for each wish, and a happening for all other fields."""
    old, new = _fields(delta.old), _fields(delta.new)
    by = _user(new)
    different = [name for name in {**old, **new} if old.get(name) != new.get(name) and name != "changed_by"]
    for name in different:
        if name in _WISHES:
            made, taken_back = _WISHES[name]
            yield _told(delta, about, made if new.get(name) else taken_back, "", by)
    others = [name for name in different if name not in _WISHES]
    if others:
        parts = (_change_of(name, old.get(name), new.get(name)) for name in others)
        yield _told(delta, about, "Changed", "; ".join(parts), by)


def _change_of(name: str, old: Any, new: Any) -> str:
    """Both values of a field that cannot hold a secret; else the field's name, with the changed keys of a mapping."""
    if name in _SILENT_FIELDS:
        return name
    if _is_open(name, old) and _is_open(name, new):
        return f"{name} {_short(old)} -> {_short(new)}"
    before, after = (value if isinstance(value, dict) else {} for value in (old, new))
    keys_changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return f"{name} ({texts.cut(', '.join(keys_changed), _MOST_VALUE)})" if keys_changed else name


def _is_open(name: str, value: Any) -> bool:
    """Whether the value cannot hold a secret: numbers, mappings of numbers, and texts that name objects."""
    if isinstance(value, dict):
        return all(_is_open("", part) for part in value.values())
    return value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and name in _OPEN_TEXTS)


def _short(value: Any) -> str:
    return "unset" if value is None else texts.cut(msgspec.json.encode(value).decode(), _MOST_VALUE)


def _fields(entry: Entry[Any] | None) -> Mapping[str, Any]:
    fields = msgspec.json.decode(entry.stored.value) if entry is not None else {}
    return fields if isinstance(fields, dict) else {}


def _user(fields: Mapping[str, Any]) -> str:
    """The subject of the last change; of an object that was never changed, and on an open plane, the owner."""
    return str(fields.get("changed_by") or fields.get("owner") or fields.get("creator") or "user")


def _leader(entry: Entry[Any], look: Look, component: str) -> str:
    """The component on the replica that led in the term of the value."""
    stamped = msgspec.json.decode(entry.stored.value, type=_Stamped)
    term = look().term(stamped.epoch)
    return f"{component}@{term.id}" if term is not None else component


class _Stamped(msgspec.Struct):
    epoch: int = 0


def _told(delta: Delta, about: About, reason: str, message: str, by: str, kind: str = NORMAL) -> Happening:
    return Happening(about=about, reason=reason, message=message, by=by, type=kind, revision=delta.revision)


_TELLERS: Mapping[str, Tell] = {
    keys.ORDERS: _order_wishes,
    keys.ORDER_STATUS: _order_status,
    keys.ENDED: _attempt,
    keys.DESIRED: _stop,
    keys.TARGET_STATUS: _target_status,
    keys.INVENTORY: _session,
    keys.TERMS: _term,
    keys.CONFIG: _config,
    **dict.fromkeys(_KINDS, _config),
}
