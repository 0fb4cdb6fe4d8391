"""Tables of waiting tasks: a line per group, then a line per target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controlplane.cli import tables
from controlplane.cli.output import AnswerPrinter, TableColumn
from controlplane.model.explanation import GroupExplanation, TargetVerdict
from controlplane.model.quantity import Number
from controlplane.model.texts import printable

_SHOWN_HOLDERS = 2


def show(out: AnswerPrinter, groups: Iterable[GroupExplanation]) -> None:
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
    TableColumn("TARGET", lambda verdict: verdict.target),
    TableColumn("FITS", lambda verdict: "yes" if verdict.fits else "no"),
    TableColumn("REFUSED BY", lambda verdict: verdict.filter or "-"),
    TableColumn("NEED", lambda verdict: _amounts(verdict.need), wide=True),
    TableColumn("HAVE", lambda verdict: _amounts(verdict.have), wide=True),
    TableColumn("MISSING", lambda verdict: _amounts(verdict.missing)),
    TableColumn("HELD BY", _holders),
    TableColumn("WAITING HELPS", _waiting),
    TableColumn("WHY", lambda verdict: verdict.sentence or "-"),
)
