"""Whether a struct that was built or decoded holds sane values: the rules of `model/bounds` that a type cannot say.

One check per struct, made once from the types of its fields, structs inside of it included; a struct without such
fields has none. `store/codec` asks on every read and, for admission, before every write. A struct with rules across
its fields has them in a method `misfit`, which gives the field and the rule that it breaks.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec

from controlplane.model import times
from controlplane.model.bounds import LEAST_AMOUNT, MOST_AMOUNT, MOST_MEASURED, Rule
from controlplane.model.errors import Invalid


class Insane(NamedTuple):
    """The path of a field, from the value that was asked about on, and the rule that the field breaks."""

    path: str
    rule: str

    def within(self, front: str) -> Insane:
        return Insane(front + self.path, self.rule)


# Paths are put together only for what is found insane: nearly nothing is.
Check = Callable[[Any], Insane | None]


def check(item: msgspec.Struct) -> None:
    """Invalid, with the field's path and the rule, for a value that is not sane."""
    found = check_of(type(item))
    insane = found(item) if found is not None else None
    if insane is not None:
        raise Invalid(insane.path.removeprefix("."), insane.rule)


@cache
def check_of(kind: type[msgspec.Struct]) -> Check | None:
    """The check of that struct; None when the types of its fields say everything."""
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
    """The check of one field; it is asked about values that are there."""
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
    """Of the kinds that a field may have at most one is checked: an object that may stand in the place of its name."""
    found = [(part, each) for part in parts if (each := _of(part)) is not None]
    if not found:
        return None
    ((part, each),) = found
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
    Rule.TIME: _time,
    Rule.TIME_OR_EMPTY: _time_or_empty,
    Rule.AMOUNTS: _amounts,
    Rule.MEASURES: _measures,
}
