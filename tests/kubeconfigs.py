"""Kubeconfigs for tests: a sound one as plain values, to be changed and written down."""

from __future__ import annotations

import base64
import json
from typing import Any

TOKEN = "token-that-nobody-may-see"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY_PEM = "-----BEGIN PRIVATE KEY-----\nMIIBkeythatnobodymaysee\n-----END PRIVATE KEY-----\n"


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def a_kubeconfig(server: str = "https://127.0.0.1:6443", token: str = TOKEN) -> dict[str, Any]:
    cluster = {"server": server, "certificate-authority-data": base64_of(PEM)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "jobs"}}],
        "current-context": "x",
        "preferences": {},
    }


def written(config: dict[str, Any]) -> str:
    return json.dumps(config)
