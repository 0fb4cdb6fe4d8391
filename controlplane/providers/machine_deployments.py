"""What a MachineDeployment has to be for a made target. Pure: the object as it is in, the object to write out.

Everything that decides whether a request is late stands in the object's annotations: which made target it is for, the
generation that was last asked for, and whether it was removed. What was removed stays, without machines, so that a late
request finds it and is refused; only the oldest of many are forgotten.
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
# How many of a policy's removed ones are remembered.
TOMBSTONES = 50


def replicas_of(made: Made) -> int:
    if made.cluster_api is None:
        raise Refused(f"{made.target} does not say what its machines are")
    return made.cluster_api.machines(made.capacity)


def new(template: Mapping[str, Any], made: Made) -> Json:
    """A copy of the template under the target's name, for the cluster of that name."""
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


def brought(found: Json, made: Made) -> Json | None:
    """The object as it has to be written; None when it is so already. StaleAttempt for a request that comes late."""
    notes = _owned(found, made)
    if notes.get(MADE, "") > made.id or (notes.get(MADE) == made.id and _is_later(notes, made)):
        raise StaleAttempt(f"{made.target} was changed by a later request than {made.request}")
    return _changed(found, _notes(made), replicas_of(made))


def removed(found: Json, made: Made) -> Json | None:
    """The object without machines; None when it is so already, or belongs to a later target of that name."""
    notes = _owned(found, made)
    if notes.get(MADE, "") > made.id:
        return None
    return _changed(found, {**_notes(made), REMOVED: "true"}, 0)


def forgotten(found: Sequence[Json]) -> list[Json]:
    """Of a policy's objects those that were removed long ago and have no machines any more, the oldest first."""
    gone = [one for one in found if _annotations(one).get(REMOVED) and not (one.get("status") or {}).get("replicas")]
    gone.sort(key=lambda one: _annotations(one).get(MADE, ""))
    return gone[: max(0, len(gone) - TOMBSTONES)]


def _notes(made: Made) -> dict[str, str]:
    return {MADE: made.id, GENERATION: str(made.generation), REQUEST: made.request}


def _is_later(notes: Mapping[str, str], made: Made) -> bool:
    known = notes.get(GENERATION, "")
    return REMOVED in notes or (int(known) if known.isdecimal() else 0) > made.generation


def _changed(found: Json, notes: Mapping[str, str], replicas: int) -> Json | None:
    """With the resource version that was read, so that a change in between refuses the write."""
    there = {name: value for name, value in _annotations(found).items() if name != REMOVED}
    if _annotations(found) == {**there, **notes} and (found.get("spec") or {}).get("replicas") == replicas:
        return None
    changed = copy.deepcopy(found)
    changed["metadata"]["annotations"] = {**there, **notes}
    changed["spec"]["replicas"] = replicas
    return changed


def _owned(found: Json, made: Made) -> Mapping[str, str]:
    """What is not ours is never touched."""
    if _labels(found).get(TARGET) != made.target or MADE not in _annotations(found):
        raise Refused(f"MachineDeployment {made.target} is there already, and was not made for this target")
    return _annotations(found)


def _labels(of: Mapping[str, Any]) -> dict[str, str]:
    return dict((of.get("metadata") or {}).get("labels") or {})


def _annotations(of: Mapping[str, Any]) -> dict[str, str]:
    return dict((of.get("metadata") or {}).get("annotations") or {})
