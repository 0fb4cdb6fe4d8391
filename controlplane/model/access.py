"""Access: the subject of a call, the grants of a subject, and the stored records of tokens and bindings.

A subject is the authenticated caller. A grant gives a role, for the objects of all owners or of one owner. A token
brings grants of its own; bindings add grants to a subject or to all members of a group. The text of a token is shown
once, when the token is made: etcd holds only its digest.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from controlplane.model.bounds import Few, Line, Many, Name, TimeOrEmpty
from controlplane.model.object import Object, Part

PREFIX = "cp_"
# Of credentials that are made with the cluster key, and stored nowhere.
CLUSTER_KEY_PREFIX = "cpk_"
SECRET_BYTES = 32
_CHECKSUM_LENGTH = 8
_SECRET_LENGTH = 43
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Role(StrEnum):
    ADMIN = "admin"
    OPERATOR = "operator"
    SUBMITTER = "submitter"
    VIEWER = "viewer"
    JOBLET = "joblet"
    REPLICA = "replica"
    # Of a one-time token: trades itself for the credential of a joblet, and does nothing else.
    ENROLMENT = "enrolment"


# The roles that people give; replicas prove themselves with the cluster key, and enrolments are made by their command.
GIVEN_ROLES = tuple(role for role in Role if role not in (Role.REPLICA, Role.ENROLMENT))
_WORDS = frozenset(Role)
# The roles that may be bounded to the objects of one owner.
OWNER_ROLES = (Role.SUBMITTER, Role.VIEWER)


class Grant(msgspec.Struct, frozen=True, order=True):
    """A role. `owner` bounds the role to objects of that owner; empty for the role's own bounds."""

    role: Role
    owner: str = ""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The caller for whom a handler acts. Equal subjects have equal rights, so a subject may be part of a key.

    `targets` are those a joblet may speak for, and `driver` is the only driver it may use, '' for any. `via` is the
    credential: the identity of a token, or a word. `expires` is the end of the credential as a time stamp, '' for none.
    """

    name: str = ""
    groups: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    targets: tuple[str, ...] = ()
    driver: str = ""
    via: str = ""
    expires: str = ""

    @property
    def roles(self) -> tuple[Role, ...]:
        return tuple(dict.fromkeys(grant.role for grant in self.grants))

    def has(self, *roles: Role) -> bool:
        """Whether the subject has one of the roles, without a bound to an owner."""
        return any(grant.role in roles and not grant.owner for grant in self.grants)


# The caller of a plane without access control: everybody may do everything, and says who the owner is.
ANYONE = Subject(grants=(Grant(Role.ADMIN),), via="insecure")


class FormerToken(Part, frozen=True, kw_only=True):
    """The text that a token had before its present text: an enrolment token that was used, or a renewed credential."""

    digest: Line
    roles: Few[Line]
    expires: TimeOrEmpty = ""


class Token(Object, tag="Token", frozen=True, kw_only=True):
    """`config/tokens/<id>`. `digest` is that of the token's text; `owner` bounds the roles submitter and viewer, and
    owns the targets that a joblet creates.

    An enrolment token becomes the credential of a joblet under the same id, and every renewal changes the text of the
    credential: one key that is revoked at any time. `enrolled` and `renewed` say when; bindings add nothing to such a
    token.
    """

    id: Line
    subject: Line
    roles: Few[Line]
    owner: Line = ""
    groups: Few[Line] = ()
    targets: Many[Name] = ()
    driver: Line = ""
    digest: Line
    created: TimeOrEmpty = ""
    creator: Line = ""
    expires: TimeOrEmpty = ""
    enrolled: TimeOrEmpty = ""
    renewed: TimeOrEmpty = ""
    former: FormerToken | None = None

    @property
    def is_enrolment(self) -> bool:
        """Whether no joblet was enrolled with this enrolment token yet."""
        return Role.ENROLMENT in self.roles

    @property
    def takes_bindings(self) -> bool:
        return not (self.enrolled or self.is_enrolment)

    def digests(self) -> tuple[str, ...]:
        return (self.digest,) if self.former is None else (self.digest, self.former.digest)

    def grants(self) -> tuple[Grant, ...]:
        """The roles that this version knows."""
        known = (Role(role) for role in self.roles if role in _WORDS)
        bounded = (*OWNER_ROLES, Role.JOBLET) if self.enrolled else OWNER_ROLES
        return tuple(Grant(role, self.owner if role in bounded else "") for role in known)


class Binding(Object, tag="Binding", frozen=True, kw_only=True):
    """`config/bindings/<name>`: a role for a subject, or for every member of a group."""

    name: Name
    role: Line
    subject: Line = ""
    group: Line = ""
    owner: Line = ""
    created: TimeOrEmpty = ""
    creator: Line = ""

    def concerns(self, subject: str, groups: tuple[str, ...]) -> bool:
        return (bool(self.subject) and self.subject == subject) or (bool(self.group) and self.group in groups)

    def grant(self) -> Grant | None:
        """None for a role that this version does not know."""
        return Grant(Role(self.role), self.owner) if self.role in _WORDS else None


def token_text(secret: bytes) -> str:
    """The text of a token: a prefix to search leaks by, the secret, and a checksum against typing errors."""
    front = PREFIX + base64.urlsafe_b64encode(secret).decode().rstrip("=")
    return front + _checksum(front)


def looks_like_token(text: str) -> bool:
    """Whether the text can be a token at all: junk is refused without looking anywhere."""
    if len(text) != len(PREFIX) + _SECRET_LENGTH + _CHECKSUM_LENGTH or not text.isascii():
        return False
    return text.startswith(PREFIX) and _checksum(text[:-_CHECKSUM_LENGTH]) == text[-_CHECKSUM_LENGTH:]


def token_digest(text: str) -> str:
    """Tokens have 256 random bits: a plain digest cannot be guessed back."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def _checksum(front: str) -> str:
    return f"{zlib.crc32(front.encode()):0{_CHECKSUM_LENGTH}x}"


def administrators(
    tokens: Iterable[Token], bindings: Sequence[Binding], now: str
) -> Iterator[tuple[Token, Binding | None]]:
    """Usable tokens of administrators, longest-lived first; with a binding where that gives the role."""
    for token in sorted(tokens, key=lambda token: (token.expires == "", token.expires), reverse=True):
        if token.expires and token.expires <= now:
            continue
        if Role.ADMIN in token.roles:
            yield token, None
            continue
        for binding in bindings:
            if binding.role == Role.ADMIN and token.takes_bindings and binding.concerns(token.subject, token.groups):
                yield token, binding
                break
