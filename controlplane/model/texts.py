"""Texts for people: cut to a length, and shown without characters that steer a terminal. Pure.

Every text from outside (a kubelet, a command, another user) goes through here before the text is stored shorter, or
reaches a terminal or a log.
"""

from __future__ import annotations

import re
from typing import Literal

# The stored part of a target's message about an attempt.
MESSAGE_CHARACTERS = 200
# The shown part of a message, if a joblet sent more: a page shows a thousand messages.
SHOWN_CHARACTERS = 400
MARK = "…"
# Control characters (C0 but tab and newline, DEL, C1), characters that hide or turn text (bidirectional and other
# format characters), line and paragraph separators, and halves of surrogate pairs.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)


def cut(text: str, most: int, *, keep: Literal["start", "end"] = "start") -> str:
    """The text itself, or as much of its start or end as `most` characters hold, with a mark for the rest."""
    if len(text) <= most:
        return text
    if keep == "start":
        return text[: most - 1] + MARK
    return MARK + text[len(text) - most + 1 :]


def one_line(text: str) -> str:
    """Several lines side by side, as much as is shown."""
    return cut(" | ".join(filter(None, map(str.strip, text.splitlines()))), SHOWN_CHARACTERS)


def printable(text: str) -> str:
    """A line without control characters: a stored text must not steer another user's terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def steers(text: str) -> bool:
    """Whether a character of the text would act on a terminal instead of being shown; line ends and tabs do not."""
    return _STEERING.search(text) is not None


def escaped(text: str) -> str:
    """With `\\x1b` and the like for everything that steers; line ends and tabs stay."""
    return _STEERING.sub(lambda match: _escape(ord(match[0])), text)


def escaped_json(text: str) -> str:
    """The same for a JSON document, with escapes of JSON: the document keeps its value."""
    return _STEERING.sub(lambda match: _json_escape(ord(match[0])), text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _json_escape(code: int) -> str:
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
