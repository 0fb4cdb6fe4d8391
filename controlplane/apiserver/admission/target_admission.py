"""The rules of a Target."""

from __future__ import annotations

from msgspec.structs import replace

from controlplane.apiserver.admission import catalogue, fields
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.fields import at
from controlplane.model import windows
from controlplane.model.bounds import INT32
from controlplane.model.driver_traits import DRIVERS, WITH_NODES
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.target import MOST_GRACE_SECONDS, SECURITY, Target, Window

MAX_WINDOWS = 64
MAX_DRAIN_SECONDS = 365 * 86400


def admit(target: Target, existing: Catalogue, path: str = "") -> Target:
    """No driver means the driver of its joblet, no capacity the capacity reported by its joblet."""
    if target.driver:
        fields.one_of(target.driver, DRIVERS, at(path, "driver"))
    if target.region:
        fields.label(target.region, at(path, "region"))
    if target.max_fulfilments is not None:
        fields.number(target.max_fulfilments, at(path, "max_fulfilments"), least=1, most=INT32)
    if target.default_time_limit is not None:
        fields.duration(target.default_time_limit, at(path, "default_time_limit"))
    if target.drain_timeout is not None:
        fields.number(target.drain_timeout, at(path, "drain_timeout"), least=0, most=MAX_DRAIN_SECONDS)
        if not target.drain:
            raise Invalid(at(path, "drain_timeout"), "is for a target that is drained: set drain too")
    if target.kubeconfig_secret:
        _kubeconfig_secret(target, existing, at(path, "kubeconfig_secret"))
    _told_to_joblet(target, path)
    if len(target.windows) > MAX_WINDOWS:
        field = at(path, "windows")
        raise LimitExceeded(f"{field}: must not hold more than {MAX_WINDOWS} windows", field=field)
    for position, window in enumerate(target.windows):
        _window(window, f"{at(path, 'windows')}[{position}]")
    if len({window.tz for window in target.windows}) > windows.MAX_ZONES:
        field = at(path, "windows")
        raise LimitExceeded(f"{field}: must not name more than {windows.MAX_ZONES} time zones", field=field)
    if target.capacity is None:
        return target
    return replace(target, capacity=fields.quantities(target.capacity, at(path, "capacity")))


def _kubeconfig_secret(target: Target, existing: Catalogue, path: str) -> None:
    """The joblet of the target is run by a replica, which is possible for a cluster only."""
    fields.name(target.kubeconfig_secret, path)
    if target.driver not in WITH_NODES:
        raise Invalid(path, "is for targets with the driver kubernetes only")
    catalogue.secret(existing, target.kubeconfig_secret, path)


def _told_to_joblet(target: Target, path: str) -> None:
    """Fields for a joblet run by a replica; any other joblet gets them from its own command line."""
    for name, flag in (("security", "--security"), ("stop_grace", "--grace")):
        if getattr(target, name) and not target.kubeconfig_secret:
            raise Invalid(
                at(path, name), f"is for targets with a kubeconfig_secret only; start another joblet with {flag}"
            )
    if target.security:
        fields.one_of(target.security, SECURITY, at(path, "security"))
    if target.stop_grace is not None:
        fields.number(target.stop_grace, at(path, "stop_grace"), least=1, most=MOST_GRACE_SECONDS)


def _window(window: Window, path: str) -> None:
    for position, day in enumerate(window.days):
        fields.one_of(day, windows.DAYS, f"{path}.days[{position}]")
        if day in window.days[:position]:
            raise Invalid(f"{path}.days[{position}]", f"{day!r} is there twice")
    for value, field in ((window.from_, "from"), (window.to, "to")):
        if windows.minutes(value) is None:
            raise Invalid(f"{path}.{field}", f"must be a time such as 08:00, not {value!r}")
    if windows.zone(window.tz) is None:
        raise Invalid(f"{path}.tz", f"must be a time zone such as UTC or Europe/Berlin, not {window.tz[:80]!r}")
