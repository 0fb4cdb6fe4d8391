"""The rules of a ScalePolicy."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec.structs import replace

from controlplane.apiserver.admission import fields
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.fields import at
from controlplane.model.bounds import MOST_COUNTED, MOST_SECONDS
from controlplane.model.driver_traits import DRIVERS, KUBERNETES, PROCESS, WITH_NODES
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.outside_hosts import is_loopback
from controlplane.model.quantity import Number
from controlplane.model.scalepolicy import (
    CLUSTER_API,
    PROVIDERS,
    ClusterApi,
    Metric,
    ScalePolicy,
    TargetSize,
    TargetTemplate,
    WorkSelector,
)

MAX_TARGETS = 1000
MAX_SIZES = 32
MAX_URL = 2048
MAX_HOST = 253
# Its targets are called <name>-<number>, and a name has at most 63 characters.
MAX_NAME = 56
MAX_STEP = 40
MAX_MACHINES = 1000
# The form of a cluster's name in Kubernetes, which is the value of a label, too.
_CLUSTER = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_THRESHOLDS: Mapping[str, tuple[Number, Number]] = {
    Metric.QUEUE: (0, MOST_COUNTED),
    Metric.WAIT: (0, MOST_SECONDS),
    Metric.UTILISATION: (1, 99),
}
_HOST_PART = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_LOCAL_DRIVERS = tuple(kind for kind in DRIVERS if kind not in WITH_NODES)


def admit(policy: ScalePolicy, _known: Catalogue, path: str = "") -> ScalePolicy:
    """The policy with its defaults: min 0, step 1, a cool-down of 30 s, 5 minutes idle."""
    if len(policy.name) > MAX_NAME:
        raise Invalid(
            at(path, "name"), f"must not be longer than {MAX_NAME} characters: its targets are named after it"
        )
    fields.one_of(policy.provider, PROVIDERS, at(path, "provider"))
    fields.one_of(policy.metric, tuple(Metric), at(path, "metric"))
    if policy.threshold is None:
        raise Invalid(at(path, "threshold"), f"must say above how much {policy.metric} a target is added")
    least, most = _THRESHOLDS[policy.metric]
    fields.number(policy.threshold, at(path, "threshold"), least=least, most=most)
    _url(policy, at(path, "url"))
    serves = _serves(policy.serves, at(path, "serves"))
    template = _template(policy, at(path, "template"))
    if serves is not None and serves.region and template.region not in ("", serves.region):
        raise Invalid(at(path, "template.region"), f"must be {serves.region}, the region of the work that it serves")
    sizes = _sizes(policy.sizes, at(path, "sizes"))
    given = replace(_numbers(policy, path), serves=serves, template=template, sizes=sizes)
    return replace(given, cluster_api=_cluster_api(given, path))


def _cluster_api(policy: ScalePolicy, path: str) -> ClusterApi | None:
    """Every quantity of a target's capacity must be given for a machine: machines are counted by these."""
    here, given = at(path, "cluster_api"), policy.cluster_api
    if policy.provider != CLUSTER_API:
        if given is not None:
            raise Invalid(here, f"belongs to the provider {CLUSTER_API} only, not to {policy.provider}")
        return None
    if given is None:
        raise Invalid(here, "must say where machines come from: namespace, template, machine")
    if not _CLUSTER.fullmatch(policy.name):
        raise Invalid(at(path, "name"), "must begin with a letter or digit: clusters are named after it")
    given = replace(given, namespace=given.namespace or "default", machine=_capacity(given.machine, f"{here}.machine"))
    if not _NAMESPACE.fullmatch(given.namespace):
        raise Invalid(f"{here}.namespace", "must be the name of a namespace")
    if len(given.template) > 253 or not _CLUSTER.fullmatch(given.template):
        raise Invalid(f"{here}.template", "must name the MachineDeployment that new ones are copied from")
    for capacity in policy.steps():
        for name in capacity:
            if name not in given.machine:
                raise Invalid(
                    f"{here}.machine", f"must say how much {name} a machine has: a target's capacity names it"
                )
        if given.machines(capacity) > MAX_MACHINES:
            raise LimitExceeded(f"{here}.machine: a target must not have more than {MAX_MACHINES} machines", field=here)
    return given


def _numbers(policy: ScalePolicy, path: str) -> ScalePolicy:
    given = replace(
        policy,
        min=0 if policy.min is None else policy.min,
        step=1 if policy.step is None else policy.step,
        cool_down=30 if policy.cool_down is None else policy.cool_down,
        idle=300 if policy.idle is None else policy.idle,
    )
    if given.max is None:
        raise Invalid(at(path, "max"), "must say how many targets it makes at most")
    for amount, field, least, most in (
        (given.min, "min", 0, MAX_TARGETS),
        (given.max, "max", 1, MAX_TARGETS),
        (given.step, "step", 1, MAX_STEP),
        (given.cool_down, "cool_down", 0, MOST_SECONDS),
        (given.idle, "idle", 0, MOST_SECONDS),
    ):
        fields.number(amount or 0, at(path, field), least=least, most=most)
    if (given.min or 0) > given.max:
        raise Invalid(at(path, "max"), f"must not be below min, which is {given.min}")
    return given


def _serves(serves: WorkSelector | None, path: str) -> WorkSelector | None:
    if serves is None:
        return None
    if serves.class_:
        fields.label(serves.class_, at(path, "class"))
    if serves.region:
        fields.label(serves.region, at(path, "region"))
    fields.labels(serves.labels, at(path, "labels"))
    return serves


def _template(policy: ScalePolicy, path: str) -> TargetTemplate:
    template = policy.template or TargetTemplate()
    usual = KUBERNETES if policy.provider == CLUSTER_API else PROCESS
    template = replace(template, driver=template.driver or usual)
    fields.one_of(template.driver, DRIVERS, at(path, "driver"))
    if policy.provider == "local" and template.driver not in _LOCAL_DRIVERS:
        raise Invalid(at(path, "driver"), f"must be one of {', '.join(_LOCAL_DRIVERS)} for the provider local")
    if template.region:
        fields.label(template.region, at(path, "region"))
    fields.labels(template.labels, at(path, "labels"))
    if policy.sizes:
        if template.capacity:
            raise Invalid(at(path, "capacity"), "must be left out when sizes say how large a target is")
        return template
    return replace(template, capacity=_capacity(template.capacity, at(path, "capacity")))


def _sizes(sizes: Sequence[TargetSize], path: str) -> tuple[TargetSize, ...]:
    if len(sizes) > MAX_SIZES:
        raise LimitExceeded(f"{path}: must not hold more than {MAX_SIZES} sizes", field=path)
    checked: list[TargetSize] = []
    for position, size in enumerate(sizes):
        here = f"{path}[{position}].capacity"
        capacity = _capacity(size.capacity, here)
        before = checked[-1].capacity if checked else {}
        if checked and set(capacity) != set(before):
            raise Invalid(here, f"must name the same quantities as the size before it: {', '.join(sorted(before))}")
        if capacity == before or any(capacity[name] < amount for name, amount in before.items()):
            raise Invalid(here, "must be larger than the size before it")
        checked.append(TargetSize(capacity=capacity))
    return tuple(checked)


def _capacity(capacity: Mapping[str, Number], path: str) -> dict[str, Number]:
    if not capacity:
        raise Invalid(path, "must say how large a target is")
    checked = fields.quantities(capacity, path)
    for name, amount in checked.items():
        fields.positive(amount, at(path, name))
    return checked


def _is_host(host: str | None) -> bool:
    """An IP address, or a name of the DNS: parts of 1 to 63 characters, 253 in all."""
    if host is None:
        return False
    with suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]) is not None
    return len(host) <= MAX_HOST and all(_HOST_PART.fullmatch(part) for part in host.removesuffix(".").split("."))


def _url(policy: ScalePolicy, path: str) -> None:
    """The URL is stored in clear and must hold no secret: requests are signed with a secret of the replicas."""
    if policy.provider != "webhook":
        if policy.url:
            raise Invalid(path, f"belongs to the provider webhook only, not to {policy.provider}")
        return
    fields.line(policy.url, path, most=MAX_URL)
    try:
        parts = urlsplit(policy.url)
        sound = (
            parts.scheme in ("http", "https") and _is_host(parts.hostname) and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        sound = False
    if not sound:
        rule = "must be an http or https URL with the name or address of a host for the provider webhook"
        raise Invalid(path, f"{rule}, not {policy.url!r}")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise Invalid(path, "must hold no user, password or fragment")
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise Invalid(path, "must begin with https://, or name a loopback address")
