"""Groups of waiting tasks as people read them: one line a group, then one line a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controlplane.cli import tables
from controlplane.cli.output import Column, Output
from controlplane.model.explanation import GroupExplanation, TargetVerdict
from controlplane.model.quantity import Number
from controlplane.model.texts import printable

_SHOWN_HOLDERS = 2


def show(out: Output, groups: Iterable[GroupExplanation]) -> None:
    for group in groups:
        reason = f": {group.reason}" if group.reason else ""
        out.text("")
        out.text(printable(f"{group.job} x {group.count}{reason}"))
        if group.targets:
            out.rows(COLUMNS, group.targets)


def _amounts(value: Mapping[str, Number]) -> str:
    return tables.quantities(dict(value))


def _holders(verdict: TargetVerdict) -> str:
    first = ",".join(verdict.held_by[:_SHOWN_HOLDERS])
    more = len(verdict.held_by) - _SHOWN_HOLDERS
    return f"{first} (and {more} more)" if more > 0 else first or "-"


def _waiting(verdict: TargetVerdict) -> str:
    return "-" if verdict.fits else "yes" if verdict.waiting_helps else "no"


COLUMNS = (
    Column("TARGET", lambda verdict: verdict.target),
    Column("FITS", lambda verdict: "yes" if verdict.fits else "no"),
    Column("REFUSED BY", lambda verdict: verdict.filter or "-"),
    Column("NEED", lambda verdict: _amounts(verdict.need), wide=True),
    Column("HAVE", lambda verdict: _amounts(verdict.have), wide=True),
    Column("MISSING", lambda verdict: _amounts(verdict.missing)),
    Column("HELD BY", _holders),
    Column("WAITING HELPS", _waiting),
    Column("WHY", lambda verdict: verdict.sentence or "-"),
)
