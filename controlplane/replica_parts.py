"""Parts of a replica that its settings alone decide: providers, the verifier of JWTs, TLS files, times of elections."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.aio.clock import Clock
from controlplane.apiserver.issuer_keys import IssuerKeys
from controlplane.apiserver.jwt_tokens import IssuerRules
from controlplane.apiserver.jwt_verifier import JwtVerifier
from controlplane.controller_manager.made_targets import Provider
from controlplane.election.election_settings import ElectionSettings
from controlplane.model import address
from controlplane.model.outside_hosts import OutsideHosts
from controlplane.model.scalepolicy import CLUSTER_API
from controlplane.providers.local import LocalProvider
from controlplane.providers.webhook import WebhookProvider
from controlplane.replica_settings import ReplicaSettings
from controlplane.tls_files import TlsFiles, TlsSource
from controlplane.wire.bounded_http import BoundedHttp


def providers_of(
    settings: ReplicaSettings, clock: Clock, credential: Callable[[str, str], str] = lambda target, driver: ""
) -> dict[str, Provider]:
    """The providers with which a leader makes targets, as far as the settings configure them."""
    providers: dict[str, Provider] = {}
    if settings.local_targets:
        own = settings.grpc_advertise or settings.grpc
        endpoints = settings.local_endpoints.split(",") if settings.local_endpoints else [own]
        folder = Path(settings.local_targets).absolute()
        providers["local"] = LocalProvider(
            folder, endpoints, child_environment(settings), credential, ca_file=ca_file_of(settings)
        )
    secret = settings.read_webhook_secret()
    if secret:
        providers["webhook"] = WebhookProvider(secret, clock, hosts=OutsideHosts(settings.allowed_hosts))
    if settings.cluster_api_kubeconfig:
        # The import takes a second, so replicas without the provider skip the import.
        from controlplane.providers.cluster_api import ClusterApiProvider, by_file

        providers[CLUSTER_API] = ClusterApiProvider(by_file(settings.cluster_api_kubeconfig), clock)
    return providers


def jwt_verifier(settings: ReplicaSettings, clock: Clock) -> JwtVerifier | None:
    """The verifier of the issuer's JWTs; None when the settings name no issuer."""
    if not settings.oidc_issuer:
        return None
    rules = IssuerRules(
        issuer=settings.oidc_issuer,
        audience=settings.oidc_audience,
        name_claim=settings.oidc_name_claim,
        groups_claim=settings.oidc_groups_claim,
        prefix=settings.oidc_prefix,
    )
    http = BoundedHttp(settings.oidc_issuer, settings.oidc_ca_file)
    return JwtVerifier(rules, IssuerKeys(settings.oidc_issuer, http, clock), clock)


def tls_source(settings: ReplicaSettings) -> TlsSource | None:
    """The replica's certificate; None where it serves plain connections. Invalid for files that cannot be used."""
    if not settings.tls_cert:
        return None
    return TlsSource(TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_ca))


def ca_file_of(settings: ReplicaSettings) -> str:
    """The CA file for joblets that the replica starts; empty where replicas serve plain connections."""
    return str(Path(settings.tls_ca).absolute()) if settings.tls_ca else ""


def election_settings(settings: ReplicaSettings) -> ElectionSettings:
    host, port = address.parse(settings.pulse, "pulse")
    return ElectionSettings(
        ttl_seconds=settings.ttl,
        loop_silence_seconds=settings.loop_silence,
        pulse_silence_seconds=settings.pulse_silence,
        pulse_beat_seconds=settings.pulse_beat,
        pulse_answer_seconds=settings.pulse_answer,
        pulse_host=host,
        pulse_port=port,
        pulse_advertise=settings.pulse_advertise,
    )


@contextmanager
def folder_of(settings: ReplicaSettings) -> Iterator[Path]:
    """The folder of hosted joblets' files: a folder per replica, since two joblets never share a folder."""
    if settings.hosting_dir:
        yield Path(settings.hosting_dir).absolute() / settings.id
    else:
        with tempfile.TemporaryDirectory(prefix="controlplane-hosted-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)


def child_environment(settings: ReplicaSettings) -> dict[str, str]:
    """The environment of processes that the replica starts: its own, without the replica's settings and secrets."""
    secret = settings.webhook_secret.removeprefix("env:")
    return {
        name: value for name, value in os.environ.items() if not name.startswith("CONTROLPLANE_") and name != secret
    }
