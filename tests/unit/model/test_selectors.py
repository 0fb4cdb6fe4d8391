"""Which labels keep which constraints."""

from __future__ import annotations

import pytest

from controlplane.model import selectors
from controlplane.model.job import Constraint

LABELS = {"zone": "a", "cores": "16", "load": "0.5", "empty": "", "big": "1e3", "inf": "inf"}


@pytest.mark.parametrize(
    ("op", "label", "values", "kept"),
    [
        ("In", "zone", ("b", "a"), True),
        ("In", "zone", ("b",), False),
        ("In", "gone", ("a",), False),
        ("In", "empty", ("",), True),
        ("NotIn", "zone", ("b", "a"), False),
        ("NotIn", "zone", ("b",), True),
        ("NotIn", "gone", ("a",), True),
        ("Exists", "zone", (), True),
        ("Exists", "empty", (), True),
        ("Exists", "gone", (), False),
        ("DoesNotExist", "zone", (), False),
        ("DoesNotExist", "gone", (), True),
        ("Gt", "cores", ("15.5",), True),
        ("Gt", "cores", ("16",), False),
        ("Gt", "big", ("999",), True),
        ("Gt", "inf", ("1",), True),
        ("Gt", "zone", ("1",), False),
        ("Gt", "gone", ("-1",), False),
        ("Gt", "empty", ("-1",), False),
        ("Lt", "cores", ("16.5",), True),
        ("Lt", "cores", ("16",), False),
        ("Lt", "load", ("1",), True),
        ("Lt", "zone", ("1",), False),
        ("Lt", "gone", ("1",), False),
        ("Gt", "cores", (), False),
        ("Lt", "cores", ("many",), False),
        ("Like", "zone", ("a",), False),
    ],
)
def test_a_constraint_is_kept_or_not(op: str, label: str, values: tuple[str, ...], kept: bool) -> None:
    assert selectors.matches(Constraint(label=label, op=op, values=values), LABELS) is kept


def test_several_constraints_hold_only_together_and_none_always_do() -> None:
    zone, cores = Constraint(label="zone", values=("a",)), Constraint(label="cores", op="Lt", values=("8",))
    assert selectors.match_all((zone,), LABELS)
    assert not selectors.match_all((zone, cores), LABELS)
    assert selectors.match_all((), {})


@pytest.mark.parametrize("op", selectors.OPERATORS)
def test_every_operator_that_is_admitted_is_understood(op: str) -> None:
    both = [selectors.matches(Constraint(label="n", op=op, values=("1",)), labels) for labels in ({}, {"n": "1"})]
    both += [selectors.matches(Constraint(label="n", op=op, values=("1",)), {"n": n}) for n in ("0", "2")]
    assert any(both)
