"""What Settings may say, each alone and all together."""

from __future__ import annotations

from msgspec.structs import replace

from controlplane.apiserver.admission import fields
from controlplane.apiserver.admission.fields import at
from controlplane.model.errors import Invalid
from controlplane.model.settings import Settings

# A lease below this is not kept by etcd.
LEAST_LEASE_SECONDS = 2
_YEAR = 365 * 86400


def admit(settings: Settings, path: str = "") -> Settings:
    fields.number(settings.clean_up, at(path, "clean_up"), least=1, most=_YEAR)
    fields.number(settings.target_grace, at(path, "target_grace"), least=0, most=_YEAR)
    fields.number(settings.joblet_lease, at(path, "joblet_lease"), least=LEAST_LEASE_SECONDS, most=3600)
    fields.duration(settings.heartbeat, at(path, "heartbeat"))
    fields.number(settings.kill_grace, at(path, "kill_grace"), least=0, most=3600)
    fields.number(settings.cycle_budget, at(path, "cycle_budget"), least=1, most=1_000_000)
    if settings.heartbeat * 3 > settings.joblet_lease:
        raise Invalid(at(path, "heartbeat"), f"must not be above a third of joblet_lease ({settings.joblet_lease} s)")
    if settings.target_grace < settings.kill_grace:
        raise Invalid(at(path, "target_grace"), f"must not be below kill_grace ({settings.kill_grace} s)")
    requests = fields.quantities(settings.default_requests, at(path, "default_requests"))
    return replace(settings, default_requests=requests)
