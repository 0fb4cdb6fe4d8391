"""Identities: order, both spellings, refusals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import identity
from controlplane.model.errors import Invalid


@given(st.binary(min_size=16, max_size=16))
def test_sixteen_bytes_survive_the_way_through_text(raw: bytes) -> None:
    text = identity.from_bytes(raw)
    assert len(text) == 26
    assert identity.to_bytes(text) == raw


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_text_sorts_as_the_bytes_do(one: bytes, other: bytes) -> None:
    assert (identity.from_bytes(one) < identity.from_bytes(other)) == (one < other)


def test_the_published_example_has_its_published_time() -> None:
    assert identity.milliseconds("01ARYZ6S41TSV4RRFFQ69G5FAV") == 1469918176385


@given(st.lists(st.tuples(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10)), min_size=1, max_size=50))
def test_a_mint_makes_strictly_increasing_identities_whatever_the_clock_does(draws: list[tuple[int, bytes]]) -> None:
    times: Iterator[int] = iter([moment for moment, _ in draws])
    chances: Iterator[bytes] = iter([chance for _, chance in draws])
    mint = identity.Mint(lambda: next(times), lambda size: next(chances)[:size])
    made = [mint.make() for _ in draws]
    assert made == sorted(set(made))


def test_an_identity_tells_the_time_of_its_making() -> None:
    assert identity.milliseconds(identity.Mint(lambda: 1234, lambda size: b"\xff" * size).make()) == 1234


@pytest.mark.parametrize(
    "text",
    [
        "",
        "01ARYZ6S41TSV4RRFFQ69G5FA",
        "01ARYZ6S41TSV4RRFFQ69G5FAVX",
        "01aryz6s41tsv4rrffq69g5fav",
        "01ARYZ6S41TSV4RRFFQ69G5FAI",
        "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "01ARYZ6S41TSV4RRFFQ69G5FA\u0661",
    ],
)
def test_what_is_not_a_canonical_ulid_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        identity.check(text, field="order.id")
    assert refusal.value.field == "order.id"


def test_other_than_sixteen_bytes_are_refused() -> None:
    with pytest.raises(Invalid):
        identity.from_bytes(b"\0" * 15)
