"""Commands about access: tokens are made and revoked, roles are granted and withdrawn.

The last administrator cannot be removed: a removal compares, in its own transaction, that another administrator's token
is still there, so that two removals at once cannot take away both.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import NamedTuple, TypeVar

from controlplane.apiserver.admission import fields
from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.guarded_writes import check_room, write_until_answered
from controlplane.apiserver.fresh_reads import fresh
from controlplane.model import identity, times
from controlplane.model.access import (
    GIVEN_ROLES,
    OWNER_ROLES,
    SECRET_BYTES,
    Binding,
    Role,
    Token,
    administrators,
    token_digest,
    token_text,
)
from controlplane.model.errors import AlreadyExists, Conflict, IllegalTransition, Invalid, NotFound
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Compare, Item

R = TypeVar("R")

_TRIES = 5
_SLUG = re.compile(r"[^a-z0-9.-]+")
_MOST_NAME = 63


class MadeToken(NamedTuple):
    """`text` is shown once and stored nowhere."""

    token: Token
    text: str
    revision: int


class StoredBinding(NamedTuple):
    binding: Binding
    revision: int


class TokenWish(NamedTuple):
    subject: str
    roles: tuple[str, ...]
    owner: str = ""
    groups: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    driver: str = ""
    expires_seconds: float = 0.0


class AccessRecords(NamedTuple):
    tokens: list[Token]
    bindings: list[Binding]


class AccessCommands:
    def __init__(self, reads: Reads, writes: Writes, chance: Callable[[int], bytes]) -> None:
        self._reads = reads
        self._writes = writes
        self._chance = chance

    async def create_token(self, call: Call, wish: TokenWish) -> MadeToken:
        check_wish(wish)
        check_room(self._writes)
        now = self._writes.clock.wall()
        expires = times.show(now + timedelta(seconds=wish.expires_seconds)) if wish.expires_seconds else ""
        text = token_text(self._chance(SECRET_BYTES))
        token = Token(
            id=self._writes.mint.make(),
            subject=wish.subject,
            roles=tuple(dict.fromkeys(wish.roles)),
            owner=wish.owner,
            groups=wish.groups,
            targets=wish.targets,
            driver=wish.driver,
            digest=token_digest(text),
            created=times.show(now),
            creator=call.subject.name,
            expires=expires,
        )
        item = transaction.create_item(f"{keys.TOKENS.prefix}{token.id}", codec.encode(token))
        outcome, _ = await write_until_answered(self._writes, item)
        # After a lost answer the token may be there already: its identity is this call's alone.
        return MadeToken(token, text, outcome.revision)

    async def list_tokens(self, call: Call) -> tuple[int, list[Token]]:
        snapshot = await fresh(self._reads.cache, call)
        return snapshot.revision, sorted(snapshot.objects(keys.TOKENS), key=lambda token: token.id)

    async def revoke_token(self, _call: Call, name: str) -> int:
        identity.check(name)
        key = f"{keys.TOKENS.prefix}{name}"
        missing = NotFound(f"id: there is no token {name}", field="id")
        return await self._remove(key, missing, lambda now: now._replace(tokens=_but(now.tokens, "id", name)))

    async def grant(self, call: Call, wish: Binding) -> StoredBinding:
        check_binding(wish)
        check_room(self._writes)
        name = wish.name or binding_name(wish)
        fields.name(name, "name")
        now = times.show(self._writes.clock.wall())
        binding = Binding(
            name=name,
            role=wish.role,
            subject=wish.subject,
            group=wish.group,
            owner=wish.owner,
            created=now,
            creator=call.subject.name,
        )
        key = f"{keys.BINDINGS.prefix}{name}"
        outcome, _ = await write_until_answered(self._writes, transaction.create_item(key, codec.encode(binding)))
        if outcome.succeeded:
            return StoredBinding(binding, outcome.revision)
        there = outcome.found[0]
        stored = codec.read(there, Binding) if there is not None else None
        if there is not None and stored is not None and same_grant(stored, binding):
            return StoredBinding(stored, there.mod_revision)
        raise AlreadyExists(f"name: binding {name!r} exists already", field="name")

    async def list_bindings(self, call: Call) -> tuple[int, list[Binding]]:
        snapshot = await fresh(self._reads.cache, call)
        return snapshot.revision, sorted(snapshot.objects(keys.BINDINGS), key=lambda binding: binding.name)

    async def ungrant(self, _call: Call, name: str) -> int:
        fields.name(name, "name")
        key = f"{keys.BINDINGS.prefix}{name}"
        missing = NotFound(f"name: there is no binding {name!r}", field="name")
        return await self._remove(key, missing, lambda now: now._replace(bindings=_but(now.bindings, "name", name)))

    async def _remove(
        self,
        key: str,
        missing: NotFound,
        without: Callable[[AccessRecords], AccessRecords],
    ) -> int:
        """Deletes the key, unless no administrator would be left."""
        for _ in range(_TRIES):
            await self._reads.cache.reached(await self._reads.store.revision())
            snapshot = self._reads.cache.snapshot
            records = AccessRecords(list(snapshot.objects(keys.TOKENS)), list(snapshot.objects(keys.BINDINGS)))
            kept = self._keeps_an_administrator(records, without(records))
            item = Item((transaction.present(key), *kept), (transaction.delete(key),), (transaction.get(key),))
            outcome, again = await write_until_answered(self._writes, item)
            if outcome.succeeded or (again and outcome.found[0] is None):
                return outcome.revision
            if outcome.found[0] is None:
                raise missing
        raise Conflict("tokens and bindings keep being changed by others; try again")

    def _keeps_an_administrator(self, records: AccessRecords, left: AccessRecords) -> tuple[Compare, ...]:
        """Compares for the keys that make another subject an administrator; IllegalTransition when there is none."""
        now = times.show(self._writes.clock.wall())
        if not any(administrators(records.tokens, records.bindings, now)):
            return ()
        for token, binding in administrators(left.tokens, left.bindings, now):
            compares = [transaction.present(f"{keys.TOKENS.prefix}{token.id}")]
            if binding is not None:
                compares.append(transaction.present(f"{keys.BINDINGS.prefix}{binding.name}"))
            return tuple(compares)
        raise IllegalTransition("the last administrator cannot be removed: make another one first")


def _but(records: list[R], field: str, value: str) -> list[R]:
    return [record for record in records if getattr(record, field) != value]


def check_wish(wish: TokenWish) -> None:
    if not wish.subject:
        raise Invalid("subject", "is required")
    fields.line(wish.subject, "subject")
    if not wish.roles:
        raise Invalid("roles", f"must name at least one of {', '.join(GIVEN_ROLES)}")
    for position, role in enumerate(wish.roles):
        fields.one_of(role, GIVEN_ROLES, f"roles[{position}]")
    _check_owner(wish.owner, wish.roles)
    for position, group in enumerate(wish.groups):
        fields.line(group, f"groups[{position}]")
    if (wish.targets or wish.driver) and Role.JOBLET not in wish.roles:
        raise Invalid("targets" if wish.targets else "driver", "belongs to the role joblet")
    if Role.JOBLET in wish.roles and not wish.targets:
        raise Invalid("targets", "is required for the role joblet: the targets that it may speak for")
    fields.names(wish.targets, "targets")
    if wish.expires_seconds:
        fields.duration(wish.expires_seconds, "expires_seconds")


def check_binding(wish: Binding) -> None:
    fields.one_of(wish.role, GIVEN_ROLES, "role")
    if wish.role == Role.JOBLET:
        raise Invalid("role", "joblet is given by a token, which names the targets")
    if bool(wish.subject) == bool(wish.group):
        raise Invalid("subject", "either a subject or a group is required")
    fields.line(wish.subject, "subject")
    fields.line(wish.group, "group")
    _check_owner(wish.owner, (wish.role,))


def _check_owner(owner: str, roles: Iterable[str]) -> None:
    fields.line(owner, "owner")
    if owner and not any(role in OWNER_ROLES for role in roles):
        raise Invalid("owner", f"bounds the roles {' and '.join(OWNER_ROLES)} only")


def binding_name(wish: Binding) -> str:
    """The name of a binding that was granted without one: the same grant has the same name."""
    whole = "-".join(filter(None, (wish.role, wish.subject or f"group-{wish.group}", wish.owner)))
    name = _SLUG.sub("-", whole.lower()).strip("-.")
    if name == whole and len(name) <= _MOST_NAME:
        return name
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{name[: _MOST_NAME - len(digest) - 1]}-{digest}"


def same_grant(left: Binding, right: Binding) -> bool:
    return (left.role, left.subject, left.group, left.owner) == (right.role, right.subject, right.group, right.owner)
