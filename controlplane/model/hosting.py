"""Hosting: the replica that runs the joblet of a target with a kubeconfig secret.

The leader decides by `assign` and records the decision. A single replica is named at a time, but no promise depends on
that: reports of joblets compare their session, and only one joblet has the session.
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
    """`status/hosting/<target>`. `incarnation` is the life of the replica; without a replica, `reason` says why."""

    target: Line
    epoch: Revision
    replica: Line = ""
    incarnation: Line = ""
    reason: Text = ""


class HostedIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Instructions of the host to a hosted joblet: its identity, its credential, and the etcd of the joblet before."""

    secret: str
    token: str = ""
    cluster: str = ""
    known_attempt: int = 0


@dataclass(frozen=True, slots=True)
class GuestTarget:
    """A target to be hosted. `key` is the key that seals its secret, empty while there is no secret."""

    name: str
    id: str
    key: str


def living(candidates: Iterable[tuple[int, Candidate]]) -> list[Candidate]:
    """The candidates, each with the revision of its arrival, that may be alive: if a replica id has several candidates,
    only the newest counts as alive, however long the leases of the others last.
    """
    newest: dict[str, Candidate] = {}
    for _, candidate in sorted(candidates, key=lambda pair: pair[0]):
        newest[candidate.id] = candidate
    return list(newest.values())


def assign(
    guests: Collection[GuestTarget], hosts: Sequence[Candidate], now: Mapping[str, str]
) -> dict[str, Candidate | None]:
    """The host of each guest, or None; `now` is the incarnation that hosts each guest at the moment.

    A guest keeps its host, unless the host has more than its share. A guest without a host gets the host that ranks
    highest with its name (rendezvous hashing) among hosts below their share, else the host with the fewest guests.
    """
    share = -(-len(guests) // len(hosts)) if hosts else 0
    load: Counter[str] = Counter()
    assigned: dict[str, Candidate | None] = {}
    by_life = {host.incarnation: host for host in hosts}
    homeless = []
    for guest in sorted(guests, key=lambda guest: guest.id):
        host = by_life.get(now.get(guest.name, ""))
        if host is not None and guest.key in host.keys and load[host.incarnation] < share:
            assigned[guest.name] = host
            load[host.incarnation] += 1
        else:
            homeless.append(guest)
    for guest in homeless:
        able = [host for host in hosts if guest.key in host.keys]
        roomy = [host for host in able if load[host.incarnation] < share]
        best = max(roomy, key=lambda host: _rank(guest, host), default=None)
        best = best or min(able, key=lambda host: (load[host.incarnation], host.id), default=None)
        assigned[guest.name] = best
        if best is not None:
            load[best.incarnation] += 1
    return assigned


def why_not(guest: GuestTarget, hosts: Sequence[Candidate]) -> str:
    """Why no replica hosts the target."""
    if not guest.key:
        return "its secret is not there"
    if not any(host.keys for host in hosts):
        return "no replica has a key for secrets (--secret-key-file)"
    return f"no replica has the key {guest.key} that its secret is sealed with"


def _rank(guest: GuestTarget, host: Candidate) -> bytes:
    return hashlib.sha256(f"{guest.id} {host.id}".encode()).digest()
