"""Enrolment: a one-time token becomes the credential of a joblet, and the joblet renews its credential.

The joblet makes the text of its credential and sends the digest. An enrolment token and the credential that comes of it
are one record in etcd: the enrolment replaces the record, comparing its revision, so that of two joblets with one token
exactly one is enrolled. A repeated request finds its own digest in the record and has the same answer. A renewal
replaces the digest the same way; the former text stays good for a short while.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from msgspec.structs import replace

from controlplane.apiserver import authorisation
from controlplane.apiserver.admission import fields, named_admission
from controlplane.apiserver.admission.order_admission import DEFAULT_OWNER
from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.authorisation import Verb
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.access_commands import MadeToken
from controlplane.apiserver.commands.guarded_writes import check_room, write_until_answered
from controlplane.apiserver.commands.named_objects import NamedObjects, key_of
from controlplane.cache.effective_settings import settings_of
from controlplane.model import credential, identity, times
from controlplane.model.access import (
    SECRET_BYTES,
    FormerToken,
    Grant,
    Role,
    Subject,
    Token,
    is_digest,
    token_digest,
    token_text,
)
from controlplane.model.driver_traits import DRIVERS
from controlplane.model.errors import (
    AlreadyExists,
    Conflict,
    ControlPlaneError,
    Forbidden,
    IllegalTransition,
    Invalid,
    Unauthenticated,
)
from controlplane.model.event import About, Happening, Record
from controlplane.model.target import Target
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item, Value

_TRIES = 5
# An event for each target of a small joblet; a joblet of many simulated targets is told of once.
_MOST_EVENTS = 10
_NOT_ENROLLED = "only the credential of an enrolled joblet is renewed"


class EnrolmentWish(NamedTuple):
    targets: tuple[str, ...]
    driver: str = ""
    owner: str = ""
    expires_seconds: float = 0.0


class JobletWish(NamedTuple):
    """`template` is the target that is created, under each name that does not exist."""

    targets: tuple[str, ...]
    driver: str
    digest: str
    id: str
    template: Target


class Credential(NamedTuple):
    token: Token
    revision: int
    renew_after_seconds: float
    former_seconds: float


class EnrolmentCommands:
    def __init__(
        self,
        reads: Reads,
        writes: Writes,
        named: NamedObjects,
        *,
        chance: Callable[[int], bytes],
        record: Record,
    ) -> None:
        self._reads = reads
        self._writes = writes
        self._named = named
        self._chance = chance
        self._record = record

    async def create(self, call: Call, wish: EnrolmentWish) -> MadeToken:
        """A one-time token with which a joblet is enrolled for the targets."""
        check_enrolment(wish)
        check_room(self._writes)
        now = self._writes.clock.wall()
        text = token_text(self._chance(SECRET_BYTES))
        seconds = wish.expires_seconds or credential.ENROLMENT_SECONDS
        token = Token(
            id=self._writes.mint.make(),
            subject=subject_name(wish.targets),
            roles=(Role.ENROLMENT,),
            owner=authorisation.owner_for(call.subject, wish.owner),
            targets=wish.targets,
            driver=wish.driver,
            digest=token_digest(text),
            created=times.show(now),
            creator=call.subject.name,
            expires=times.show(now + timedelta(seconds=seconds)),
        )
        item = transaction.create_item(_key(token.id), codec.encode(token))
        outcome, _ = await write_until_answered(self._writes, item)
        # After a lost answer the token may be there already: its identity is this call's alone.
        return MadeToken(token, text, outcome.revision)

    async def enrol(self, call: Call, wish: JobletWish) -> Credential:
        """The credential of the joblet, with its targets in place."""
        check_joblet(wish)
        for name in wish.targets:
            authorisation.check(call.subject, Verb.ENROL, "Target", field="targets", target=name)
        if call.subject.driver and call.subject.driver != wish.driver:
            raise Forbidden(f"driver: the token enrols joblets of driver {call.subject.driver}", field="driver")
        self._fit(wish)
        template = await self._admitted(call.subject, wish)
        check_room(self._writes)
        by_token = Role.ENROLMENT in call.subject.roles
        token, revision = await (self._use_up(call.subject, wish) if by_token else self._begin(call.subject, wish))
        await self._create_targets(token, template)
        return self._answer(token, revision)

    async def renew(self, call: Call, digest: str) -> Credential:
        """The credential with the text of this digest."""
        if not is_digest(digest):
            raise Invalid("digest", "must be 64 hexadecimal digits: the SHA-256 of the next credential")
        if not _is_token(call.subject):
            raise IllegalTransition(_NOT_ENROLLED)
        check_room(self._writes)
        for _ in range(_TRIES):
            there, token = await self._stored(call.subject)
            if not token.enrolled:
                raise IllegalTransition(_NOT_ENROLLED)
            if token.digest == digest:
                return self._answer(token, there.mod_revision)
            if call.subject.expires != token.expires:
                raise Unauthenticated("the credential was renewed already: the renewed one has to be shown")
            renewed = self._renewed(token, digest)
            revision = await self._replace(there, renewed)
            if revision:
                return self._answer(renewed, revision)
        raise Conflict("the credential keeps being changed by others; try again")

    async def _use_up(self, subject: Subject, wish: JobletWish) -> tuple[Token, int]:
        """Replaces the enrolment token of the caller by a credential."""
        for _ in range(_TRIES):
            there, token = await self._stored(subject)
            if not token.is_enrolment:
                if token.digest == wish.digest:
                    return token, there.mod_revision
                again = f"make another: cpctl enrol {wish.targets[0]}"
                raise Unauthenticated(f"the enrolment token was used up at {token.enrolled}; {again}")
            enrolled = replace(
                token,
                roles=(Role.JOBLET,),
                targets=wish.targets,
                driver=wish.driver,
                digest=wish.digest,
                former=FormerToken(digest=token.digest, roles=token.roles, expires=token.expires),
                enrolled=times.show(self._writes.clock.wall()),
                expires=self._expires(),
            )
            revision = await self._replace(there, enrolled)
            if revision:
                self._tell(enrolled, token.creator)
                return enrolled, revision
        raise Conflict("the enrolment token keeps being changed by others; try again")

    async def _begin(self, subject: Subject, wish: JobletWish) -> tuple[Token, int]:
        """A new record, for a caller who may enrol without an enrolment token."""
        identity.check(wish.id)
        now = times.show(self._writes.clock.wall())
        token = Token(
            id=wish.id,
            subject=subject_name(wish.targets),
            roles=(Role.JOBLET,),
            owner=authorisation.owner_for(subject, wish.template.owner),
            targets=wish.targets,
            driver=wish.driver,
            digest=wish.digest,
            created=now,
            creator=subject.name,
            expires=self._expires(),
            enrolled=now,
        )
        outcome, _ = await write_until_answered(
            self._writes, transaction.create_item(_key(token.id), codec.encode(token))
        )
        if outcome.succeeded:
            self._tell(token, subject.name)
            return token, outcome.revision
        there = outcome.found[0]
        stored = codec.read(there, Token) if there is not None else None
        if there is None or stored is None or stored.digest != wish.digest or stored.creator != subject.name:
            raise AlreadyExists(f"id: there is another token {wish.id}", field="id")
        return stored, there.mod_revision

    async def _stored(self, subject: Subject) -> tuple[Value, Token]:
        """The record of the caller's token, from etcd itself."""
        there = await self._reads.store.get(_key(subject.via))
        if there is None:
            raise Unauthenticated("the token is unknown, or was revoked")
        return there, codec.read(there, Token)

    async def _replace(self, there: Value, token: Token) -> int:
        """The revision of the write; 0 when the record has changed since it was read, perhaps by a lost answer."""
        put = transaction.put(there.key, codec.rewrite(there.value, token))
        item = Item((transaction.mod_is(there.key, there.mod_revision),), (put,))
        outcome, _ = await write_until_answered(self._writes, item)
        return outcome.revision if outcome.succeeded else 0

    def _renewed(self, token: Token, digest: str) -> Token:
        now = self._writes.clock.wall()
        good_until = times.show(now + timedelta(seconds=credential.former_seconds(self._lifetime_seconds())))
        former = FormerToken(digest=token.digest, roles=token.roles, expires=min(good_until, token.expires))
        return replace(token, digest=digest, expires=self._expires(), renewed=times.show(now), former=former)

    def _expires(self) -> str:
        return times.show(self._writes.clock.wall() + timedelta(seconds=self._lifetime_seconds()))

    def _lifetime_seconds(self) -> float:
        return float(settings_of(self._reads.cache.snapshot).joblet_credential)

    def _answer(self, token: Token, revision: int) -> Credential:
        lifetime = self._lifetime_seconds()
        renew_after = credential.renew_after_seconds(lifetime)
        return Credential(token, revision, renew_after, credential.former_seconds(lifetime))

    def _fit(self, wish: JobletWish) -> None:
        """Forbidden for a target whose driver is another, or whose joblet is run by a replica."""
        snapshot = self._reads.cache.snapshot
        for name in wish.targets:
            entry = snapshot.get(keys.TARGETS, name)
            target: Target | None = entry.readable() if entry is not None else None
            if target is not None and target.driver not in ("", wish.driver):
                raise Forbidden(f"driver: target {name!r} is one of driver {target.driver}", field="driver")
            if target is not None and target.kubeconfig_secret:
                raise Forbidden(f"targets: the joblet of target {name!r} is run by a replica", field="targets")

    async def _admitted(self, subject: Subject, wish: JobletWish) -> Target:
        """The target that is created under the names of the joblet; refused before the enrolment is used up."""
        if wish.template.kubeconfig_secret:
            field = "template.kubeconfig_secret"
            raise Forbidden(f"{field}: a replica runs the joblet of such a target", field=field)
        template = replace(wish.template, name=wish.targets[0], id="", driver=wish.driver, creator="")
        return await self._named.admit(
            subject, template, lambda target, existing: named_admission.admit(target, existing, "template")
        )

    async def _create_targets(self, token: Token, template: Target) -> None:
        """Creates those that are missing, as the joblet would, for the owner of the enrolment."""
        grant = Grant(Role.JOBLET, token.owner or DEFAULT_OWNER)
        subject = Subject(name=token.subject, grants=(grant,), targets=token.targets, driver=token.driver)
        snapshot, items = self._reads.cache.snapshot, []
        for name in token.targets:
            if not snapshot.has(keys.TARGETS, name):
                new = named_admission.create(replace(template, name=name, owner=""), self._named.stamp(subject))
                items.append(transaction.create_item(key_of(new), codec.encode(new)))
        # Whether a target was there already, or is created by another try, makes no difference.
        for outcome in await self._writes.writer.write_all(items) if items else ():
            if isinstance(outcome, ControlPlaneError):
                raise outcome

    def _tell(self, token: Token, by: str) -> None:
        message = f"a joblet was enrolled with credential {token.id}, good until {token.expires}"
        for name in token.targets[:_MOST_EVENTS]:
            about = About(kind="Target", name=name)
            self._record(Happening(about=about, reason="JobletEnrolled", message=message, by=by))


def check_enrolment(wish: EnrolmentWish) -> None:
    _check_targets(wish.targets)
    if wish.driver:
        fields.one_of(wish.driver, DRIVERS, "driver")
    fields.line(wish.owner, "owner")
    if wish.expires_seconds:
        fields.duration(wish.expires_seconds, "expires_seconds")
        if wish.expires_seconds > credential.MOST_ENROLMENT_SECONDS:
            raise Invalid("expires_seconds", "must be at most 30 days: an enrolment token is for the next joblet")


def check_joblet(wish: JobletWish) -> None:
    _check_targets(wish.targets)
    fields.one_of(wish.driver, DRIVERS, "driver")
    if not is_digest(wish.digest):
        raise Invalid("digest", "must be 64 hexadecimal digits: the SHA-256 of the credential")


def _check_targets(targets: tuple[str, ...]) -> None:
    if not targets:
        raise Invalid("targets", "must name at least one target")
    fields.names(targets, "targets", most=credential.MOST_TARGETS)


def subject_name(targets: tuple[str, ...]) -> str:
    """The subject of a joblet for the audit log; no name of a person has a colon and this front by accident."""
    return f"joblet:{targets[0]}"


def _is_token(subject: Subject) -> bool:
    """Whether the caller showed a token of etcd, not a credential of the cluster key, or nothing to an open plane."""
    try:
        identity.check(subject.via)
    except Invalid:
        return False
    return True


def _key(name: str) -> str:
    return f"{keys.TOKENS.prefix}{name}"
