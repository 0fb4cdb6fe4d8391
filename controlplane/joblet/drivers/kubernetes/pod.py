"""A fulfilment as a Pod: built field by field from admitted fields, never from a pod spec that a user wrote.

The name of the pod follows from the fulfilment, so that a second create is refused as "already exists"; annotations
name the task of each container, so that a joblet that starts anew knows the pods it sees. Pure; a Pod is the plain JSON
of the API.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from controlplane.joblet.drivers.kubernetes.cluster_quantities import NAMES, in_cluster
from controlplane.joblet.drivers.kubernetes.node_affinity import affinity_of, tolerations_of
from controlplane.joblet.environment import environment_of, expand
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Fulfilment, TaskRef, TaskSpec

FULFILMENT, ORDER, TARGET, JOB = (
    "controlplane/fulfilment",
    "controlplane/order",
    "controlplane/target",
    "controlplane/job",
)
CLUSTER = "controlplane/cluster"
MANAGED_BY, MANAGER = "app.kubernetes.io/managed-by", "controlplane"
TASKS, CYCLE, EPOCH, OWNER = "controlplane/tasks", "controlplane/cycle", "controlplane/epoch", "controlplane/owner"
NAMED_TARGET = "controlplane/target-name"
ARTEFACTS_PATH = "/dev/termination-log"
PROGRESS_PATH = "/controlplane/progress"
_SCRATCH, _FILES = "controlplane", "files"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_REFS = msgspec.json.Decoder(tuple[TaskRef, ...])


@dataclass(frozen=True, slots=True)
class PodDefaults:
    """The fields that all pods of a target share, their namespace among them.

    `security` is `restricted` (as the pod security standard of that name) or `baseline`, which lets images run as root.
    `cluster` is the identity of the plane's etcd, empty while unknown.
    """

    namespace: str = "default"
    pull_secrets: tuple[str, ...] = ()
    grace_seconds: int = 30
    security: str = "restricted"
    run_as_user: int | None = None
    names: Mapping[str, str] = field(default_factory=lambda: NAMES)
    cluster: str = ""


def name_of(fulfilment_id: str) -> str:
    return f"cp-{fulfilment_id.lower()}"


def label_value(text: str) -> str:
    """The text itself where a label may have that value, else a digest of the text."""
    if _LABEL_VALUE.fullmatch(text):
        return text
    return f"x-{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def selector_of(target: str) -> str:
    """Selects the pods and Secrets of this target."""
    return f"{MANAGED_BY}={MANAGER},{TARGET}={label_value(target)}"


def is_foreign(pod: Mapping[str, Any], cluster: str) -> bool:
    """Whether the pod is that of another plane, with another etcd, whose target has the same name.

    A pod without the label, of an earlier version, is not foreign; nor is any pod while the own etcd is unknown.
    """
    label = ((pod.get("metadata") or {}).get("labels") or {}).get(CLUSTER, "")
    return bool(label and cluster) and label != label_value(cluster)


def container_of(position: int) -> str:
    """The name of the container that runs the task at this position of its fulfilment."""
    return f"task-{position}"


def pod_of(fulfilment: Fulfilment, defaults: PodDefaults) -> dict[str, Any]:
    """Raises Invalid, naming the field, for a fulfilment that cannot be a pod: a task has no image."""
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": defaults.grace_seconds,
        "securityContext": _pod_security(defaults),
        "containers": [_container(fulfilment, defaults, position) for position in range(len(fulfilment.tasks))],
        "volumes": _volumes(fulfilment),
    }
    specs = [fulfilment.jobs[job] for job in dict.fromkeys(task.job for task in fulfilment.tasks)]
    limits = [each.time_limit for each in specs]
    if all(limit is not None for limit in limits):
        spec["activeDeadlineSeconds"] = max(1, math.ceil(max(limit for limit in limits if limit is not None)))
    if affinity := affinity_of(each.nodes for each in specs):
        spec["affinity"] = {"nodeAffinity": affinity}
    if tolerations := tolerations_of(each.tolerations for each in specs):
        spec["tolerations"] = tolerations
    pulls = dict.fromkeys([*defaults.pull_secrets, *(name for each in specs for name in each.image_pull_secrets)])
    if pulls:
        spec["imagePullSecrets"] = [{"name": name} for name in pulls]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(fulfilment, defaults), "spec": spec}


def files_of(fulfilment: Fulfilment, defaults: PodDefaults) -> dict[str, Any] | None:
    """The Secret with the files that are mounted into the pod's containers, if the jobs have files."""
    content = _files(fulfilment)
    if not content:
        return None
    data = {key: base64.b64encode(text.encode()).decode() for (_, text), key in content.items()}
    metadata = _metadata(fulfilment, defaults)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": metadata,
        "data": data,
    }


def refs_of(pod: Mapping[str, Any]) -> tuple[TaskRef, ...]:
    """The attempts of the pod's containers, in their order; none when the annotation is missing or unreadable."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    try:
        return _REFS.decode(annotations.get(TASKS, "[]"))
    except msgspec.DecodeError:
        return ()


def _metadata(fulfilment: Fulfilment, defaults: PodDefaults) -> dict[str, Any]:
    jobs = {task.job for task in fulfilment.tasks}
    labels = {
        MANAGED_BY: MANAGER,
        FULFILMENT: label_value(fulfilment.id),
        ORDER: label_value(fulfilment.order),
        TARGET: label_value(fulfilment.target),
    }
    if defaults.cluster:
        labels[CLUSTER] = label_value(defaults.cluster)
    if len(jobs) == 1:
        labels[JOB] = label_value(next(iter(jobs)))
    annotations = {
        TASKS: msgspec.json.encode(fulfilment.tasks).decode(),
        CYCLE: str(fulfilment.cycle),
        EPOCH: str(fulfilment.epoch),
        NAMED_TARGET: fulfilment.target,
        OWNER: fulfilment.owner,
    }
    return {
        "name": name_of(fulfilment.id),
        "namespace": defaults.namespace,
        "labels": labels,
        "annotations": {name: value for name, value in annotations.items() if value},
    }


def _container(fulfilment: Fulfilment, defaults: PodDefaults, position: int) -> dict[str, Any]:
    task = fulfilment.tasks[position]
    spec = fulfilment.jobs.get(task.job)
    if spec is None or not spec.image:
        raise Invalid("image", f"job {task.job} names none, and a cluster runs nothing without")
    environment = {
        **environment_of(fulfilment, task),
        "CONTROLPLANE_PROGRESS": PROGRESS_PATH,
        "CONTROLPLANE_ARTEFACTS": ARTEFACTS_PATH,
    }
    amounts = in_cluster(spec.requests, defaults.names)
    container: dict[str, Any] = {
        "name": container_of(position),
        "image": spec.image,
        "env": [{"name": name, "value": _literal(value)} for name, value in sorted(environment.items())],
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "terminationMessagePath": ARTEFACTS_PATH,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": _mounts(fulfilment, spec, position),
    }
    if spec.command:
        container["command"] = [_literal(part) for part in expand(spec.command, environment)]
    return container


def _literal(text: str) -> str:
    """The cluster would replace `$(NAME)` once more, by rules of its own; it reads a doubled dollar as a dollar."""
    return text.replace("$", "$$")


def _pod_security(defaults: PodDefaults) -> dict[str, Any]:
    context: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if defaults.security == "restricted":
        context["runAsNonRoot"] = True
    if defaults.run_as_user is not None:
        context["runAsUser"] = defaults.run_as_user
    return context


def _files(fulfilment: Fulfilment) -> dict[tuple[str, str], str]:
    """Keys of the secret by path and content."""
    specs = [fulfilment.jobs[job] for job in sorted(fulfilment.jobs)]
    wanted = dict.fromkeys(item for spec in specs for item in sorted(spec.files.items()))
    return {item: f"file-{number}" for number, item in enumerate(wanted)}


def _volumes(fulfilment: Fulfilment) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [{"name": _SCRATCH, "emptyDir": {"sizeLimit": "1Mi"}}]
    if _files(fulfilment):
        secret = {"secretName": name_of(fulfilment.id), "defaultMode": 0o444}
        volumes.append({"name": _FILES, "secret": secret})
    return volumes


def _mounts(fulfilment: Fulfilment, spec: TaskSpec, position: int) -> list[dict[str, Any]]:
    """A scratch folder for each container, and its files, mounted one by one, so that no other file is hidden."""
    scratch = {"name": _SCRATCH, "mountPath": "/controlplane", "subPath": container_of(position)}
    keys = _files(fulfilment)
    files = [
        {"name": _FILES, "mountPath": path, "subPath": keys[path, text], "readOnly": True}
        for path, text in sorted(spec.files.items())
    ]
    return [scratch, *files]
