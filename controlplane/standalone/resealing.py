"""Resealing: every secret in etcd is sealed with the first key of the key file, so that older keys can be thrown away.

The content and the seed of a secret stay what they are: joblets that use the secret keep their identity. Each secret
is written by compare-and-set on what was opened, so a secret that a user changes meanwhile is never put back. Secrets
under the first key are left alone, so that an interrupted run is taken up by the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.model.errors import Broken, OutcomeUnknown, Refused
from controlplane.model.leadership import Candidate
from controlplane.model.secret import Secret
from controlplane.sealing import Keyring
from controlplane.store import codec, keys, transaction
from controlplane.store.kv import Store
from controlplane.store.transaction import Value

# A secret that somebody changes all the time is left for the next run.
_MOST_TRIES = 8


@dataclass(slots=True)
class ResealReport:
    """Names of secrets: sealed anew, under the first key already, and with the reason those that could not be."""

    resealed: list[str] = field(default_factory=list)
    current: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


async def reseal(store: Store, keyring: Keyring, *, force: bool = False) -> ResealReport:
    """Seals all secrets with the first key; Refused when a running replica lacks that key, unless forced."""
    keyring.check()
    if not force:
        await _check_replicas(store, keyring)
    report = ResealReport()
    async for page in store.pages(keys.SECRETS.prefix):
        for value in page.values:
            await _reseal_secret(store, keyring, value, report)
    return report


def lacking(candidates: list[Candidate], key: str) -> list[str]:
    """The replicas which could not open what the key seals."""
    return sorted(candidate.id for candidate in candidates if key not in candidate.keys)


def sealed_anew(secret: Secret, keyring: Keyring) -> Secret | None:
    """The secret under the first key, None when it is; Refused when no key opens it, the first one included."""
    content = keyring.open(secret)
    return None if keyring.is_current(secret) else keyring.seal(secret, content)


async def _check_replicas(store: Store, keyring: Keyring) -> None:
    candidates: list[Candidate] = []
    async for page in store.pages(keys.CANDIDATES.prefix):
        candidates += _readable(page.values)
    without = lacking(candidates, keyring.ids[0])
    if without:
        raise Refused(
            f"replicas without the first key of the file: {', '.join(without)}; "
            "give them the same file and restart them first, or use --force"
        )


def _readable(values: tuple[Value, ...]) -> list[Candidate]:
    """Candidates without a lease do not stand for election, and are nobody's replica."""
    candidates = []
    for value in values:
        try:
            candidates += [codec.read(value, Candidate)] if value.lease else []
        except Broken:
            continue
    return candidates


async def _reseal_secret(store: Store, keyring: Keyring, listed: Value, report: ResealReport) -> None:
    name = listed.key.removeprefix(keys.SECRETS.prefix)
    value: Value | None = listed
    written = False
    for _ in range(_MOST_TRIES):
        if value is None:
            return
        try:
            anew = sealed_anew(codec.read(value, Secret), keyring)
        except (Refused, Broken) as error:
            report.failed[name] = str(error)
            return
        if anew is None:
            (report.resealed if written else report.current).append(name)
            return
        written = await _replace(store, value, codec.rewrite(value.value, anew))
        # Also after a success: what is stored now decides, not what was sent.
        value = await store.get(listed.key)
    report.failed[name] = "is changed by others all the time; run this again"


async def _replace(store: Store, value: Value, new: bytes) -> bool:
    """Whether the new value may be stored: an unknown outcome counts, since the key is read again afterwards."""
    compare = transaction.mod_is(value.key, value.mod_revision)
    try:
        outcome = await store.commit(transaction.Item((compare,), (transaction.put(value.key, new),)))
    except OutcomeUnknown:
        return True
    return outcome.succeeded
