"""Authorisation: one table of every method, and one pure function that decides.

`RIGHTS` names the verb and the kind of every method of every service; a method without a row fails the start of the
replica. `refusal` decides for a subject, a verb, a kind and, where the kind has owners, the owner of the object. The
edge asks once before the request is read (may this subject ever do this?); commands and queries ask again for each
object, after merging and resolving, so that no envelope hides a foreign object.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from controlplane.model.access import OWNER_ROLES, Grant, Role, Subject
from controlplane.model.errors import Broken, Forbidden


class Verb(StrEnum):
    READ = "read"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    # Of the plane itself: step down, end a restore.
    OPERATE = "operate"
    # A joblet for its targets.
    CONNECT = "connect"
    # Enrol a joblet for targets, and renew the credential that came of it.
    ENROL = "enrol"
    RENEW = "renew"
    # A replica for another replica.
    RELAY = "relay"
    # Any authenticated subject.
    ASK = "ask"
    # Any caller, also without credentials.
    OPEN = "open"


# Objects that belong to an owner, and are seen and changed by the owner only.
OWNED = frozenset({"Order", "Job", "Packet", "Resource", "Fulfilment", "Event"})
# Objects of the plane, changed by operators.
_OPERATED = frozenset({"Target", "Rule", "ScalePolicy", "Secret", "Settings", "Cluster", "Enrolment"})
# Objects of the plane that every subject with a role may read. Anybody may have an account at an issuer outside, and
# without a role such a subject is told its own rights and nothing else.
_SHARED = frozenset({"Target", "Term", "Cluster"})
# Objects of the plane that show the work of all owners.
_OVERALL = frozenset({"Cycle", "Rule", "ScalePolicy", "Secret", "Settings", "Totals", "Hash"})
# Who may call: for administrators alone.
_ACCESS = frozenset({"Token", "Binding"})
_WRITES = frozenset({Verb.CREATE, Verb.UPDATE, Verb.DELETE})
_MUTATING = _WRITES | {Verb.OPERATE, Verb.ENROL, Verb.RENEW}
ANY_KIND = "*"


class Right(NamedTuple):
    """`mutates`: a call is written to the audit log."""

    verb: Verb
    kind: str

    @property
    def mutates(self) -> bool:
        return self.verb in _MUTATING


def refusal(subject: Subject, verb: Verb, kind: str, owner: str | None = None, target: str = "") -> str:
    """The rule by which the subject is refused, '' when allowed.

    Without an owner the question is whether the subject may do this for any owner; `target` matters to joblets only.
    """
    if Role.ENROLMENT in subject.roles:
        enrols = verb is Verb.ENROL and kind == "Target" and (not target or target in subject.targets)
        return "" if enrols else _sentence(subject, verb, kind, owner, target)
    if verb in (Verb.ASK, Verb.OPEN) or (verb is Verb.READ and kind in _SHARED and subject.grants):
        return ""
    if any(_allows(subject, grant, verb, kind, owner) for grant in subject.grants):
        return ""
    if Role.JOBLET in subject.roles and _is_joblets_right(subject, verb, kind, target):
        return ""
    return _sentence(subject, verb, kind, owner, target)


def check(
    subject: Subject, verb: Verb, kind: str, owner: str | None = None, *, field: str = "", target: str = ""
) -> None:
    """Forbidden, with the rule, when the subject is refused."""
    rule = refusal(subject, verb, kind, owner, target)
    if rule:
        raise Forbidden(f"{field}: {rule}" if field else rule, field=field)


def sees(subject: Subject, kind: str, owner: str) -> bool:
    """Whether an object of that owner exists at all for the subject."""
    return not refusal(subject, Verb.READ, kind, owner)


def visible_owners(subject: Subject) -> frozenset[str] | None:
    """The owners whose objects the subject may read; None for all."""
    if subject.has(Role.ADMIN, Role.OPERATOR, Role.VIEWER):
        return None
    return frozenset(grant.owner or subject.name for grant in subject.grants if grant.role in OWNER_ROLES)


def owner_for(subject: Subject, wished: str, stored: str = "") -> str:
    """The owner of an object that the subject creates or changes: never just what the request says.

    `stored` is the owner of an existing object, which stays unless an administrator names another. On an open plane
    there is no subject to go by, and the request is believed.
    """
    if not subject.name or (wished and subject.has(Role.ADMIN)):
        return wished or stored
    own = stored or _own_name(subject)
    if wished in ("", own):
        return own
    if not stored and Grant(Role.SUBMITTER, wished) in subject.grants:
        return wished
    raise Forbidden(f"owner: must be {own!r}; only an administrator may name another", field="owner")


def creator_for(subject: Subject, wished: str) -> str:
    """Who creates an object: the subject. An administrator may name another."""
    if not subject.name or (wished and subject.has(Role.ADMIN)):
        return wished
    return Role.JOBLET if subject.roles == (Role.JOBLET,) else subject.name


def _own_name(subject: Subject) -> str:
    """The owner of what the subject makes, which is its own name. A joblet makes targets for the owner named in its
    credential, and a subject that may submit for one other owner only submits for that owner.
    """
    if subject.roles == (Role.JOBLET,):
        return subject.grants[0].owner or subject.name
    owners = {grant.owner or subject.name for grant in subject.grants if grant.role is Role.SUBMITTER}
    return owners.pop() if len(owners) == 1 else subject.name


def _allows(subject: Subject, grant: Grant, verb: Verb, kind: str, owner: str | None) -> bool:
    """Whether the grant alone allows it. What joblets may do hangs on their targets, and is decided apart."""
    writes = verb in _WRITES
    match grant.role:
        case Role.ADMIN:
            return verb is not Verb.RELAY
        case Role.REPLICA:
            return verb is Verb.RELAY or (verb is Verb.OPERATE and kind == "Cluster")
        case Role.OPERATOR if verb is Verb.READ:
            return kind not in _ACCESS
        case Role.OPERATOR:
            operates = kind in _OPERATED and (writes or verb is Verb.OPERATE)
            return operates or (kind == ANY_KIND and writes) or (kind == "Target" and verb is Verb.ENROL)
        case Role.VIEWER if not grant.owner:
            return verb is Verb.READ and kind in OWNED | _OVERALL
        case Role.VIEWER:
            return verb is Verb.READ and kind in OWNED and owner in (None, grant.owner)
        case Role.SUBMITTER:
            own = (verb is Verb.READ and kind in OWNED) or (writes and kind in OWNED | {ANY_KIND})
            return own and owner in (None, grant.owner or subject.name)
    return False


def _is_joblets_right(subject: Subject, verb: Verb, kind: str, target: str) -> bool:
    own = verb in (Verb.CONNECT, Verb.CREATE, Verb.RENEW)
    return kind == "Target" and own and (not target or target in subject.targets)


def _sentence(subject: Subject, verb: Verb, kind: str, owner: str | None, target: str) -> str:
    roles = ", ".join(subject.roles) or "no role"
    about = f" {target!r}" if target else f" of {owner!r}" if owner else ""
    what = "anything" if kind == ANY_KIND else kind.lower()
    return f"{subject.name!r} ({roles}) may not {verb} {what}{about}"


def _named(service: str, kind: str) -> dict[str, Right]:
    read = Right(Verb.READ, kind)
    return {
        f"{service}.Get": read,
        f"{service}.List": read,
        f"{service}.Watch": read,
        f"{service}.Create": Right(Verb.CREATE, kind),
        f"{service}.Update": Right(Verb.UPDATE, kind),
        f"{service}.Delete": Right(Verb.DELETE, kind),
    }


def _all(right: Right, *methods: str) -> dict[str, Right]:
    return dict.fromkeys(methods, right)


_V1: Mapping[str, Right] = {
    **_named("Jobs", "Job"),
    **_named("Packets", "Packet"),
    **_named("Resources", "Resource"),
    **_named("Targets", "Target"),
    **_named("Rules", "Rule"),
    **_named("ScalePolicies", "ScalePolicy"),
    **_named("Secrets", "Secret"),
    **_all(Right(Verb.READ, "Order"), "Orders.Get", "Orders.List", "Orders.ListTasks", "Orders.Watch", "Orders.Logs",
           "Orders.Explain"),
    **_all(Right(Verb.CREATE, "Order"), "Orders.Create", "Orders.Submit", "Orders.SubmitBatch", "Orders.Plan"),
    **_all(Right(Verb.UPDATE, "Order"), "Orders.Cancel", "Orders.Pause", "Orders.Resume", "Orders.Update",
           "Orders.CancelTasks", "Orders.MoveTask", "Orders.ReleaseTasks"),
    **_all(Right(Verb.DELETE, "Order"), "Orders.Delete"),
    **_all(Right(Verb.READ, "Fulfilment"), "Fulfilments.Get", "Fulfilments.List", "Fulfilments.Watch"),
    **_all(Right(Verb.READ, "Event"), "Events.Get", "Events.List", "Events.Watch"),
    **_all(Right(Verb.READ, "Cycle"), "Cycles.Get", "Cycles.List", "Cycles.Watch"),
    **_all(Right(Verb.READ, "Cluster"), "Cluster.Status"),
    **_all(Right(Verb.READ, "Term"), "Cluster.GetLeader", "Cluster.WatchLeader", "Cluster.ListTerms",
           "Cluster.WatchTerms"),
    **_all(Right(Verb.OPERATE, "Cluster"), "Cluster.StepDown", "Cluster.EndRestore"),
    # Of a subject who sees the orders of some owners: the totals of those orders.
    **_all(Right(Verb.READ, "Order"), "Cluster.GetTotals", "Cluster.WatchTotals"),
    **_all(Right(Verb.READ, "Hash"), "Cluster.Hash"),
    **_all(Right(Verb.CREATE, ANY_KIND), "Cluster.Apply"),
    **_all(Right(Verb.READ, "Settings"), "Cluster.GetSettings"),
    **_all(Right(Verb.UPDATE, "Settings"), "Cluster.UpdateSettings"),
    **_all(Right(Verb.RELAY, "Log"), "Logs.Read"),
    **_all(Right(Verb.CONNECT, "Target"), "Joblets.Connect"),
    **_all(Right(Verb.CREATE, "Token"), "Access.CreateToken"),
    **_all(Right(Verb.READ, "Token"), "Access.ListTokens"),
    **_all(Right(Verb.DELETE, "Token"), "Access.RevokeToken"),
    **_all(Right(Verb.CREATE, "Enrolment"), "Access.CreateEnrolment"),
    **_all(Right(Verb.ENROL, "Target"), "Access.Enrol"),
    **_all(Right(Verb.RENEW, "Target"), "Access.Renew"),
    **_all(Right(Verb.CREATE, "Binding"), "Access.Grant"),
    **_all(Right(Verb.READ, "Binding"), "Access.ListBindings"),
    **_all(Right(Verb.DELETE, "Binding"), "Access.Ungrant"),
    **_all(Right(Verb.ASK, "Subject"), "Access.WhoAmI", "Access.CanI"),
}  # fmt: skip
# Every method by its full name.
RIGHTS: Mapping[str, Right] = {
    **{f"controlplane.v1.{name}": right for name, right in _V1.items()},
    **_all(Right(Verb.OPEN, "Health"), "grpc.health.v1.Health.Check", "grpc.health.v1.Health.Watch",
           "grpc.health.v1.Health.List"),
    "grpc.reflection.v1alpha.ServerReflection.ServerReflectionInfo": Right(Verb.ASK, "Reflection"),
}  # fmt: skip


def right_of(method: str) -> Right:
    """Broken for a method without a row: it must not be served."""
    right = RIGHTS.get(method)
    if right is None:
        raise Broken(f"{method} has no row in the table of rights")
    return right
