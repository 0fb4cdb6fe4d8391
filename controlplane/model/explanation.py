"""Explanation: why the tasks of an order wait, target by target. Plan: the foreseen fate of an order.

The answers of `cpctl explain` and `cpctl plan`. Computed on request, never stored.
"""

from __future__ import annotations

import msgspec

from controlplane.model.quantity import Number


class TargetVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a task of the group fits the target now, and if not, the refusal.

    `need`, `have` and `missing` are amounts, of quantities or of `fulfilments`, empty where amounts are not the point.
    `held_by` names the orders that hold the missing amounts, the largest holders first.
    """

    target: str
    fits: bool
    filter: str = ""
    need: dict[str, Number] = {}
    have: dict[str, Number] = {}
    missing: dict[str, Number] = {}
    held_by: tuple[str, ...] = ()
    waiting_helps: bool = False
    sentence: str = ""


class GroupExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """`count` pending tasks of a job that share all that matters; `reason` is the reason in their status."""

    job: str
    count: int
    reason: str = ""
    targets: tuple[TargetVerdict, ...] = ()


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """An order that is served before, and the number of its waiting tasks."""

    order: str
    priority: int
    tasks: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`cycle` is the number of the past cycle in question; None for now.

    `rule_errors` are rules that failed, each in a sentence: such rules count as not matching.
    """

    order: str
    cycle: int | None = None
    revision: int
    conclusion: str
    groups: tuple[GroupExplanation, ...] = ()
    ahead: tuple[Ahead, ...] = ()
    ahead_total: int = 0
    rule_errors: tuple[str, ...] = ()


class PlannedPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """`count` tasks on a target; `start_in_seconds` is 0 for now, and an estimate from time limits otherwise."""

    job: str
    count: int
    target: str
    start_in_seconds: Number = 0


class PlannedEviction(msgspec.Struct, frozen=True, kw_only=True):
    """Lower work that would be stopped to make room for the order."""

    fulfilment: str
    order: str
    target: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`groups` explains tasks that are not placed now; `evictions` is the work that a preempting order would stop.
    Placeable means that every task has a placement.
    """

    placeable: bool
    revision: int
    conclusion: str
    placements: tuple[PlannedPlacement, ...] = ()
    groups: tuple[GroupExplanation, ...] = ()
    evictions: tuple[PlannedEviction, ...] = ()
