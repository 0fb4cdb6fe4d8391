"""Whom this replica has to host, and what each of their joblets has to be told. Pure."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from controlplane.cache.snapshot import Snapshot
from controlplane.model.hosting import Hosting
from controlplane.model.secret import Content, Secret
from controlplane.model.target import Live, Target
from controlplane.store.keys import LIVE

TREES = frozenset({"config/targets", "config/secrets", "status/hosting"})


@dataclass(frozen=True)
class Guest:
    """A target that this replica hosts. Its joblet is another one when any of this changes, and started anew."""

    target: str
    target_id: str
    secret_name: str
    secret_id: str
    secret_digest: str
    security: str = ""
    stop_grace: float | None = None


def guests_of(snapshot: Snapshot, incarnation: str) -> dict[str, Guest]:
    """Those that the leader gave to this life of the replica, and that the user still wants to be hosted."""
    found = {}
    for entry in snapshot.all("status/hosting"):
        hosting = entry.sound(Hosting)
        if hosting is None or hosting.incarnation != incarnation:
            continue
        guest = _guest(snapshot, entry.parts[0])
        if guest is not None:
            found[guest.target] = guest
    return found


def _guest(snapshot: Snapshot, name: str) -> Guest | None:
    entry = snapshot.get("config/targets", name)
    target = entry.sound(Target) if entry is not None else None
    if target is None or not target.kubeconfig_secret:
        return None
    secret = secret_of(snapshot, target.kubeconfig_secret)
    if secret is None:
        return None
    grace = float(target.stop_grace) if target.stop_grace is not None else None
    return Guest(name, target.id, secret.name, secret.id, secret.digest, target.security, grace)


def options_of(guest: Guest) -> list[str]:
    """What the target says of its pods, as arguments of its joblet; the rest is as the joblet has it by itself."""
    options = ["--security", guest.security] if guest.security else []
    return options + (["--grace", f"{guest.stop_grace:g}s"] if guest.stop_grace is not None else [])


def secret_of(snapshot: Snapshot, name: str) -> Secret | None:
    entry = snapshot.get("config/secrets", name)
    return entry.sound(Secret) if entry is not None else None


def instance_secret(guest: Guest, content: Content) -> str:
    """The same wherever the target is hosted, and whatever its kubeconfig says by then: so the next joblet goes on with
    the session of the one before. Another target with the same secret has another one."""
    return hmac.digest(bytes.fromhex(content.seed), f"joblet {guest.target_id}".encode(), hashlib.sha256).hex()


def known_etcd(snapshot: Snapshot, target: str) -> tuple[str, int]:
    """The etcd for which its last joblet worked, and the attempts that it knew then: the next one has to start over
    only if that was another etcd."""
    entry = snapshot.get("inventory", target, LIVE)
    live = entry.sound(Live) if entry is not None else None
    return (live.cluster, live.known_attempt) if live is not None else ("", 0)
