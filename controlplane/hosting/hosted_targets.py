"""The targets that a replica has to host, and the settings of their joblets. Pure."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from controlplane.cache.snapshot import Snapshot
from controlplane.model.secret import Content
from controlplane.store import keys

# By the error that a joblet ends with. Its own words may be those of the server that a kubeconfig names, and the author
# of a kubeconfig may name any server: users see these sentences only, the replica's log has the words.
_REASONS = {
    "Invalid": "its kubeconfig or its settings cannot be used",
    "Unavailable": "the server of its kubeconfig cannot be reached",
    "OutcomeUnknown": "the server of its kubeconfig does not answer",
    "Answered": "the server of its kubeconfig refuses",
    "Unauthenticated": "the replicas do not take its credential",
    "Forbidden": "the replicas do not take its credential",
    "AlreadyExists": "another joblet lives in its folder",
}
TREES = frozenset({keys.TARGETS, keys.SECRETS, keys.HOSTING})


@dataclass(frozen=True)
class HostedTarget:
    """A target hosted by the replica. The joblet is started anew when any field changes."""

    target: str
    target_id: str
    secret_name: str
    secret_id: str
    secret_digest: str
    security: str = ""
    stop_grace: float | None = None


def hosted_targets_of(snapshot: Snapshot, incarnation: str) -> dict[str, HostedTarget]:
    """Targets that the leader assigned to the incarnation of the replica and whose users still want hosting."""
    mine = (hosting.target for hosting in snapshot.objects(keys.HOSTING) if hosting.incarnation == incarnation)
    return {name: hosted for name in mine if (hosted := _hosted_target(snapshot, name)) is not None}


def _hosted_target(snapshot: Snapshot, name: str) -> HostedTarget | None:
    target = snapshot.target(name)
    if target is None or not target.kubeconfig_secret:
        return None
    secret = snapshot.secret(target.kubeconfig_secret)
    if secret is None:
        return None
    grace = float(target.stop_grace) if target.stop_grace is not None else None
    return HostedTarget(name, target.id, secret.name, secret.id, secret.digest, target.security, grace)


def options_of(hosted: HostedTarget) -> list[str]:
    """The target's settings for its pods, as arguments of the joblet; other settings keep the joblet's defaults."""
    options = ["--security", hosted.security] if hosted.security else []
    return options + (["--grace", f"{hosted.stop_grace:g}s"] if hosted.stop_grace is not None else [])


def instance_secret(hosted: HostedTarget, content: Content) -> str:
    """The secret by which the joblet proves its identity: the same on every replica and with every kubeconfig, so the
    next joblet continues the session of the last. Targets with a shared kubeconfig have different instance secrets."""
    return hmac.digest(bytes.fromhex(content.seed), f"joblet {hosted.target_id}".encode(), hashlib.sha256).hex()


def known_etcd(snapshot: Snapshot, target: str) -> tuple[str, int]:
    """The etcd of the target's last joblet, and the highest attempt known to the joblet: the next joblet has to start
    over only if the etcd is another."""
    live = snapshot.live(target)
    return (live.cluster, live.known_attempt) if live is not None else ("", 0)


def reason_of(last_line: str) -> str:
    """Why a joblet ended, by the last line of its log, without any text from outside."""
    start, _, rest = last_line.partition(": ")
    name = rest.partition(": ")[0] if start == "error" else ""
    return _REASONS.get(name, "the log of its replica says why")
