"""Candidate, Term, Cycle: who may lead, who led, and what each cycle did."""

from __future__ import annotations

import msgspec

from controlplane.model.bounds import Count, Line, Many, Rate, Revision, SmallCount, Tally, TimeOrEmpty
from controlplane.model.object import Object, Part


class TermEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the term before ended: stepped-down, pulse-closed, pulse-silent, lease-gone, or first when there was none."""

    epoch: Revision
    how: Line
    incarnation: Line = ""


class Candidate(Object, tag="Candidate", frozen=True, kw_only=True):
    """`election/<lease-hex>`. `incarnation` is one process's life; `proclaimed` counts its own rewrites.

    `ended` is the term that this candidate ended by its pulse, noted in the transaction that ended it. `keys` names the
    keys with which it can open secrets.
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


class Term(Object, tag="Term", omit_defaults=False, frozen=True, kw_only=True):
    epoch: Revision
    id: Line
    incarnation: Line = ""
    since: Line
    grpc: Line = ""
    http: Line = ""
    ended: TermEnd | None = None


class WaitingGroup(Part, frozen=True, kw_only=True):
    """Tasks that one cycle could not place: `targets` counts the targets by what refused, `nearest` came closest."""

    order: Line
    job: Line
    tasks: Count
    reason: Line
    targets: Tally = {}
    nearest: Line = ""


class Cycle(Object, tag="Cycle", omit_defaults=False, frozen=True, kw_only=True):
    """One cycle with all inputs that a replay needs. `n` goes on counting across terms.

    `waiting` tells of the first few groups that did not fit; the rest is in `refused`, and in what explain computes.
    `isolated` and `isolated_targets` name the orders and targets that were left out because handling them failed, as
    far as the record takes them; `isolated_total` counts the orders.
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
