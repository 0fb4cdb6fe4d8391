"""The MachineDeployment of a made target. Pure: the current object in, the object to write out.

The annotations of the object decide whether a request is late: they name the made target, the generation of the last
request, and whether the target was removed. A removed object stays, without machines, so that a late request finds the
annotations and is refused; only the oldest of many removed objects are forgotten.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.model.errors import Refused, StaleAttempt
from controlplane.model.scalepolicy import Made

Json = dict[str, Any]

GROUP = "cluster.x-k8s.io"
VERSION = "v1beta1"
PLURAL = "machinedeployments"
MANAGED = {"app.kubernetes.io/managed-by": "controlplane"}
POLICY = "controlplane/policy"
TARGET = "controlplane/target"
MADE = "controlplane/made"
GENERATION = "controlplane/generation"
REQUEST = "controlplane/request"
REMOVED = "controlplane/removed"
CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"
DEPLOYMENT_NAME = "cluster.x-k8s.io/deployment-name"
# How many removed objects of a policy are remembered.
TOMBSTONES = 50


def replicas_of(made: Made) -> int:
    if made.cluster_api is None:
        raise Refused(f"{made.target} does not say what its machines are")
    return made.cluster_api.machines(made.capacity)


def new(template: Mapping[str, Any], made: Made) -> Json:
    """A copy of the template under the target's name, for the cluster of the same name."""
    name = made.target
    spec = copy.deepcopy(dict(template.get("spec") or {}))
    chosen = {CLUSTER_NAME: name, DEPLOYMENT_NAME: name}
    machine = spec.setdefault("template", {})
    machine.setdefault("metadata", {})["labels"] = {**_labels(machine), **chosen}
    machine.setdefault("spec", {})["clusterName"] = name
    spec |= {"clusterName": name, "replicas": replicas_of(made), "selector": {"matchLabels": chosen}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "MachineDeployment",
        "metadata": {
            "name": name,
            "labels": {**_labels(template), **MANAGED, POLICY: made.policy, TARGET: name, CLUSTER_NAME: name},
            "annotations": _notes(made),
        },
        "spec": spec,
    }


def brought(deployment: Json, made: Made) -> Json | None:
    """The object to write; None when already as requested. StaleAttempt for a late request."""
    notes = _owned(deployment, made)
    if notes.get(MADE, "") > made.id or (notes.get(MADE) == made.id and _is_later(notes, made)):
        raise StaleAttempt(f"{made.target} was changed by a later request than {made.request}")
    return _changed(deployment, _notes(made), replicas_of(made))


def removed(deployment: Json, made: Made) -> Json | None:
    """The object without machines; None when already without, or when a later target of the name owns the object."""
    notes = _owned(deployment, made)
    if notes.get(MADE, "") > made.id:
        return None
    return _changed(deployment, {**_notes(made), REMOVED: "true"}, 0)


def forgotten(deployments: Sequence[Json]) -> list[Json]:
    """The objects of a policy that were removed long ago and have no machines any more, the oldest first."""
    gone = [each for each in deployments if _annotations(each).get(REMOVED) and not _machines(each)]
    gone.sort(key=lambda each: _annotations(each).get(MADE, ""))
    return gone[: max(0, len(gone) - TOMBSTONES)]


def _machines(deployment: Json) -> int:
    return int((deployment.get("status") or {}).get("replicas") or 0)


def _notes(made: Made) -> dict[str, str]:
    return {MADE: made.id, GENERATION: str(made.generation), REQUEST: made.request}


def _is_later(notes: Mapping[str, str], made: Made) -> bool:
    generation = notes.get(GENERATION, "")
    return REMOVED in notes or (int(generation) if generation.isdecimal() else 0) > made.generation


def _changed(deployment: Json, notes: Mapping[str, str], replicas: int) -> Json | None:
    """The object keeps the resource version that was read, so that a change in between refuses the write."""
    kept = {name: value for name, value in _annotations(deployment).items() if name != REMOVED}
    if _annotations(deployment) == {**kept, **notes} and (deployment.get("spec") or {}).get("replicas") == replicas:
        return None
    changed = copy.deepcopy(deployment)
    changed["metadata"]["annotations"] = {**kept, **notes}
    changed["spec"]["replicas"] = replicas
    return changed


def _owned(deployment: Json, made: Made) -> Mapping[str, str]:
    """The annotations; Refused for an object that was not created for the target, which is never touched."""
    if _labels(deployment).get(TARGET) != made.target or MADE not in _annotations(deployment):
        raise Refused(f"MachineDeployment {made.target} is there already, and was not made for this target")
    return _annotations(deployment)


def _labels(item: Mapping[str, Any]) -> dict[str, str]:
    return dict((item.get("metadata") or {}).get("labels") or {})


def _annotations(item: Mapping[str, Any]) -> dict[str, str]:
    return dict((item.get("metadata") or {}).get("annotations") or {})
