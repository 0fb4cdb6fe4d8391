"""Sanity of built or decoded structs: the rules of `model/bounds` beyond types.

A check per struct, made once from the types of its fields, inner structs included; a struct without such fields has no
check. `store/codec` asks on every read and, for admission, before every write. A struct with rules across its fields
has a method `misfit`, which gives the field and the broken rule.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec

from controlplane.model import times
from controlplane.model.bounds import LEAST_AMOUNT, MOST_AMOUNT, MOST_MEASURED, FieldRule
from controlplane.model.errors import Invalid


class Insane(NamedTuple):
    """The path of a field, relative to the checked value, and the broken rule."""

    path: str
    rule: str

    def within(self, front: str) -> Insane:
        return Insane(front + self.path, self.rule)


# Paths are built only for insane values, which are rare.
Check = Callable[[Any], Insane | None]


def check(item: msgspec.Struct) -> None:
    """Invalid, with the field's path and the rule, for an insane value."""
    check_struct = check_of(type(item))
    insane = check_struct(item) if check_struct is not None else None
    if insane is not None:
        raise Invalid(insane.path.removeprefix("."), insane.rule)


@cache
def check_of(kind: type[msgspec.Struct]) -> Check | None:
    """The check of the struct; None when the types of its fields say all."""
    hints = typing.get_type_hints(kind, include_extras=True)
    checks = [(field.name, f".{field.encode_name}", _of(hints[field.name])) for field in msgspec.structs.fields(kind)]
    fields = tuple((name, shown, found) for name, shown, found in checks if found is not None)
    misfit = getattr(kind, "misfit", None)
    if not fields and misfit is None:
        return None

    def check_fields(item: Any) -> Insane | None:
        for name, shown, found in fields:
            value = getattr(item, name)
            if value is not None:
                insane = found(value)
                if insane is not None:
                    return insane.within(shown)
        broken = misfit(item) if misfit is not None else None
        return Insane(f".{broken[0]}", broken[1]) if broken is not None else None

    return check_fields


def _of(hint: Any) -> Check | None:
    """The check of a field, for values other than None."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        rules = [meta.extra["rule"] for meta in parts[1:] if isinstance(meta, msgspec.Meta) and meta.extra]
        return _RULES[rules[0]] if rules else _of(parts[0])
    if origin in (types.UnionType, typing.Union):
        return _of_union([part for part in parts if part is not types.NoneType])
    if origin is tuple:
        each = _of(parts[0])
        return _each(each) if each is not None else None
    if origin is dict:
        each = _of(parts[1])
        return _each_value(each) if each is not None else None
    return check_of(hint) if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else None


def _of_union(parts: list[Any]) -> Check | None:
    """A union has at most one checked member: an object that may stand in the place of its name."""
    checked = [(part, each) for part in parts if (each := _of(part)) is not None]
    if not checked:
        return None
    ((part, each),) = checked
    if len(parts) == 1:
        return each
    return lambda value: each(value) if isinstance(value, part) else None


def _each(check: Check) -> Check:
    def check_items(values: Iterable[Any]) -> Insane | None:
        for position, value in enumerate(values):
            insane = check(value)
            if insane is not None:
                return insane.within(f"[{position}]")
        return None

    return check_items


def _each_value(check: Check) -> Check:
    def check_values(values: Mapping[str, Any]) -> Insane | None:
        for key, value in values.items():
            insane = check(value)
            if insane is not None:
                return insane.within(f".{key[:64]}")
        return None

    return check_values


def _time(text: str) -> Insane | None:
    if times.is_sane(text):
        return None
    try:
        times.check(text, "")
    except Invalid as error:
        return Insane("", error.rule)
    return None


def _time_or_empty(text: str) -> Insane | None:
    return _time(text) if text else None


def _amounts(values: Mapping[str, float]) -> Insane | None:
    for key, value in values.items():
        if value != 0 and not LEAST_AMOUNT <= value <= MOST_AMOUNT:
            return Insane(f".{key[:64]}", f"must be 0, or between {LEAST_AMOUNT:g} and {MOST_AMOUNT:g}")
    return None


def _measures(values: Mapping[str, float]) -> Insane | None:
    for key, value in values.items():
        if not -MOST_MEASURED <= value <= MOST_MEASURED:
            return Insane(f".{key[:64]}", f"must be between {-MOST_MEASURED:g} and {MOST_MEASURED:g}")
    return None


_RULES: Mapping[str, Check] = {
    FieldRule.TIME: _time,
    FieldRule.TIME_OR_EMPTY: _time_or_empty,
    FieldRule.AMOUNTS: _amounts,
    FieldRule.MEASURES: _measures,
}
