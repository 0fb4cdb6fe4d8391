"""The access book: tokens and bindings as this replica's cache has them, looked up by the text of a token.

The book follows the cache, so a revocation counts on every replica as soon as the cache has heard of it; the gate
refuses everybody while the cache is too old to know. A token made through another replica a moment ago is not refused:
before a well-formed token is called unknown, the cache catches up with etcd. Callers with made-up tokens share one such
look, and looks are a tenth of a second apart at least. Credentials of an issuer outside are proved by a verifier; the
roles of their bearers come from bindings alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from controlplane import cluster_key
from controlplane.aio.clock import Clock
from controlplane.aio.lru import Lru
from controlplane.apiserver.api_ports import Reads
from controlplane.apiserver.credential_verifier import CredentialVerifier, ProvenIdentity
from controlplane.apiserver.fresh_reads import PATIENCE_SECONDS
from controlplane.cache.reflector import Delta
from controlplane.cluster_key import ClusterKey
from controlplane.model import times
from controlplane.model.access import PREFIX, Binding, Grant, Role, Subject, Token, looks_like_token, token_digest
from controlplane.model.errors import Unauthenticated
from controlplane.store import keys

_LOOK_SECONDS = 0.1
_TREES = (keys.TOKENS, keys.BINDINGS)
_MOST_FOREIGN = 10_000
# Joblets and replicas prove themselves to the plane; no issuer speaks for them.
_FOREIGN_ROLES = (Role.ADMIN, Role.OPERATOR, Role.SUBMITTER, Role.VIEWER)


class AccessBook:
    """`changed` is called with the identities of the changed tokens, or with None when any subject may have changed."""

    def __init__(
        self,
        reads: Reads,
        clock: Clock,
        key: ClusterKey | None = None,
        own_address: Callable[[], str] = lambda: "",
        verifiers: Sequence[CredentialVerifier] = (),
    ) -> None:
        """`own_address` is where other replicas reach this one: their credentials must name it."""
        self._reads = reads
        self._clock = clock
        self._key = key
        self._own_address = own_address
        self._bindings: tuple[Binding, ...] = ()
        self._subjects: dict[str, Subject] = {}
        self._foreign: Lru[ProvenIdentity, Subject] = Lru(_MOST_FOREIGN)
        self._verifiers = tuple(verifiers)
        self._looking: asyncio.Task[None] | None = None
        self.changed: Callable[[set[str] | None], None] = lambda tokens: None
        tokens = reads.cache.snapshot.objects(keys.TOKENS)
        self._by_digest = {digest: token for token in tokens for digest in token.digests()}
        self._read_bindings()
        reads.cache.subscribe(self._hear, _TREES)
        for verifier in self._verifiers:
            verifier.changed = lambda: self.changed(None)

    async def authenticate(self, text: str) -> Subject:
        """The subject of a token; Unauthenticated for any other text, and for a token whose time is over."""
        verifier = self._verifier_of(text)
        if verifier is not None:
            await verifier.learn(text)
        elif not text.startswith(cluster_key.PREFIX):
            if not looks_like_token(text):
                raise Unauthenticated("the credentials are no token of this control plane")
            if token_digest(text) not in self._by_digest:
                await self._catch_up()
        return self.subject_of(text)

    def subject_of(self, text: str) -> Subject:
        """The subject of the token, as of now."""
        if text.startswith(cluster_key.PREFIX):
            return self._claimed(text)
        verifier = self._verifier_of(text)
        if verifier is not None:
            return self._bearer(verifier.proven(text))
        digest = token_digest(text)
        subject = self._subjects.get(digest)
        if subject is None:
            token = self._by_digest.get(digest)
            if token is None:
                raise Unauthenticated("the token is unknown, or was revoked")
            subject = self._subjects[digest] = self._subject(_as_shown(token, digest))
        if subject.expires and self.seconds_left(subject) <= 0:
            raise Unauthenticated(f"the token expired at {subject.expires}")
        return subject

    def _claimed(self, text: str) -> Subject:
        """A joblet that a replica started, or another replica, by the cluster key."""
        claims = self._key.read(text) if self._key is not None else None
        if claims is not None and claims.target:
            role, targets = Grant(Role.JOBLET, claims.owner), (claims.target,)
            return Subject(name="joblet", grants=(role,), targets=targets, driver=claims.driver, via="cluster-key")
        if claims is not None and claims.audience and claims.audience == self._own_address():
            return Subject(name="replica", grants=(Grant(Role.REPLICA),), via="cluster-key")
        raise Unauthenticated("the credential was not made with the cluster key of this control plane, or not for here")

    def seconds_left(self, subject: Subject) -> float:
        return (times.parse(subject.expires, "expires") - self._clock.wall()).total_seconds()

    def _verifier_of(self, text: str) -> CredentialVerifier | None:
        """The verifier for the text; None for tokens and credentials of the plane itself, and for junk."""
        if text.startswith((PREFIX, cluster_key.PREFIX)):
            return None
        return next((verifier for verifier in self._verifiers if verifier.recognises(text)), None)

    def _bearer(self, identity: ProvenIdentity) -> Subject:
        """The subject of a foreign credential."""
        subject = self._foreign.get(identity)
        if subject is None:
            bound = self._bound(identity.name, identity.groups)
            subject = Subject(
                name=identity.name,
                groups=identity.groups,
                grants=tuple(sorted(grant for grant in bound if grant.role in _FOREIGN_ROLES)),
                via=identity.via,
                expires=identity.expires,
            )
            self._foreign.put(identity, subject)
        return subject

    def _bound(self, subject: str, groups: tuple[str, ...]) -> set[Grant]:
        """The grants by bindings."""
        concerned = (binding for binding in self._bindings if binding.concerns(subject, groups))
        return {grant for binding in concerned if (grant := binding.grant()) is not None}

    def _subject(self, token: Token) -> Subject:
        bound = self._bound(token.subject, token.groups) if token.takes_bindings else set()
        return Subject(
            name=token.subject,
            groups=token.groups,
            grants=tuple(sorted({*token.grants(), *bound})),
            targets=token.targets,
            driver=token.driver,
            via=token.id,
            expires=token.expires,
        )

    async def _catch_up(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        await self._clock.sleep(_LOOK_SECONDS)
        await self._reads.cache.reached(await self._reads.store.revision(), PATIENCE_SECONDS)

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        """Costs as much as changed, however many tokens there are; a binding may concern every token."""
        for delta in deltas:
            if delta.tree == keys.TOKENS:
                self._enter(delta)
        if any(delta.tree == keys.BINDINGS for delta in deltas):
            self._read_bindings()
            self.changed(None)
        else:
            self.changed({delta.parts[0] for delta in deltas if delta.tree == keys.TOKENS})

    def _enter(self, delta: Delta) -> None:
        for entry in (delta.old, delta.new):
            token: Token | None = entry.readable() if entry is not None else None
            if token is None:
                continue
            for digest in token.digests():
                self._subjects.pop(digest, None)
                if entry is delta.new:
                    self._by_digest[digest] = token
                else:
                    self._by_digest.pop(digest, None)

    def _read_bindings(self) -> None:
        self._bindings = tuple(self._reads.cache.snapshot.objects(keys.BINDINGS))
        self._subjects = {}
        self._foreign.clear()


def _as_shown(token: Token, digest: str) -> Token:
    """The token as the caller's text has it: a former text has the roles and the end of its own."""
    former = token.former
    if former is None or digest == token.digest:
        return token
    return replace(token, roles=former.roles, expires=former.expires)
