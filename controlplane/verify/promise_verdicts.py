"""The input and the result of a check: a promise, whether the promise holds, how much was checked, the violations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from controlplane.verify.history import KeyChange
from controlplane.verify.promises import SENTENCES

# A broken promise is broken often; the first violations give the reason.
MOST_SHOWN = 1000


class Violation(msgspec.Struct, frozen=True):
    key: str
    revision: int
    why: str


class PromiseVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`ok` is None when the promise cannot be judged here, with the reason in `why`. `note` is for people only."""

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
            "sentence": SENTENCES[self.promise],
        }
        return {**value, "why": self.why} if self.ok is None else value


class HistoryListener(Protocol):
    """`start` gets the state at the oldest revision in any number of pieces, `change` every later revision."""

    def start(self, state: Sequence[KeyChange]) -> None: ...

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None: ...


class Tally:
    """Counts checks and keeps violations; `nothing` is the reason of an unknown verdict when the count is 0."""

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
        """The evidence is incomplete: unless a violation is found too, the verdict is unknown."""
        self._doubts.append(why)

    def verdict(self, note: str = "") -> PromiseVerdict:
        if self._broken > MOST_SHOWN:
            note = f"{self._broken} violations, the first {MOST_SHOWN} shown" + (f"; {note}" if note else "")
        doubts = self._doubts if self.checked else [self._nothing, *self._doubts]
        if doubts and not self._broken:
            why = "; ".join(filter(None, [*doubts, note]))
            return PromiseVerdict(promise=self.promise, ok=None, checked=self.checked, why=why)
        return PromiseVerdict(
            promise=self.promise,
            ok=not self._broken,
            checked=self.checked,
            violations=tuple(self._violations),
            note=note,
        )


def unknown(promise: str, why: str) -> PromiseVerdict:
    """The verdict on a promise without evidence."""
    return PromiseVerdict(promise=promise, ok=None, why=why)
