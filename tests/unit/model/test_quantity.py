"""Quantities and durations as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import quantity
from controlplane.model.errors import Invalid


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (2, 2), (2.0, 2), (0.5, 0.5), ("2", 2), ("2.0", 2), ("500m", 0.5), ("100m", 0.1), ("4Gi", 4 * 2**30),
        ("4G", 4 * 10**9), ("1k", 1000), ("1Ki", 1024), (".5", 0.5), ("1e3", 1000), ("2e-3", 0.002), (" 7 ", 7), (0, 0),
    ],
)  # fmt: skip
def test_a_quantity_is_the_number_it_stands_for(written: object, meant: float) -> None:
    parsed = quantity.parse(written, "cpu")
    assert parsed == meant
    assert isinstance(parsed, int) == float(meant).is_integer()


@pytest.mark.parametrize(
    "written",
    ["", "two", "-1", "1 Gi", "4GiB", "0x10", "NaN", "inf", "1e", "1_000", None, True, [1], {"a": 1},
     -1, -0.5, math.nan, math.inf, 2**61, "2Pi" * 2, "1e999", "9" * 5000, 10**400],
)  # fmt: skip
def test_what_is_no_amount_is_refused_with_its_field(written: object) -> None:
    with pytest.raises(Invalid) as refusal:
        quantity.parse(written, "requests.cpu")
    assert refusal.value.field == "requests.cpu"


@given(st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.none(), st.booleans()))
def test_whatever_is_written_is_an_amount_or_is_refused(written: object) -> None:
    for parse in (quantity.parse, quantity.parse_duration):
        try:
            parsed = parse(written, "x")
        except Invalid:
            continue
        assert 0 <= parsed <= 2**60


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30s", 30), ("1h30m", 5400), ("500ms", 0.5), ("2d", 172800), ("1.5h", 5400), (90, 90), ("0s", 0)],
)
def test_a_duration_is_its_seconds(written: object, seconds: float) -> None:
    assert quantity.parse_duration(written, "deadline") == seconds


@pytest.mark.parametrize("written", ["", "30", "s", "1h 30m", "-1s", "1y", "30s!", None, -1, "9" * 400 + "s"])
def test_what_is_no_duration_is_refused(written: object) -> None:
    with pytest.raises(Invalid):
        quantity.parse_duration(written, "deadline")


@pytest.mark.parametrize(
    ("name", "number", "shown"),
    [("memory", 4 * 2**30, "4Gi"), ("memory", 1000, "1000"), ("cpu", 2.0, "2"), ("cpu", 0.1 + 0.2, "0.3")],
)
def test_tables_show_bytes_with_suffixes_and_the_rest_as_numbers(name: str, number: float, shown: str) -> None:
    assert quantity.show(name, number) == shown
