"""The room that the cluster has for this target, kept current by watches of its nodes and of all foreign pods.

Only the parts of nodes and pods that count are kept. Changes are gathered for a moment, so that a busy cluster does not
report all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet.drivers.kubernetes.api import Api, Json
from controlplane.joblet.drivers.kubernetes.availability import available
from controlplane.joblet.drivers.kubernetes.cluster_quantities import NAMES
from controlplane.joblet.drivers.kubernetes.collection_watch import CollectionWatch

GATHER_SECONDS = 0.5
# Foreign pods that take room of a node.
_HOLDS_ROOM = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
log = structlog.get_logger(__name__)


class TrimmedCollection:
    """The objects of one collection, each trimmed to the parts that count."""

    def __init__(self, cut: Callable[[Json], Json], changed: Callable[[], None]) -> None:
        self._cut = cut
        self._changed = changed
        self.things: dict[str, Json] | None = None

    def listed(self, objects: Mapping[str, Json]) -> None:
        self.things = {key: self._cut(thing) for key, thing in objects.items()}
        self._changed()

    def put(self, key: str, thing: Json) -> None:
        assert self.things is not None
        cut = self._cut(thing)
        if self.things.get(key) != cut:
            self.things[key] = cut
            self._changed()

    def gone(self, key: str, last: Json) -> None:
        assert self.things is not None
        if self.things.pop(key, None) is not None:
            self._changed()


class ClusterCapacity:
    """`most` are bounds from the settings of the joblet: `now` never reports more of a quantity than its bound."""

    def __init__(self, api: Api, ours: str, most: Mapping[str, float], *, clock: Clock) -> None:
        self._most = dict(most)
        self._nodes = TrimmedCollection(_node, self._later)
        self._others = TrimmedCollection(_pod, self._later)
        self._pending: asyncio.TimerHandle | None = None
        self._changed: Callable[[], None] = lambda: None
        self.now: dict[str, float] = {}
        target = next(part for part in ours.split(",") if part.startswith("controlplane/target="))
        foreign = {"labelSelector": target.replace("=", "!=", 1), "fieldSelector": _HOLDS_ROOM}
        self.watches = (
            CollectionWatch(api, "/api/v1/nodes", {}, self._nodes, clock=clock, changed=lambda: None),
            CollectionWatch(api, "/api/v1/pods", foreign, self._others, clock=clock, changed=lambda: None),
        )

    def attach(self, changed: Callable[[], None]) -> None:
        """`changed` is called when `now` changed."""
        self._changed = changed

    def known(self) -> bool:
        return self._nodes.things is not None and self._others.things is not None

    def _later(self) -> None:
        if not self.known():
            return
        if not self.now:
            self._count()
        elif self._pending is None:
            self._pending = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._count)

    def _count(self) -> None:
        self._pending = None
        assert self._nodes.things is not None
        assert self._others.things is not None
        free = available(self._nodes.things.values(), self._others.things.values())
        now = bounded({"cpu": 0, "memory": 0, **free}, self._most)
        if now != self.now:
            self.now = now
            log.info("the cluster's room changed", **now)
            self._changed()


def bounded(free: Mapping[str, float], most: Mapping[str, float]) -> dict[str, float]:
    """The free amounts within their bounds. A quantity that clusters do not know is as large as its bound."""
    own = {name: amount for name, amount in most.items() if name not in free and name not in NAMES}
    return {**own, **{name: min(amount, most.get(name, amount)) for name, amount in free.items()}}


def _node(node: Json) -> Json:
    status = node.get("status", {})
    conditions = [
        {"type": condition.get("type"), "status": condition.get("status")}
        for condition in status.get("conditions") or ()
        if condition.get("type") == "Ready"
    ]
    metadata = node["metadata"]
    kept = {key: metadata[key] for key in ("name", "labels", "deletionTimestamp") if key in metadata}
    spec = {key: value for key, value in node.get("spec", {}).items() if key in ("taints", "unschedulable")}
    return {
        "metadata": kept,
        "spec": spec,
        "status": {"allocatable": status.get("allocatable"), "conditions": conditions},
    }


def _pod(pod: Json) -> Json:
    spec = pod.get("spec", {})
    kept: Json = {key: spec[key] for key in ("nodeName", "overhead") if key in spec}
    for key in ("containers", "initContainers"):
        if spec.get(key):
            kept[key] = [_container(container) for container in spec[key]]
    return {
        "metadata": {"name": pod["metadata"]["name"]},
        "spec": kept,
        "status": {"phase": pod.get("status", {}).get("phase")},
    }


def _container(container: Json) -> Json:
    return {key: container[key] for key in ("name", "resources", "restartPolicy") if key in container}
