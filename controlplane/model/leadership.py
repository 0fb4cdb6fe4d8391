"""Candidate, Term, Cycle: who may lead, who led, and what each cycle did."""

from __future__ import annotations

import msgspec

from controlplane.model.object import Object, Part


class TermEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the term before ended: stepped-down, pulse-closed, pulse-silent, lease-gone, or first when there was none."""

    epoch: int
    how: str
    incarnation: str = ""


class Candidate(Object, tag="Candidate", frozen=True, kw_only=True):
    """`election/<lease-hex>`. `incarnation` is one process's life; `proclaimed` counts its own rewrites.

    `ended` is the term that this candidate ended by its pulse, noted in the transaction that ended it. `keys` names the
    keys with which it can open secrets.
    """

    id: str
    incarnation: str
    grpc: str
    http: str
    pulse: str
    pid: int
    version: str
    proclaimed: int = 0
    ended: TermEnd | None = None
    keys: tuple[str, ...] = ()


class Term(Object, tag="Term", omit_defaults=False, frozen=True, kw_only=True):
    epoch: int
    id: str
    incarnation: str = ""
    since: str
    grpc: str = ""
    http: str = ""
    ended: TermEnd | None = None


class WaitingGroup(Part, frozen=True, kw_only=True):
    """Tasks that one cycle could not place: `targets` counts the targets by what refused, `nearest` came closest."""

    order: str
    job: str
    tasks: int
    reason: str
    targets: dict[str, int] = {}
    nearest: str = ""


class Cycle(Object, tag="Cycle", omit_defaults=False, frozen=True, kw_only=True):
    """One cycle with all inputs that a replay needs. `n` goes on counting across terms.

    `waiting` tells of the first few groups that did not fit; the rest is in `refused`, and in what explain computes.
    `isolated` and `isolated_targets` name the orders and targets that were left out because handling them failed, as
    far as the record takes them; `isolated_total` counts the orders.
    """

    epoch: int
    n: int
    revision: int
    now: str
    seed: int
    settings_digest: str
    engine: str
    considered: int
    placed: int
    refused: dict[str, int] = {}
    seconds: float
    hash: str
    waiting: tuple[WaitingGroup, ...] = ()
    isolated: tuple[str, ...] = ()
    isolated_targets: tuple[str, ...] = ()
    isolated_total: int = 0
