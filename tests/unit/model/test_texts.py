"""Texts that others wrote: cut with a mark, and shown without what steers a terminal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import texts

# An escape sequence, C1 controls, DEL, bell, a bidirectional override and isolate, a zero-width and a tag character.
STEERING = ["\x1b[31m", "\x9b31m", "\x85", "\x7f", "\x07", "\r", "\u202e", "\u2066", "\u200b", "\u2028", "\U000e0041"]


@given(st.text(max_size=50), st.integers(1, 60))
def test_a_cut_text_keeps_its_length_and_says_where_something_is_missing(text: str, most: int) -> None:
    start, end = texts.cut(text, most), texts.cut(text, most, keep="end")
    if len(text) <= most:
        assert start == end == text
    else:
        assert len(start) == len(end) == most
        assert start == text[: most - 1] + "…"
        assert end == "…" + text[len(text) - most + 1 :]


@pytest.mark.parametrize("text", STEERING)
def test_what_steers_a_terminal_is_spelled_out(text: str) -> None:
    assert texts.steers(text)
    shown = texts.escaped(f"before {text} after")
    assert not texts.steers(shown)
    assert shown.startswith("before \\")
    assert texts.printable(text).isprintable()


def test_line_ends_tabs_and_letters_of_all_languages_stay() -> None:
    text = "zażółć\tgęślą\nיד 私 🙂"
    assert texts.escaped(text) == text
    assert not texts.steers(text)


@given(st.text())
def test_an_escaped_json_document_holds_the_same_value(text: str) -> None:
    document = texts.escaped_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert not texts.steers(document)
    assert json.loads(document) == {text: [text]}


def test_several_lines_stand_side_by_side_and_no_more_than_is_shown() -> None:
    assert texts.one_line("first\n\n  second \r\n") == "first | second"
    assert texts.one_line("") == ""
    assert len(texts.one_line("x" * 5000)) == texts.SHOWN_CHARACTERS
