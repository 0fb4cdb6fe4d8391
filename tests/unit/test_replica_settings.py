"""The settings of a replica about making targets, an issuer of JWTs, and serving beyond loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane.model.errors import Invalid
from controlplane.replica_settings import ReplicaSettings

ETCD = ("http://127.0.0.1:1",)


def test_a_webhook_secret_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text("between us\n")
    monkeypatch.setenv("HOOK", "among us")
    assert ReplicaSettings(etcd=ETCD).read_webhook_secret() == b""
    assert ReplicaSettings(etcd=ETCD, webhook_secret=f"file:{file}").read_webhook_secret() == b"between us"
    assert ReplicaSettings(etcd=ETCD, webhook_secret="env:HOOK").read_webhook_secret() == b"among us"


@pytest.mark.parametrize("secret", ["file:/nowhere/at/all", "env:NOBODY_SET_THIS", "env:EMPTY"])
def test_a_webhook_secret_that_is_not_there_is_refused(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(Invalid, match="webhook_secret"):
        ReplicaSettings(etcd=ETCD, webhook_secret=secret).read_webhook_secret()


@pytest.mark.parametrize(
    ("field", "value"),
    [("webhook_secret", "hunter2"), ("webhook_secret", "file:"), ("local_endpoints", "127.0.0.1:1,nowhere")],
)
def test_bad_settings_are_refused_by_name(field: str, value: str) -> None:
    with pytest.raises(Invalid) as caught:
        ReplicaSettings(etcd=ETCD, **{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


URL = "https://issuer.example/realm"


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("oidc_issuer", {"oidc_issuer": URL}),
        ("oidc_issuer", {"oidc_audience": "cpctl"}),
        ("oidc_issuer", {"oidc_issuer": "http://issuer.example", "oidc_audience": "cpctl"}),
        ("oidc_issuer", {"oidc_issuer": "issuer.example", "oidc_audience": "cpctl"}),
        ("oidc_issuer", {"oidc_issuer": "https://ada:secret@issuer.example", "oidc_audience": "cpctl"}),
        ("oidc_issuer", {"oidc_issuer": "https://issuer.example:port", "oidc_audience": "cpctl"}),
        ("oidc_prefix", {"oidc_issuer": URL, "oidc_audience": "cpctl", "oidc_prefix": ""}),
        ("oidc_prefix", {"oidc_issuer": URL, "oidc_audience": "cpctl", "oidc_prefix": "sso"}),
        ("oidc_name_claim", {"oidc_issuer": URL, "oidc_audience": "cpctl", "oidc_name_claim": ""}),
    ],
)
def test_an_issuer_that_cannot_be_trusted_is_refused(field: str, settings: dict[str, str]) -> None:
    with pytest.raises(Invalid) as caught:
        ReplicaSettings(etcd=ETCD, **settings)  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("issuer", [URL, "http://127.0.0.1:8080", "http://localhost:8080/realm", "http://[::1]:80"])
def test_an_issuer_is_asked_over_https_or_on_loopback(issuer: str) -> None:
    assert ReplicaSettings(etcd=ETCD, oidc_issuer=issuer, oidc_audience="cpctl").oidc_prefix == "oidc:"


TLS: dict[str, Any] = {"tls_cert": "a.crt", "tls_key": "a.key", "tls_ca": "ca.crt"}
KEY: dict[str, Any] = {"cluster_key_file": "cluster.key"}


@pytest.mark.parametrize("field", ["grpc", "http", "pulse"])
@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, ["--tls-cert", "--cluster-key-file"]),
        (TLS, ["--cluster-key-file"]),
        (KEY, ["--tls-cert"]),
        ({**TLS, **KEY, "insecure": True}, ["--insecure"]),
    ],
)
def test_a_replica_beyond_loopback_is_refused_and_told_what_it_lacks(
    field: str, given: dict[str, Any], missing: list[str]
) -> None:
    with pytest.raises(Invalid) as caught:
        ReplicaSettings(etcd=ETCD, **given, **{field: "192.0.2.1:7101"})  # type: ignore[arg-type]
    assert caught.value.field == field
    options = ("--tls-cert", "--cluster-key-file", "--insecure")
    assert [option for option in options if option in str(caught.value)] == missing


def test_a_replica_with_tls_credentials_and_a_cluster_key_may_serve_beyond_loopback() -> None:
    settings = ReplicaSettings(etcd=ETCD, grpc="192.0.2.1:7101", http="192.0.2.1:7201", pulse="[::2]:0", **TLS, **KEY)
    assert settings.grpc == "192.0.2.1:7101"


def test_an_address_that_stands_for_all_needs_one_to_tell_others() -> None:
    with pytest.raises(Invalid, match="--grpc-advertise"):
        ReplicaSettings(etcd=ETCD, grpc="0.0.0.0:7101", **TLS, **KEY)
    ReplicaSettings(etcd=ETCD, grpc="0.0.0.0:7101", grpc_advertise="replica-1:7101", **TLS, **KEY)
    with pytest.raises(Invalid, match="grpc_advertise"):
        ReplicaSettings(etcd=ETCD, grpc="0.0.0.0:7101", grpc_advertise="nowhere", **TLS, **KEY)


@pytest.mark.parametrize("missing", TLS)
def test_tls_needs_certificate_key_and_ca(missing: str) -> None:
    with pytest.raises(Invalid, match="tls_cert"):
        ReplicaSettings(etcd=ETCD, **{name: file for name, file in TLS.items() if name != missing})
