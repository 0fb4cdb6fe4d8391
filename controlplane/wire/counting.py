"""ElementCounter: the elements of an encoded message, counted before a message is built.

Two bytes on the wire can become a message of hundreds of bytes in memory, so the size of a request alone bounds neither
the memory nor the time of reading. This module walks the raw bytes by the message's descriptor and stops at the first
list, map or total which is too long. Nothing is allocated per element, and unexpected bytes are malformed. The limits
are a table of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf import descriptor as protobuf_descriptor

from controlplane.model.errors import Invalid, LimitExceeded

Descriptor: TypeAlias = Any

MOST_ELEMENTS: Final = 250_000
MOST_FIELDS: Final = 500_000
_MOST_UNKNOWN: Final = 100

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_TAG: Final = (1 << 32) - 1
_CONTINUED: Final = bytes(range(128, 256))
_Field = protobuf_descriptor.FieldDescriptor
_WIDTHS: Final = {
    _Field.TYPE_DOUBLE: 8, _Field.TYPE_FIXED64: 8, _Field.TYPE_SFIXED64: 8,
    _Field.TYPE_FLOAT: 4, _Field.TYPE_FIXED32: 4, _Field.TYPE_SFIXED32: 4,
}  # fmt: skip


class _Rule(NamedTuple):
    """The handling of a field: `most` is None for no list, `inner` is None for no message.

    `width` is the bytes of a packed element, 0 for varints, None for elements which cannot be packed.
    """

    name: str
    most: int | None
    inner: Descriptor | None
    width: int | None


class _Budget:
    """The elements and fields left for the whole request."""

    __slots__ = ("elements", "fields", "unknown")

    def __init__(self, most_fields: int) -> None:
        self.elements, self.fields, self.unknown = MOST_ELEMENTS, most_fields, _MOST_UNKNOWN


class ElementCounter:
    """Counts messages of any type by a table of limits, which names every repeated field as `Message.field`."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._rules = cache(self._rules_of)

    def check(self, raw: bytes, descriptor: Descriptor, most_fields: int = MOST_FIELDS) -> int:
        """The number of all fields of the message; LimitExceeded, with the field, for a list which is too long.

        Invalid when `raw` is malformed.
        """
        budget = _Budget(most_fields)
        try:
            self._walk(raw, 0, len(raw), descriptor, {}, budget)
        except (IndexError, _Malformed):
            raise malformed(descriptor) from None
        return most_fields - budget.fields

    def _rules_of(self, descriptor: Descriptor) -> dict[int, _Rule]:
        rules = {}
        for field in descriptor.fields:
            most = self._limits[_key(field)] if field.is_repeated else None
            packable = most is not None and field.message_type is None and field.type not in _TEXTS
            name = "" if field.containing_oneof is not None and field.containing_oneof.name == "ref" else field.name
            width = _WIDTHS.get(field.type, 0) if packable else None
            rules[field.number] = _Rule(name, most, field.message_type, width)
        return rules

    def _walk(
        self, raw: bytes, at: int, end: int, descriptor: Descriptor, counts: dict[int, Any], budget: _Budget
    ) -> None:
        """One message, or another part of a message: parts are merged by protobuf, so they share `counts`."""
        rules = self._rules(descriptor)
        while at < end:
            budget.fields -= 1
            tag, at = _varint(raw, at) if raw[at] > 127 else (raw[at], at + 1)
            kind = tag & 7
            start = at
            if kind == _BYTES:
                length, start = _varint(raw, at) if raw[at] > 127 else (raw[at], at + 1)
                at = start + length
            else:
                at = _after(raw, at, kind)
            if at > end or tag > _MOST_TAG or budget.fields < 0:
                raise _Malformed if budget.fields >= 0 else LimitExceeded("a request must not hold so many fields")
            rule = rules.get(tag >> 3)
            if rule is None:
                budget.unknown -= 1
                if budget.unknown < 0:
                    raise Invalid(descriptor.name, "carries fields that this version does not know")
            elif rule.most is not None or rule.inner is not None:
                self._enter(raw, start, at, tag, rule, counts, budget)

    def _enter(
        self, raw: bytes, start: int, end: int, tag: int, rule: _Rule, counts: dict[int, Any], budget: _Budget
    ) -> None:
        position = None
        if rule.most is not None:
            packed = rule.width is not None and tag & 7 == _BYTES
            elements = _packed(raw, start, end, rule.width) if packed else 1
            position = counts.get(tag >> 3, 0)
            counts[tag >> 3] = position + elements
            budget.elements -= elements
            if position + elements > rule.most:
                message = f"{rule.name}: must not hold more than {rule.most} items"
                raise LimitExceeded(message, field=rule.name)
            if budget.elements < 0:
                raise LimitExceeded(f"a request must not hold more than {MOST_ELEMENTS} elements of lists")
        if rule.inner is None or tag & 7 != _BYTES or start == end:
            return
        inner = {} if position is not None else counts.setdefault(tag >> 3, {})
        try:
            self._walk(raw, start, end, rule.inner, inner, budget)
        except LimitExceeded as error:
            if not error.field:
                raise
            raise _below(rule.name if position is None else f"{rule.name}[{position}]", error) from None


class _Malformed(Exception):
    """The bytes are no message."""


_TEXTS: Final = (_Field.TYPE_STRING, _Field.TYPE_BYTES)


def _key(field: Any) -> str:
    return f"{field.containing_type.name}.{field.name}"


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while raw[at] > 127:
        value |= (raw[at] & 127) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise _Malformed
    return value | raw[at] << shift, at + 1


def _after(raw: bytes, at: int, kind: int) -> int:
    """The end of a value without a length of its own. No message here has groups."""
    if kind == _VARINT:
        return at + 1 if raw[at] < 128 else _varint(raw, at)[1]
    if kind == _FIXED64:
        return at + 8
    if kind == _FIXED32:
        return at + 4
    raise _Malformed


def _packed(raw: bytes, start: int, end: int, width: int | None) -> int:
    return (end - start) // width if width else len(raw[start:end].translate(None, _CONTINUED))


def _below(parent: str, error: LimitExceeded) -> LimitExceeded:
    """The same refusal with the parent's name in front of the field's."""
    field = f"{parent}.{error.field}" if parent else error.field
    return LimitExceeded(f"{field}{str(error)[len(error.field) :]}", field=field)


def malformed(descriptor: Descriptor) -> Invalid:
    return Invalid("request", f"cannot be read: its bytes are no {descriptor.name}")
