"""How much of a cluster is there for its target: what nodes that take pods can give, less what others ask for. Pure.

Summed over nodes: whether one node has room for one large pod is for the cluster's own scheduler to say, and shows as
Unschedulable. On each node, what others ask for takes away no more than that node has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.joblet.drivers.kubernetes.amounts import NAMES, PODS, of_cluster
from controlplane.model.quantity import Number, whole

_OVER = frozenset({"Succeeded", "Failed"})
# Nodes with such taints take nothing new.
_SHUTS = frozenset({"NoSchedule", "NoExecute"})
_SPECIAL_TAINTS = "node.kubernetes.io/"


def available(
    nodes: Iterable[Mapping[str, Any]], foreign: Iterable[Mapping[str, Any]], names: Mapping[str, str] = NAMES
) -> dict[str, float]:
    """`foreign` are all pods that are not this target's own. The quantity `pods` is how many more there may be."""
    free = {
        _name(node): of_cluster(_in(node, "status").get("allocatable"), names) for node in nodes if takes_pods(node)
    }
    used: dict[str, dict[str, Number]] = defaultdict(lambda: defaultdict(int))
    for pod in foreign:
        place = _in(pod, "spec").get("nodeName")
        if place in free and counts(pod):
            for name, amount in {**requests_of(pod, names), PODS: 1}.items():
                used[place][name] += amount
    total: dict[str, Number] = {name: 0 for amounts in free.values() for name in amounts}
    for place, amounts in free.items():
        for name, amount in amounts.items():
            total[name] += max(0, amount - used[place][name])
    return {name: whole(round(amount, 6)) for name, amount in sorted(total.items())}


def takes_pods(node: Mapping[str, Any]) -> bool:
    """Ready, schedulable, and not tainted as being in trouble. Other taints are borne by pods that tolerate them."""
    if _in(node, "spec").get("unschedulable") or _in(node, "metadata").get("deletionTimestamp"):
        return False
    for taint in _in(node, "spec").get("taints") or ():
        if str(taint.get("key", "")).startswith(_SPECIAL_TAINTS) and taint.get("effect") in _SHUTS:
            return False
    conditions = _in(node, "status").get("conditions") or ()
    return any(found.get("type") == "Ready" and found.get("status") == "True" for found in conditions)


def counts(pod: Mapping[str, Any]) -> bool:
    """Whether it takes room where it is: one that has ended does not, one that is being deleted still does."""
    return _in(pod, "status").get("phase") not in _OVER


def requests_of(pod: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> dict[str, Number]:
    """As the cluster's scheduler counts: containers together, or the largest step of its beginning, and its overhead.

    Init containers run one after the other; those with restartPolicy Always stay beside all that comes later.
    """
    spec = _in(pod, "spec")
    stays: dict[str, Number] = defaultdict(int)
    peak: dict[str, Number] = defaultdict(int)
    for container in spec.get("initContainers") or ():
        asked = _asked(container, names)
        lasting = container.get("restartPolicy") == "Always"
        for name, amount in asked.items():
            peak[name] = max(peak[name], stays[name] + amount)
            if lasting:
                stays[name] += amount
    together: dict[str, Number] = defaultdict(int, stays)
    for container in spec.get("containers") or ():
        for name, amount in _asked(container, names).items():
            together[name] += amount
    over = of_cluster(spec.get("overhead"), names)
    return {
        name: max(together[name], peak[name]) + over.get(name, 0) for name in sorted({*together, *peak, *over} - {PODS})
    }


def _asked(container: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Number]:
    """A limit without a request counts as the request."""
    resources = _in(container, "resources")
    return {**of_cluster(resources.get("limits"), names), **of_cluster(resources.get("requests"), names)}


def _name(item: Mapping[str, Any]) -> str:
    return str(_in(item, "metadata").get("name", ""))


def _in(item: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    found = item.get(part)
    return found if isinstance(found, Mapping) else {}
