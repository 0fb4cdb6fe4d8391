"""Strict YAML 1.2 to plain values, in a single pass over the parser's events.

Scalars follow the JSON-like core of YAML 1.2: `on` and `yes` are text, a time is text. Aliases and anchors, tags,
duplicate keys and deep nesting are refused where they begin, so no value grows beyond the size of its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

MAX_DEPTH = 32

_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlRefusal(Exception):
    """A broken rule at a line and column, both counted from 1."""

    def __init__(self, rule: str, line: int, column: int) -> None:
        super().__init__(rule)
        self.rule = rule
        self.line = line
        self.column = column


def documents(text: str) -> Iterator[Any]:
    """The value of each document; None for an empty document."""
    events = _events(text)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            yield _value(next(events), events, 1)


def _events(text: str) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        rule = " ".join(filter(None, (error.problem, error.context)))
        raise YamlRefusal(rule, mark.line + 1 if mark else 1, mark.column + 1 if mark else 1) from None
    except yaml.reader.ReaderError as error:
        raise YamlRefusal(
            f"holds a character that YAML does not allow ({error.reason})", *_place(text, error)
        ) from None


def _place(text: str, error: yaml.reader.ReaderError) -> tuple[int, int]:
    before = text[: max(0, int(error.position))]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _value(event: Any, events: Iterator[Any], depth: int) -> Any:
    if isinstance(event, yaml.AliasEvent):
        raise _refusal(f"an alias (*{event.anchor}) is not allowed: write the value out", event)
    if event.anchor is not None:
        raise _refusal(f"an anchor (&{event.anchor}) is not allowed: aliases are refused", event)
    if event.tag is not None and event.tag != "!":
        raise _refusal(f"a tag ({event.tag}) is not allowed", event)
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if depth > MAX_DEPTH:
        raise _refusal(f"must not be nested deeper than {MAX_DEPTH} levels", event)
    if isinstance(event, yaml.SequenceStartEvent):
        return _sequence(events, depth)
    return _mapping(events, depth)


def _sequence(events: Iterator[Any], depth: int) -> list[Any]:
    items = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        items.append(_value(event, events, depth + 1))
    return items


def _mapping(events: Iterator[Any], depth: int) -> dict[Any, Any]:
    items: dict[Any, Any] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = _value(event, events, depth + 1)
        if isinstance(key, list | dict):
            raise _refusal("a key must be text, not a list or a mapping", event)
        if key in items:
            raise _refusal(f"the key {key!r} appears twice in one mapping", event)
        items[key] = _value(next(events), events, depth + 1)
    return items


def _scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text in _SPECIAL:
        return _SPECIAL[text]
    try:
        if _INT.fullmatch(text):
            return int(text)
        if _BASED.fullmatch(text):
            return int(text, 0)
    except ValueError:
        raise _refusal("a number has too many digits", event) from None
    return float(text) if _FLOAT.fullmatch(text) else text


def _refusal(rule: str, event: Any) -> YamlRefusal:
    return YamlRefusal(rule, event.start_mark.line + 1, event.start_mark.column + 1)
