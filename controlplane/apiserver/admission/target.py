"""What a Target may say."""

from __future__ import annotations

import re
import zoneinfo
from functools import lru_cache

from msgspec.structs import replace

from controlplane.apiserver.admission import fields
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.fields import at
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.target import Target, Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MAX_WINDOWS = 64
_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00")


def admit(target: Target, _known: Catalogue, path: str = "") -> Target:
    """No driver means: whatever its joblet runs. No capacity means: what its joblet reports."""
    if target.driver:
        fields.one_of(target.driver, fields.DRIVERS, at(path, "driver"))
    if target.region:
        fields.label(target.region, at(path, "region"))
    if target.max_fulfilments is not None:
        fields.at_least(target.max_fulfilments, 1, at(path, "max_fulfilments"))
    if target.kubeconfig_secret:
        fields.name(target.kubeconfig_secret, at(path, "kubeconfig_secret"))
    if len(target.windows) > MAX_WINDOWS:
        field = at(path, "windows")
        raise LimitExceeded(f"{field}: must not hold more than {MAX_WINDOWS} windows", field=field)
    for position, window in enumerate(target.windows):
        _window(window, f"{at(path, 'windows')}[{position}]")
    if target.capacity is None:
        return target
    return replace(target, capacity=fields.quantities(target.capacity, at(path, "capacity")))


def _window(window: Window, path: str) -> None:
    for position, day in enumerate(window.days):
        fields.one_of(day, DAYS, f"{path}.days[{position}]")
        if day in window.days[:position]:
            raise Invalid(f"{path}.days[{position}]", f"{day!r} is there twice")
    for value, field in ((window.from_, "from"), (window.to, "to")):
        if not _TIME.fullmatch(value):
            raise Invalid(f"{path}.{field}", f"must be a time such as 08:00, not {value!r}")
    if window.from_ == window.to:
        raise Invalid(f"{path}.to", "must differ from `from`; use 00:00 to 24:00 for a whole day")
    if not _is_zone(window.tz):
        raise Invalid(f"{path}.tz", f"must be a time zone such as UTC or Europe/Berlin, not {window.tz!r}")


@lru_cache(maxsize=1000)
def _is_zone(name: str) -> bool:
    if name == "UTC":
        return True
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
