"""P8: the cache of each replica equals a linearisable list at the same revision, and follows etcd's writes.

A cache that stands still equals a list at its own revision for ever, so each cache must also reach, within a stated
time, the revision that etcd had when the replica was asked. The digest is computed here from the list alone, as
`HashResponse` in the API describes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.store import keys
from controlplane.store.transaction import Value
from controlplane.verify.promise_verdicts import PromiseVerdict, Tally, unknown


class Listing:
    """The digest of a list, added page by page in the order of the keys."""

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
class CacheAnswer:
    """A replica's digest of its cache beside the digest of a list at the same revision.

    `failure` is the reason of a missing answer; `behind` the reason when the cache did not reach etcd's revision.
    """

    replica: str
    revision: int = 0
    hash: str = ""
    keys: int = 0
    listed_hash: str = ""
    listed_keys: int = 0
    failure: str = ""
    behind: str = ""


def judge(answers: Sequence[CacheAnswer]) -> PromiseVerdict:
    """A replica without an answer leaves the promise unknown, unless another replica breaks the promise."""
    tally = Tally("P8", "etcd holds no keys of the control plane")
    failures = [f"{answer.replica}: {answer.failure}" for answer in answers if answer.failure]
    for answer in answers:
        if answer.behind:
            tally.broken(keys.ROOT, answer.revision, f"the cache of {answer.replica} {answer.behind}")
        if answer.failure or answer.behind:
            continue
        tally.checked += answer.listed_keys
        if answer.hash != answer.listed_hash:
            why = f"the cache of {answer.replica} has {answer.keys} keys and differs from a list, which has "
            tally.broken(keys.ROOT, answer.revision, f"{why}{answer.listed_keys}")
    verdict = tally.verdict("; ".join(failures))
    if verdict.ok and (failures or not answers):
        return unknown("P8", "; ".join(failures) or "no replica is known")
    return verdict
