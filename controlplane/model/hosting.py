"""Hosting: which replica runs the joblet of a target that names a secret.

The leader decides, by `assign`, and records it. Exactly one replica is named at a time; nothing depends on it that must
not break, since reports of joblets compare their session, and only one of them has it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from controlplane.model.bounds import Line, Revision, Text
from controlplane.model.leadership import Candidate
from controlplane.model.object import Object


class Hosting(Object, tag="Hosting", frozen=True, kw_only=True):
    """`status/hosting/<target>`. `incarnation` is the life of the replica that is named; without one, `reason` says
    why nobody hosts it."""

    target: Line
    epoch: Revision
    replica: Line = ""
    incarnation: Line = ""
    reason: Text = ""


class Papers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a hosted joblet is told by its host: who it is, and for which etcd the one before it worked."""

    secret: str
    cluster: str = ""
    known_attempt: int = 0


@dataclass(frozen=True, slots=True)
class Guest:
    """A target that wants to be hosted. `key` is what its secret is sealed with, empty while there is no secret."""

    name: str
    id: str
    key: str


def living(candidates: Iterable[tuple[int, Candidate]]) -> list[Candidate]:
    """Of the candidates, each with the revision at which it came, those that may live: a replica that stands again
    under its name is dead in its life before, however long its lease still lasts."""
    newest: dict[str, Candidate] = {}
    for _, candidate in sorted(candidates, key=lambda pair: pair[0]):
        newest[candidate.id] = candidate
    return list(newest.values())


def assign(
    guests: Collection[Guest], hosts: Sequence[Candidate], now: Mapping[str, str]
) -> dict[str, Candidate | None]:
    """The host of each guest, None where nobody can be; `now` is the incarnation that hosts each at the moment.

    Who has a host keeps it, unless that one has more than its share; who needs one gets the one that its name and the
    host's rank highest together (rendezvous hashing) among those with room in their share, else the one with least.
    """
    share = -(-len(guests) // len(hosts)) if hosts else 0
    load: Counter[str] = Counter()
    found: dict[str, Candidate | None] = {}
    by_life = {host.incarnation: host for host in hosts}
    homeless = []
    for guest in sorted(guests, key=lambda guest: guest.id):
        host = by_life.get(now.get(guest.name, ""))
        if host is not None and guest.key in host.keys and load[host.incarnation] < share:
            found[guest.name] = host
            load[host.incarnation] += 1
        else:
            homeless.append(guest)
    for guest in homeless:
        able = [host for host in hosts if guest.key in host.keys]
        roomy = [host for host in able if load[host.incarnation] < share]
        best = max(roomy, key=lambda host: _rank(guest, host), default=None)
        best = best or min(able, key=lambda host: (load[host.incarnation], host.id), default=None)
        found[guest.name] = best
        if best is not None:
            load[best.incarnation] += 1
    return found


def why_not(guest: Guest, hosts: Sequence[Candidate]) -> str:
    """Why nobody hosts it."""
    if not guest.key:
        return "its secret is not there"
    if not any(host.keys for host in hosts):
        return "no replica has a key for secrets (--secret-key-file)"
    return f"no replica has the key {guest.key} that its secret is sealed with"


def _rank(guest: Guest, host: Candidate) -> bytes:
    return hashlib.sha256(f"{guest.id} {host.id}".encode()).digest()
