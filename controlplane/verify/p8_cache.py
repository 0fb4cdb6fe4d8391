"""P8: the cache of each replica equals a linearisable list at the same revision, and follows what is written.

A cache that stands still equals a list at its own revision for ever, so each cache also has to reach, within a stated
time, the revision that etcd had when the replica was asked. The
digest is computed here from the list alone, as `HashResponse` in the API describes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.store import keys
from controlplane.store.transaction import Value
from controlplane.verify.verdict import Tally, Verdict, unknown


class Listing:
    """The digest of a list, page by page, in the order of the keys."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.keys = 0

    def add(self, values: Sequence[Value]) -> None:
        for value in values:
            self._digest.update(f"{value.key.removeprefix(keys.ROOT)}\0{value.mod_revision}\n".encode())
        self.keys += len(values)

    def hash(self) -> str:
        return self._digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Told:
    """What one replica said of its cache, and what a list at that revision says; or why there is no answer.

    `behind` says so when the cache did not reach what etcd has.
    """

    replica: str
    revision: int = 0
    hash: str = ""
    keys: int = 0
    listed_hash: str = ""
    listed_keys: int = 0
    failure: str = ""
    behind: str = ""


def judge(answers: Sequence[Told]) -> Verdict:
    """One replica that could not be asked leaves the promise unknown, unless another one breaks it."""
    tally = Tally("P8", "etcd holds no keys of the control plane")
    failures = [f"{told.replica}: {told.failure}" for told in answers if told.failure]
    for told in answers:
        if told.behind:
            tally.broken(keys.ROOT, told.revision, f"the cache of {told.replica} {told.behind}")
        if told.failure or told.behind:
            continue
        tally.checked += told.listed_keys
        if told.hash != told.listed_hash:
            why = f"the cache of {told.replica} has {told.keys} keys and differs from a list, which has "
            tally.broken(keys.ROOT, told.revision, f"{why}{told.listed_keys}")
    verdict = tally.verdict("; ".join(failures))
    if verdict.ok and (failures or not answers):
        return unknown("P8", "; ".join(failures) or "no replica is known")
    return verdict
