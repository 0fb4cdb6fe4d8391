"""What a check listens to, and what it says: a promise, whether it holds, how much was looked at, what breaks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from controlplane.verify.history import Event

# A broken promise is broken often; the first ones say why.
MOST_SHOWN = 1000


class Violation(msgspec.Struct, frozen=True):
    key: str
    revision: int
    why: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`ok` is None when the promise cannot be judged here; `why` says so then. `note` is talk for people."""

    promise: str
    ok: bool | None
    checked: int = 0
    violations: tuple[Violation, ...] = ()
    why: str = ""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        value = {
            "promise": self.promise,
            "ok": self.ok,
            "checked": self.checked,
            "violations": msgspec.to_builtins(self.violations),
        }
        return {**value, "why": self.why} if self.ok is None else value


class Listener(Protocol):
    """`start` gets the state at the oldest revision in any number of pieces, then `change` each revision in order."""

    def start(self, state: Sequence[Event]) -> None: ...

    def change(self, revision: int, changes: Sequence[Event]) -> None: ...


class Tally:
    """Counts what was looked at and keeps what was found wrong; `nothing` says why nothing was looked at."""

    def __init__(self, promise: str, nothing: str) -> None:
        self.promise = promise
        self.checked = 0
        self._nothing = nothing
        self._doubts: list[str] = []
        self._broken = 0
        self._violations: list[Violation] = []

    def broken(self, key: str, revision: int, why: str) -> None:
        self._broken += 1
        if len(self._violations) < MOST_SHOWN:
            self._violations.append(Violation(key, revision, why))

    def cannot_tell(self, why: str) -> None:
        """Something may break the promise, and nobody can say: without a violation the verdict is unknown."""
        self._doubts.append(why)

    def verdict(self, note: str = "") -> Verdict:
        if self._broken > MOST_SHOWN:
            note = f"{self._broken} violations, the first {MOST_SHOWN} shown" + (f"; {note}" if note else "")
        doubts = self._doubts if self.checked else [self._nothing, *self._doubts]
        if doubts and not self._broken:
            why = "; ".join(filter(None, [*doubts, note]))
            return Verdict(promise=self.promise, ok=None, checked=self.checked, why=why)
        return Verdict(
            promise=self.promise,
            ok=not self._broken,
            checked=self.checked,
            violations=tuple(self._violations),
            note=note,
        )


def unknown(promise: str, why: str) -> Verdict:
    return Verdict(promise=promise, ok=None, why=why)
