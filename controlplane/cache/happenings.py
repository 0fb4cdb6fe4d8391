"""What a change of a key means to a person who may ask about it later: a Delta in, Happenings out.

The plain good path tells nothing: an order that is submitted, runs and succeeds leaves no event. Most changes are of
that path, so each is first judged by a few words in its value, and decoded only when there is something to tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal

import msgspec

from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model import texts
from controlplane.model.errors import Broken
from controlplane.model.event import NORMAL, WARNING, About, Happening
from controlplane.model.fulfilment import Ended, EndedTask, Fulfilment
from controlplane.model.leadership import Term
from controlplane.model.order import OrderStatus
from controlplane.model.target import Live, TargetStatus
from controlplane.store import keys

Look = Callable[[], Snapshot]
Tell = Callable[[Delta, Look], Iterator[Happening]]

_KINDS = {
    "jobs": "Job",
    "packets": "Packet",
    "resources": "Resource",
    "targets": "Target",
    "rules": "Rule",
    "scalepolicies": "ScalePolicy",
    "secrets": "Secret",
}
# What a wish is called when it is made and when it is taken back.
_WISHES = {
    "cancel": ("CancelWished", "CancelTakenBack"),
    "paused": ("PauseWished", "ResumeWished"),
    "cordoned": ("CordonWished", "UncordonWished"),
    "drain": ("DrainWished", "DrainTakenBack"),
}
_SILENT_FIELDS = frozenset({"resolved", "resolved_digest", "digest", "value", "secrets", "sealed"})
# Texts that name things of the control plane. Any other text (env, command, labels, url, ...) may hold a password, and
# events are for everybody: of those only the names of what changed are told. Numbers are always told.
_OPEN_TEXTS = frozenset({
    "target_policy", "not_before", "deadline", "region", "driver", "owner", "creator", "packet", "placement", "metric",
    "provider", "image", "class", "kubeconfig_secret", "security", "orchestration", "mount", "name", "id",
})  # fmt: skip
_DECISIONS = {"retry": "Retry", "hold": "Held", "ignore": "Ignored"}
_TROUBLE = frozenset({"Suspect", "Failed"})
_TOLD_PHASES = frozenset({"Failed", "Cancelled", "Paused"})
_MOST_ENDS = 50
_MOST_KEY = 512
# Characters of what an attempt said, and of one value or its keys.
_MOST_MESSAGE, _MOST_VALUE = 300, 60
# What is new there, or gone, is what is meant to be.
_COME_AND_GO = frozenset({"config/orders", "desired"})


def of(delta: Delta, look: Look) -> Iterator[Happening]:
    """`look` gives the picture that contains the change. Of what cannot be read the ledgers tell."""
    tell = _TELLERS.get(delta.tree)
    if tell is None:
        return
    try:
        yield from tell(delta, look)
    except (Broken, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return


def silent(delta: Delta) -> bool:
    """Whether it is of the good path by its place alone: most changes are, and each is asked on every replica."""
    if delta.tree in _COME_AND_GO:
        return delta.old is None or delta.new is None
    return delta.tree == "inventory" and delta.parts[1] != keys.LIVE


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
    value, before = delta.new.stored.value, _word(delta.old, b'"phase":"')
    phase = _word(delta.new, b'"phase":"')
    held = b'"held":0' not in value
    changed = phase != before and (phase in _TOLD_PHASES or before == "Paused")
    if not changed and not held:
        return
    about = About(kind="Order", name=delta.parts[0])
    by = _leader(delta.new, look, "controller_manager")
    if changed and phase in _TOLD_PHASES:
        status = delta.new.read(OrderStatus)
        message = _why_failed(status, delta.parts[0], look) if phase == "Failed" else _counted(status)
        kind = WARNING if phase == "Failed" else NORMAL
        yield _told(delta, about, phase, message, by, kind)
    elif changed:
        yield _told(delta, about, "Resumed", f"is {phase}", by)
    if held and _held(delta.new) > (_held(delta.old) if delta.old is not None else 0):
        yield _told(delta, about, "Held", f"{_held(delta.new)} tasks are held for a person to decide", by, WARNING)


def _held(entry: Entry) -> int:
    return entry.read(OrderStatus).counts.held


def _counted(status: OrderStatus) -> str:
    counts = msgspec.structs.asdict(status.counts)
    return ", ".join(f"{count} {phase}" for phase, count in counts.items() if count) or "no tasks"


def _why_failed(status: OrderStatus, order: str, look: Look) -> str:
    """What its failed attempts say, the most frequent first; of an order with many, some of them."""
    found: Counter[str] = Counter()
    for entry in islice(look().all("status/ended", order), _MOST_ENDS):
        for task in entry.read(Ended).tasks:
            if task.phase == "Failed":
                found[_end(task)] += 1
    why = "; ".join(text for text, _ in found.most_common(3))
    return f"{_counted(status)}: {why}" if why else _counted(status)


def _attempt(delta: Delta, look: Look) -> Iterator[Happening]:
    """One for all tasks of the fulfilment that ended alike."""
    if delta.new is None or delta.old is not None:
        return
    value = delta.new.stored.value
    if b'"phase":"Failed"' not in value and b'"decision":"retry"' not in value and b'"decision":"hold"' not in value:
        return
    ended = delta.new.read(Ended)
    by = _leader(delta.new, look, "controller_manager")
    for message, reason in {_attempt_told(task, ended.target): _reason(task) for task in ended.tasks}.items():
        if reason:
            yield _told(delta, About(kind="Order", name=ended.order), reason, message, by, WARNING)


def _reason(task: EndedTask) -> str:
    if task.phase == "Succeeded" or (task.phase == "Cancelled" and task.decision == "cancel"):
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
    """As the joblet cut it; of what is longer all the same, the end where the cause is told last."""
    keep: Literal["start", "end"] = "end" if task.reason in ("StartError", "ImageError", "Failed") else "start"
    return texts.cut(task.message, _MOST_MESSAGE, keep=keep)


def _stop(delta: Delta, look: Look) -> Iterator[Happening]:
    """Work that is stopped although nobody cancelled it."""
    if delta.new is None or b'"want":"stop"' not in delta.new.stored.value:
        return
    if delta.old is not None and b'"want":"stop"' in delta.old.stored.value:
        return
    fulfilment = delta.new.read(Fulfilment)
    if fulfilment.reason in ("", "Cancelled"):
        return
    message = f"{len(fulfilment.tasks)} tasks are stopped on {fulfilment.target}"
    by = _leader(delta.new, look, "scheduler" if fulfilment.reason == "Preempted" else "controller_manager")
    yield _told(delta, About(kind="Order", name=fulfilment.order), fulfilment.reason, message, by, WARNING)


# Targets


def _target_status(delta: Delta, look: Look) -> Iterator[Happening]:
    phase, before = _word(delta.new, b'"phase":"'), _word(delta.old, b'"phase":"') or "Provisioning"
    if delta.new is None or phase == before or (before, phase) == ("Provisioning", "Ready"):
        return
    why = delta.new.read(TargetStatus).reason
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
    elif _word(delta.old, b'"session":"') != _word(delta.new, b'"session":"'):
        live = delta.new.read(Live)
        # A joblet that goes on with another lease has not been away.
        if _word(delta.old, b'"instance":"') != live.instance:
            yield _told(delta, about, "Joined", f"{live.driver} joblet, version {live.version}", by)


# The control plane and what users configure


def _term(delta: Delta, look: Look) -> Iterator[Happening]:
    if delta.new is None or delta.old is not None:
        return
    term = delta.new.read(Term)
    ended = term.ended if term.ended is not None and term.ended.epoch else None
    how = f"; epoch {ended.epoch} ended: {ended.how}" if ended is not None else ""
    message = f"{term.id} leads, epoch {term.epoch}{how}"
    yield _told(delta, About(kind="Cluster", name="leader"), "LeaderElected", message, f"election@{term.id}")


def _config(delta: Delta, look: Look) -> Iterator[Happening]:
    folder = delta.tree.partition("/")[2]
    about = About(kind=_KINDS.get(folder, "Settings"), name=delta.parts[0])
    if delta.old is not None and delta.new is not None:
        yield from _changed(delta, about)
    else:
        reason, entry = ("Created", delta.new) if delta.new is not None else ("Deleted", delta.old)
        yield _told(delta, about, reason, "", _user(_fields(entry)))


def _changed(delta: Delta, about: About) -> Iterator[Happening]:
    """Each wish by its name, other fields together."""
    old, new = _fields(delta.old), _fields(delta.new)
    by = _user(new)
    different = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    for name in different:
        if name in _WISHES:
            made, taken_back = _WISHES[name]
            yield _told(delta, about, made if new.get(name) else taken_back, "", by)
    others = [name for name in different if name not in _WISHES]
    if others:
        parts = (_change_of(name, old.get(name), new.get(name)) for name in others)
        yield _told(delta, about, "Changed", "; ".join(parts), by)


def _change_of(name: str, old: Any, new: Any) -> str:
    """With both values where no secret can be in them; else the field alone, of a mapping with the keys that differ."""
    if name in _SILENT_FIELDS:
        return name
    if _is_open(name, old) and _is_open(name, new):
        return f"{name} {_short(old)} -> {_short(new)}"
    before, after = (value if isinstance(value, dict) else {} for value in (old, new))
    keys_changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return f"{name} ({texts.cut(', '.join(keys_changed), _MOST_VALUE)})" if keys_changed else name


def _is_open(name: str, value: Any) -> bool:
    """Numbers and mappings of numbers, and texts that name things of the control plane."""
    if isinstance(value, dict):
        return all(_is_open("", part) for part in value.values())
    return value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and name in _OPEN_TEXTS)


def _short(value: Any) -> str:
    return "unset" if value is None else texts.cut(msgspec.json.encode(value).decode(), _MOST_VALUE)


def _fields(entry: Entry | None) -> Mapping[str, Any]:
    found = msgspec.json.decode(entry.stored.value) if entry is not None else {}
    return found if isinstance(found, dict) else {}


def _user(fields: Mapping[str, Any]) -> str:
    """Who it is known to belong to; the owner, since it is theirs to change."""
    return str(fields.get("owner") or fields.get("creator") or "user")


def _leader(entry: Entry, look: Look, component: str) -> str:
    """The component of the replica that led in the term that the value names."""
    stamped = msgspec.json.decode(entry.stored.value, type=_Stamped)
    record = look().get("terms", f"{stamped.epoch:020d}")
    term = record.sound(Term) if record is not None else None
    return f"{component}@{term.id}" if term is not None else component


class _Stamped(msgspec.Struct):
    epoch: int = 0


def _word(entry: Entry | None, front: bytes) -> str:
    """What follows the front up to the next quote; nothing where it is not said."""
    if entry is None:
        return ""
    _, found, rest = entry.stored.value.partition(front)
    return rest.partition(b'"')[0].decode(errors="replace") if found else ""


def _told(delta: Delta, about: About, reason: str, message: str, by: str, kind: str = NORMAL) -> Happening:
    return Happening(about=about, reason=reason, message=message, by=by, type=kind, revision=delta.revision)


_TELLERS: Mapping[str, Tell] = {
    "config/orders": _order_wishes,
    "status/orders": _order_status,
    "status/ended": _attempt,
    "desired": _stop,
    "status/targets": _target_status,
    "inventory": _session,
    "terms": _term,
    "config": _config,
    **{f"config/{folder}": _config for folder in _KINDS},
}
