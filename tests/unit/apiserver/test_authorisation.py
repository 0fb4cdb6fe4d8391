"""Authorisation: every combination of role, verb, kind and owner, against rules that are written down here anew."""

from __future__ import annotations

import itertools

import pytest

from controlplane.apiserver import authorisation
from controlplane.apiserver.authorisation import ANY_KIND, RIGHTS, Verb
from controlplane.model.access import ANYONE, Grant, Role, Subject
from controlplane.model.errors import Broken, Forbidden

OWNED = {"Order", "Job", "Packet", "Resource", "Fulfilment", "Event"}
SHARED = {"Target", "Term", "Cluster"}
OF_ALL_OWNERS = {"Cycle", "Rule", "ScalePolicy", "Secret", "Settings", "Totals", "Hash"}
OPERATED = {"Target", "Rule", "ScalePolicy", "Secret", "Settings", "Cluster", "Enrolment"}
OF_ADMINISTRATORS = {"Token", "Binding"}
OTHER = {"Log", "Subject", "Reflection", ANY_KIND}
KINDS = sorted(OWNED | SHARED | OF_ALL_OWNERS | OPERATED | OF_ADMINISTRATORS | OTHER)
WRITES = {Verb.CREATE, Verb.UPDATE, Verb.DELETE}
OWNERS = (None, "", "ada", "bob", "team")
GRANTS = [
    *(Grant(role) for role in Role),
    *(Grant(role, owner) for role in (Role.SUBMITTER, Role.VIEWER) for owner in ("ada", "team")),
]


def ada(*grants: Grant, targets: tuple[str, ...] = ()) -> Subject:
    return Subject(name="ada", grants=grants, targets=targets)


def is_allowed(grant: Grant, verb: Verb, kind: str, owner: str | None) -> bool:
    """The rules of the design, for ada with one grant. `owner` None: for any owner at all."""
    if grant.role is Role.ENROLMENT:
        return verb is Verb.ENROL and kind == "Target"
    if verb in (Verb.ASK, Verb.OPEN):
        return True
    if verb is Verb.READ and kind in SHARED:
        return True
    within_bounds = owner is None or owner == (grant.owner or "ada")
    match grant.role:
        case Role.ADMIN:
            return verb is not Verb.RELAY
        case Role.OPERATOR if verb is Verb.READ:
            return kind not in OF_ADMINISTRATORS
        case Role.OPERATOR if verb is Verb.OPERATE:
            return kind in OPERATED
        case Role.OPERATOR if verb is Verb.ENROL:
            return kind == "Target"
        case Role.OPERATOR:
            return verb in WRITES and kind in OPERATED | {ANY_KIND}
        case Role.VIEWER if not grant.owner:
            return verb is Verb.READ and kind in OWNED | OF_ALL_OWNERS
        case Role.VIEWER:
            return verb is Verb.READ and kind in OWNED and within_bounds
        case Role.SUBMITTER if verb is Verb.READ:
            return kind in OWNED and within_bounds
        case Role.SUBMITTER:
            return verb in WRITES and kind in OWNED | {ANY_KIND} and within_bounds
        case Role.JOBLET:
            return kind == "Target" and verb in (Verb.CONNECT, Verb.CREATE, Verb.RENEW)
        case Role.REPLICA:
            return verb is Verb.RELAY or (verb is Verb.OPERATE and kind == "Cluster")
    raise AssertionError(grant)


@pytest.mark.parametrize("grant", GRANTS, ids=lambda grant: f"{grant.role}-{grant.owner or 'all'}")
def test_a_grant_allows_what_its_rule_says_and_nothing_else(grant: Grant) -> None:
    subject = ada(grant)
    for verb, kind, owner in itertools.product(Verb, KINDS, OWNERS):
        refusal = authorisation.refusal(subject, verb, kind, owner)
        assert (refusal == "") is is_allowed(grant, verb, kind, owner), (verb, kind, owner, refusal)


def test_a_subject_with_two_grants_may_do_what_either_allows() -> None:
    """Except with an enrolment token, which only enrols, whatever else its subject may do."""
    for first, second in itertools.combinations(GRANTS, 2):
        subject = ada(first, second)
        for verb, kind, owner in itertools.product(Verb, KINDS, OWNERS):
            only = next((grant for grant in (first, second) if grant.role is Role.ENROLMENT), None)
            allowed = any(is_allowed(grant, verb, kind, owner) for grant in ((only,) if only else (first, second)))
            assert (authorisation.refusal(subject, verb, kind, owner) == "") is allowed, (first, second, verb, kind)


def test_without_a_grant_a_subject_may_only_ask_about_itself() -> None:
    for verb, kind, owner in itertools.product(Verb, KINDS, OWNERS):
        allowed = verb in (Verb.ASK, Verb.OPEN)
        assert (authorisation.refusal(ada(), verb, kind, owner) == "") is allowed, (verb, kind, owner)


def test_every_kind_of_the_table_of_rights_is_in_this_table() -> None:
    assert {right.kind for right in RIGHTS.values()} - {"Health"} <= set(KINDS)


def test_an_enrolment_token_enrols_for_its_own_targets() -> None:
    subject = ada(Grant(Role.ENROLMENT), targets=("here",))
    assert authorisation.refusal(subject, Verb.ENROL, "Target", target="here") == ""
    assert "'there'" in authorisation.refusal(subject, Verb.ENROL, "Target", target="there")


@pytest.mark.parametrize("verb", [Verb.CONNECT, Verb.CREATE, Verb.RENEW])
def test_a_joblet_is_refused_for_a_target_that_its_credential_does_not_name(verb: Verb) -> None:
    joblet = ada(Grant(Role.JOBLET), targets=("here",))
    assert authorisation.refusal(joblet, verb, "Target", target="here") == ""
    assert "'there'" in authorisation.refusal(joblet, verb, "Target", target="there")
    assert authorisation.refusal(ada(Grant(Role.JOBLET)), verb, "Target", target="here")


def test_a_refusal_names_the_subject_its_roles_and_the_rule() -> None:
    with pytest.raises(Forbidden, match=r"^owner: 'ada' \(submitter\) may not delete job of 'bob'$") as raised:
        authorisation.check(ada(Grant(Role.SUBMITTER)), Verb.DELETE, "Job", "bob", field="owner")
    assert raised.value.field == "owner"


@pytest.mark.parametrize("grant", GRANTS, ids=lambda grant: f"{grant.role}-{grant.owner or 'all'}")
def test_the_visible_owners_are_those_whose_objects_may_be_read(grant: Grant) -> None:
    subject = ada(grant)
    owners = authorisation.visible_owners(subject)
    for kind, owner in itertools.product(OWNED, OWNERS[1:]):
        assert authorisation.sees(subject, kind, str(owner)) is (owners is None or owner in owners), (kind, owner)


@pytest.mark.parametrize(
    ("grants", "owners"),
    [
        ((Grant(Role.ADMIN),), None),
        ((Grant(Role.OPERATOR),), None),
        ((Grant(Role.VIEWER),), None),
        ((Grant(Role.SUBMITTER), Grant(Role.VIEWER)), None),
        ((Grant(Role.SUBMITTER),), {"ada"}),
        ((Grant(Role.SUBMITTER, "team"),), {"team"}),
        ((Grant(Role.SUBMITTER), Grant(Role.VIEWER, "library")), {"ada", "library"}),
        ((Grant(Role.JOBLET, "bob"),), set()),
        ((Grant(Role.REPLICA),), set()),
        ((), set()),
    ],
)
def test_visible_owners(grants: tuple[Grant, ...], owners: set[str] | None) -> None:
    assert authorisation.visible_owners(ada(*grants)) == owners


ADMIN, SUBMITTER = ada(Grant(Role.ADMIN)), ada(Grant(Role.SUBMITTER))
FOR_TEAM = ada(Grant(Role.SUBMITTER, "team"))
FOR_BOTH = ada(Grant(Role.SUBMITTER), Grant(Role.SUBMITTER, "team"))
READS_TEAM = ada(Grant(Role.SUBMITTER), Grant(Role.VIEWER, "team"))
JOBLET = ada(Grant(Role.JOBLET, "bob"))
PLAIN_JOBLET = ada(Grant(Role.JOBLET))
# The owner of an object: by subject, the owner that the request names, and the owner of the stored object.
OWNER_OF = [
    (ADMIN, "", "", "ada"),
    (ADMIN, "bob", "", "bob"),
    (ADMIN, "", "bob", "bob"),
    (ADMIN, "carl", "bob", "carl"),
    (SUBMITTER, "", "", "ada"),
    (SUBMITTER, "ada", "", "ada"),
    (SUBMITTER, "bob", "", None),
    (SUBMITTER, "", "ada", "ada"),
    (SUBMITTER, "bob", "ada", None),
    (SUBMITTER, "ada", "bob", None),
    (SUBMITTER, "", "bob", "bob"),
    (FOR_TEAM, "", "", "team"),
    (FOR_TEAM, "team", "", "team"),
    (FOR_TEAM, "ada", "", None),
    (FOR_BOTH, "", "", "ada"),
    (FOR_BOTH, "team", "", "team"),
    (FOR_BOTH, "team", "ada", None),
    (FOR_BOTH, "bob", "", None),
    (READS_TEAM, "team", "", None),
    (JOBLET, "", "", "bob"),
    (JOBLET, "carl", "", None),
    (PLAIN_JOBLET, "", "", "ada"),
    (ANYONE, "bob", "", "bob"),
    (ANYONE, "", "bob", "bob"),
    (ANYONE, "", "", ""),
]


@pytest.mark.parametrize(("subject", "wished", "stored", "owner"), OWNER_OF)
def test_the_owner_comes_from_the_subject(subject: Subject, wished: str, stored: str, owner: str | None) -> None:
    if owner is not None:
        assert authorisation.owner_for(subject, wished, stored) == owner
        return
    with pytest.raises(Forbidden) as raised:
        authorisation.owner_for(subject, wished, stored)
    assert raised.value.field == "owner"


@pytest.mark.parametrize(
    ("subject", "wished", "creator"),
    [
        (ADMIN, "", "ada"),
        (ADMIN, "bob", "bob"),
        (SUBMITTER, "", "ada"),
        (SUBMITTER, "bob", "ada"),
        (FOR_TEAM, "team", "ada"),
        (JOBLET, "bob", "joblet"),
        (ada(Grant(Role.JOBLET), Grant(Role.SUBMITTER)), "bob", "ada"),
        (ANYONE, "bob", "bob"),
        (ANYONE, "", ""),
    ],
)
def test_the_creator_is_the_subject(subject: Subject, wished: str, creator: str) -> None:
    assert authorisation.creator_for(subject, wished) == creator


def test_a_method_without_a_row_has_no_right() -> None:
    with pytest.raises(Broken, match=r"v1\.Jobs\.Steal has no row"):
        authorisation.right_of("controlplane.v1.Jobs.Steal")
