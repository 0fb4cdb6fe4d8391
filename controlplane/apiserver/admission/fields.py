"""The rules of single fields. Every refusal is an Invalid with the path of the field."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

from controlplane.model import quantity, texts
from controlplane.model.bounds import MAX_LABELS, MAX_QUANTITIES, MAX_TEXT, MOST_SECONDS, NAME, is_name
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.quantity import Number

MAX_NAMES = 256
STRICT = "strict:"

_LABEL = re.compile(r"[A-Za-z0-9._/-]{1,63}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_RESERVED_ENV = "CONTROLPLANE_"


def at(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def name(value: str, field: str) -> None:
    if not NAME.fullmatch(value):
        raise Invalid(field, f"must be 1 to 63 characters of a-z, 0-9, '.' and '-', not {_short(value)}")
    if not is_name(value):
        raise Invalid(field, "must not consist of dots only")


def names(values: Sequence[str], field: str, *, most: int = MAX_NAMES) -> None:
    """A list of distinct names."""
    if len(values) > most:
        raise LimitExceeded(f"{field}: must not hold more than {most} names, but has {len(values)}", field=field)
    seen: set[str] = set()
    for position, value in enumerate(values):
        name(value, f"{field}[{position}]")
        if value in seen:
            raise Invalid(f"{field}[{position}]", f"{value!r} is there twice")
        seen.add(value)


def line(value: str, field: str, *, most: int = 256) -> None:
    """Text for people: one line."""
    if len(value) > most:
        raise LimitExceeded(f"{field}: must not be longer than {most} characters, but has {len(value)}", field=field)
    if _CONTROL.search(value):
        raise Invalid(field, "must not hold control characters")


def text(value: str, field: str, *, most: int = MAX_TEXT) -> None:
    """Text for programs: any text which fits into an argument or an environment variable."""
    if len(value) > most:
        raise LimitExceeded(f"{field}: must not be longer than {most} characters, but has {len(value)}", field=field)
    if "\0" in value:
        raise Invalid(field, "must not hold the character NUL")


def label(value: str, field: str) -> None:
    if not _LABEL.fullmatch(value):
        raise Invalid(field, f"must be 1 to 63 characters of letters, digits and ._/-, not {_short(value)}")


def labels(values: Mapping[str, str], field: str) -> None:
    if len(values) > MAX_LABELS:
        raise LimitExceeded(f"{field}: must not hold more than {MAX_LABELS} labels", field=field)
    for key, value in values.items():
        label(key, at(field, _short(key, quoted=False)))
        line(value, at(field, key))


def env_name(value: str, field: str) -> None:
    if not _ENV_NAME.fullmatch(value):
        raise Invalid(field, f"must name an environment variable ([A-Za-z_][A-Za-z0-9_]*), not {_short(value)}")
    if value.startswith(_RESERVED_ENV):
        raise Invalid(field, f"must not begin with {_RESERVED_ENV}, which the system sets itself")


def one_of(value: str, allowed: Collection[str], field: str) -> None:
    if value not in allowed:
        raise Invalid(field, f"must be one of {', '.join(allowed)}, not {_short(value)}")


def quantities(values: Mapping[str, Number], field: str) -> dict[str, Number]:
    """The same amounts, whole numbers as ints."""
    if len(values) > MAX_QUANTITIES:
        raise LimitExceeded(f"{field}: must not hold more than {MAX_QUANTITIES} quantities", field=field)
    checked: dict[str, Number] = {}
    for key, amount in values.items():
        label(key, at(field, _short(key, quoted=False)))
        checked[key] = quantity.check(amount, at(field, key))
    return checked


def number(value: Number, field: str, *, least: Number, most: Number) -> None:
    if math.isnan(value) or math.isinf(value):
        raise Invalid(field, f"must be a finite number, not {value}")
    if not least <= value <= most:
        raise Invalid(field, f"must be between {least} and {most}, not {value}")


def positive(value: Number, field: str) -> None:
    quantity.check(value, field)
    if value <= 0:
        raise Invalid(field, f"must be above 0, not {value}")


def duration(value: Number, field: str) -> None:
    """Seconds, more than none, and not more than ten years."""
    quantity.check(value, field)
    if value <= 0:
        raise Invalid(field, "must be longer than 0 seconds")
    if value > MOST_SECONDS:
        raise Invalid(field, f"must not be longer than ten years ({MOST_SECONDS} seconds)")


def target_of(policy: str, field: str) -> str | None:
    """The only target allowed by the policy, None for any."""
    if policy == "any":
        return None
    if not policy.startswith(STRICT):
        raise Invalid(field, f"must be any or strict:<target>, not {_short(policy)}")
    target = policy.removeprefix(STRICT)
    name(target, field)
    return target


def _short(value: str, *, quoted: bool = True) -> str:
    cut = texts.cut(value, 80)
    return repr(cut) if quoted else cut
