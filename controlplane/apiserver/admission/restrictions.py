"""Restrictions: what the orders of a role may not ask for, by the settings, decided on orders as they are stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from controlplane.apiserver.admission import fields
from controlplane.model import nodes
from controlplane.model.access import Role, Subject
from controlplane.model.errors import Forbidden
from controlplane.model.job import Job
from controlplane.model.settings import Restriction, Settings

# The roles that submit orders, the most powerful first.
RESTRICTED_ROLES = (Role.ADMIN, Role.SUBMITTER)


class Demands(NamedTuple):
    """What the jobs of a packet ask for, as far as restrictions care."""

    policies: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()
    secrets: bool = False
    nodes: bool = False


NOTHING_SPECIAL = Demands()


def demands_of(jobs: Iterable[Job]) -> Demands:
    every = tuple(jobs)
    return Demands(
        frozenset(job.target_policy or "any" for job in every),
        frozenset(job.image for job in every if job.image),
        any(job.image_pull_secrets for job in every),
        any(job.tolerations or _chooses_nodes(job) for job in every),
    )


def _chooses_nodes(job: Job) -> bool:
    constraints = job.constraints
    return constraints is not None and any(
        nodes.is_of_node(constraint) for constraint in (*constraints.hard, *constraints.soft)
    )


def restriction_of(subject: Subject, settings: Settings) -> Restriction | None:
    """That of the most powerful role of the subject; None for a role without one, and on an open plane."""
    if not subject.name or not settings.restrictions:
        return None
    role = next((role for role in RESTRICTED_ROLES if role in subject.roles), None)
    return settings.restrictions.get(role) if role is not None else None


def check(
    restriction: Restriction | None, demands: Demands, *, priority: int, target_policy: str | None, preempts: bool
) -> None:
    """Forbidden, with the field, for an order that asks for more. `target_policy` overrides those of the jobs."""
    if restriction is None:
        return
    check_priority(restriction, priority)
    for policy in (target_policy,) if target_policy else sorted(demands.policies):
        check_policy(restriction, policy)
    if preempts and not restriction.preempts:
        raise Forbidden("preempts: orders of your role may not stop other work", field="preempts")
    for image in sorted(demands.images):
        if restriction.images and not image.startswith(restriction.images):
            allowed = ", ".join(restriction.images)
            raise Forbidden(f"packet: image {image!r} is not allowed for your role; allowed: {allowed}", field="packet")
    if demands.secrets and not restriction.secrets:
        raise Forbidden("packet: jobs of your role may not name image_pull_secrets", field="packet")
    if demands.nodes and not restriction.nodes:
        raise Forbidden("packet: jobs of your role may not choose nodes of a cluster or bear taints", field="packet")


def check_priority(restriction: Restriction | None, priority: int) -> None:
    if restriction is not None and restriction.max_priority and priority > restriction.max_priority:
        rule = f"must not be above {restriction.max_priority} for your role, but is {priority}"
        raise Forbidden(f"priority: {rule}", field="priority")


def check_policy(restriction: Restriction | None, policy: str) -> None:
    target = fields.target_of(policy, "target_policy")
    if restriction is None or target is None or not restriction.strict_targets:
        return
    if target not in restriction.strict_targets:
        allowed = ", ".join(restriction.strict_targets)
        rule = f"your role may name {allowed} in a strict policy, not {target!r}"
        raise Forbidden(f"target_policy: {rule}", field="target_policy")
