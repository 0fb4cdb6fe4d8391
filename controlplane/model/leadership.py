"""Candidate, Term, Cycle: replicas that may lead, replicas that led, and the work of each cycle."""

from __future__ import annotations

import msgspec

from controlplane.model.bounds import Count, Line, Many, Rate, Revision, SmallCount, Tally, TimeOrEmpty
from controlplane.model.object import Object, Part


class TermEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the term before: stepped-down, pulse-closed, pulse-silent, lease-gone; first if there was none."""

    epoch: Revision
    how: Line
    incarnation: Line = ""


class Candidate(Object, tag="Candidate", frozen=True, kw_only=True):
    """`election/<lease-hex>`. `incarnation` is the life of a process; `proclaimed` counts its own rewrites.

    `ended` is the term that this candidate ended by its pulse, noted in the transaction that ended the term. `keys`
    names the keys with which the replica can open secrets. `proves` says that the pulse of the replica proves itself
    with the cluster key.
    """

    id: Line
    incarnation: Line
    grpc: Line
    http: Line
    pulse: Line
    pid: SmallCount
    version: Line
    proclaimed: Count = 0
    ended: TermEnd | None = None
    keys: Many[Line] = ()
    proves: bool = False


class Term(Object, tag="Term", omit_defaults=False, frozen=True, kw_only=True):
    epoch: Revision
    id: Line
    incarnation: Line = ""
    since: Line
    grpc: Line = ""
    http: Line = ""
    ended: TermEnd | None = None


class WaitingGroup(Part, frozen=True, kw_only=True):
    """Tasks that a cycle could not place: `targets` counts the targets by refusal, `nearest` came closest."""

    order: Line
    job: Line
    tasks: Count
    reason: Line
    targets: Tally = {}
    nearest: Line = ""


class Cycle(Object, tag="Cycle", omit_defaults=False, frozen=True, kw_only=True):
    """A cycle with all inputs that a replay needs. `n` goes on counting across terms.

    `waiting` shows the first few groups that did not fit; the rest is in `refused`, and in the answers of explain.
    `isolated` and `isolated_targets` name the orders and targets that were left out because handling them failed, as
    far as the record has room; `isolated_total` counts the orders.
    """

    epoch: Revision
    n: Count
    revision: Revision
    now: TimeOrEmpty
    seed: Revision
    settings_digest: Line
    engine: Line
    considered: Count
    placed: Count
    refused: Tally = {}
    seconds: Rate
    hash: Line
    waiting: Many[WaitingGroup] = ()
    isolated: Many[Line] = ()
    isolated_targets: Many[Line] = ()
    isolated_total: Count = 0
