"""The rules of Settings, each alone and all together."""

from __future__ import annotations

from msgspec.structs import replace

from controlplane.apiserver.admission import fields
from controlplane.apiserver.admission.fields import at
from controlplane.apiserver.admission.restrictions import RESTRICTED_ROLES
from controlplane.model import credential, silence
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.settings import EVERYONE, Quota, Restriction, Settings, Weights
from controlplane.store import codec

PLACEMENTS = ("balance", "pack")
MAX_QUOTAS = 1000
_MOST = 2**53
_YEAR = 365 * 86400


def admit(settings: Settings, path: str = "") -> Settings:
    fields.number(settings.clean_up, at(path, "clean_up"), least=1, most=_YEAR)
    fields.number(settings.target_grace, at(path, "target_grace"), least=0, most=_YEAR)
    fields.number(settings.joblet_lease, at(path, "joblet_lease"), least=silence.LEAST_LEASE_SECONDS, most=3600)
    fields.duration(settings.heartbeat, at(path, "heartbeat"))
    fields.number(settings.kill_grace, at(path, "kill_grace"), least=0, most=3600)
    fields.number(settings.cycle_budget, at(path, "cycle_budget"), least=1, most=1_000_000)
    fields.number(settings.target_suspect, at(path, "target_suspect"), least=0, most=_YEAR)
    fields.number(settings.drain_timeout, at(path, "drain_timeout"), least=0, most=_YEAR)
    fields.number(settings.history, at(path, "history"), least=60, most=_YEAR)
    fields.number(settings.max_waiting_orders, at(path, "max_waiting_orders"), least=1, most=_MOST)
    fields.number(settings.max_waiting_tasks, at(path, "max_waiting_tasks"), least=1, most=_MOST)
    least = credential.LEAST_LIFETIME_SECONDS
    fields.number(settings.joblet_credential, at(path, "joblet_credential"), least=least, most=_YEAR)
    misfit = silence.misfit(settings)
    if misfit is not None:
        field, rule = misfit
        raise Invalid(at(path, field), rule)
    requests = fields.quantities(settings.default_requests, at(path, "default_requests"))
    _placing(settings, path)
    _restrictions(settings.restrictions, at(path, "restrictions"))
    admitted = replace(settings, default_requests=requests, quotas=_quotas(settings.quotas, at(path, "quotas")))
    codec.check(admitted, path)
    return admitted


def _placing(settings: Settings, path: str) -> None:
    """The rules of choosing targets."""
    fields.one_of(settings.placement, PLACEMENTS, at(path, "placement"))
    for name in Weights.__struct_fields__:
        fields.number(getattr(settings.weights, name), at(path, f"weights.{name}"), least=0, most=100)
    fields.number(settings.reservations, at(path, "reservations"), least=0, most=1000)
    fields.number(settings.event_ttl, at(path, "event_ttl"), least=60, most=_YEAR)
    fields.number(settings.stats_interval, at(path, "stats_interval"), least=1, most=3600)
    fields.number(settings.failure_memory, at(path, "failure_memory"), least=0, most=_YEAR)


def _restrictions(restrictions: dict[str, Restriction], field: str) -> None:
    for role, restriction in restrictions.items():
        here = at(field, role[:64])
        fields.one_of(role, RESTRICTED_ROLES, here)
        fields.number(restriction.max_priority, f"{here}.max_priority", least=0, most=100)
        fields.names(restriction.strict_targets, f"{here}.strict_targets")
        for position, image in enumerate(restriction.images):
            fields.line(image, f"{here}.images[{position}]")


def _quotas(quotas: dict[str, Quota], field: str) -> dict[str, Quota]:
    if len(quotas) > MAX_QUOTAS:
        raise LimitExceeded(f"{field}: must not hold more than {MAX_QUOTAS} owners", field=field)
    return {owner: _quota(owner, quota, at(field, owner[:64])) for owner, quota in quotas.items()}


def _quota(owner: str, quota: Quota, field: str) -> Quota:
    if not owner:
        raise Invalid(field, f"must name an owner, or {EVERYONE} for everyone who is not named")
    fields.line(owner, field)
    if quota.orders is not None:
        fields.number(quota.orders, f"{field}.orders", least=0, most=_MOST)
    if quota.waiting_tasks is not None:
        fields.number(quota.waiting_tasks, f"{field}.waiting_tasks", least=0, most=_MOST)
    if quota.live_tasks is not None:
        fields.number(quota.live_tasks, f"{field}.live_tasks", least=0, most=_MOST)
    return replace(quota, quantities=fields.quantities(quota.quantities, f"{field}.quantities"))
