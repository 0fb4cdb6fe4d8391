"""Pieces become whole lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.cli.line_buffer import MOST_BYTES, LineBuffer


def test_a_line_waits_for_its_end() -> None:
    lines = LineBuffer()
    assert lines.take(1, "stdout", b"one\ntw") == [b"one"]
    assert lines.take(1, "stderr", b"err\n") == [b"err"]
    assert lines.take(1, "stdout", b"o\n\n") == [b"two", b""]
    assert lines.rest() == []


def test_what_never_ends_is_told_at_the_end() -> None:
    lines = LineBuffer()
    lines.take(2, "stdout", b"half")
    assert lines.rest() == [(2, "stdout", b"half")]


def test_a_line_without_end_is_shown_in_parts() -> None:
    lines = LineBuffer()
    assert lines.take(1, "stdout", b"x" * MOST_BYTES) == [b"x" * MOST_BYTES]
    assert lines.rest() == []


@given(st.lists(st.binary(max_size=20)))
def test_nothing_is_lost_wherever_the_pieces_are_cut(pieces: list[bytes]) -> None:
    lines = LineBuffer()
    told = [line for piece in pieces for line in lines.take(1, "stdout", piece)]
    rest = [line for _, _, line in lines.rest()] or [b""]
    assert b"\n".join([*told, *rest]) == b"".join(pieces)
