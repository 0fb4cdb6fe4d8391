"""The room of a cluster for its target: the amounts of nodes that take pods, less the requests of foreign pods. Pure.

Amounts are summed over nodes: whether a single node has room for a large pod is for the cluster's own scheduler to
decide, and shows as Unschedulable. On each node, requests of foreign pods take away no more than the node has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.joblet.drivers.kubernetes.cluster_quantities import NAMES, PODS, of_cluster
from controlplane.model.quantity import Number, whole

_OVER = frozenset({"Succeeded", "Failed"})
# Nodes with such taints take nothing new.
_SHUTS = frozenset({"NoSchedule", "NoExecute"})
_SPECIAL_TAINTS = "node.kubernetes.io/"


def available(
    nodes: Iterable[Mapping[str, Any]], foreign: Iterable[Mapping[str, Any]], names: Mapping[str, str] = NAMES
) -> dict[str, float]:
    """`foreign` are all pods that do not belong to this target. The quantity `pods` is how many more pods fit."""
    free = {
        _name(node): of_cluster(_in(node, "status").get("allocatable"), names) for node in nodes if takes_pods(node)
    }
    used: dict[str, dict[str, Number]] = defaultdict(lambda: defaultdict(int))
    for pod in foreign:
        node_name = _in(pod, "spec").get("nodeName")
        if node_name in free and counts(pod):
            for name, amount in {**requests_of(pod, names), PODS: 1}.items():
                used[node_name][name] += amount
    total: dict[str, Number] = {name: 0 for amounts in free.values() for name in amounts}
    for node_name, amounts in free.items():
        for name, amount in amounts.items():
            total[name] += max(0, amount - used[node_name][name])
    return {name: whole(round(amount, 6)) for name, amount in sorted(total.items())}


def takes_pods(node: Mapping[str, Any]) -> bool:
    """Whether the node is ready, schedulable, and not tainted as being in trouble. Pods may tolerate other taints."""
    if _in(node, "spec").get("unschedulable") or _in(node, "metadata").get("deletionTimestamp"):
        return False
    for taint in _in(node, "spec").get("taints") or ():
        if str(taint.get("key", "")).startswith(_SPECIAL_TAINTS) and taint.get("effect") in _SHUTS:
            return False
    conditions = _in(node, "status").get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def counts(pod: Mapping[str, Any]) -> bool:
    """Whether the pod takes room of its node: an ended pod does not, a pod that is being deleted still does."""
    return _in(pod, "status").get("phase") not in _OVER


def requests_of(pod: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> dict[str, Number]:
    """The requests as the cluster's scheduler counts them: all containers together, or the largest init step, plus the
    overhead. Init containers run one after the other; those with restartPolicy Always stay beside all later ones."""
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
    value = item.get(part)
    return value if isinstance(value, Mapping) else {}
