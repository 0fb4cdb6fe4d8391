"""The chart as Helm renders it, and the plain manifests below `deploy/kubernetes`, which are made from it.

`python -m tests.deploy.rendering [--check]` writes the manifests, or says which of them are stale.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart"
PLAIN = ROOT / "deploy" / "kubernetes"
NAMESPACE = "controlplane"
# `kubectl apply` has no other way to the namespace, with the labels of its pod security standard.
PLAIN_VALUES = ("--set", "namespace.create=true")
FILES = ("namespaces.yaml", "replicas.yaml", "joblet.yaml", "network.yaml")
_SOURCE = re.compile(r"^# Source: controlplane/templates/(\S+)\n", re.MULTILINE)

_HEADERS = {
    "namespaces.yaml": "# Made from deploy/chart by scripts/manifests. Apply this file first.\n",
    "replicas.yaml": """\
# Made from deploy/chart by scripts/manifests. Edit: the image, and etcd's endpoints.
# The Secrets controlplane-etcd and controlplane-tls (ca.crt, tls.crt, tls.key) and controlplane-keys (cluster.key,
# secret.key) are yours to make: deploy/README.md says how.
""",
    "joblet.yaml": """\
# Made from deploy/chart by scripts/manifests. Edit: the image, the target, and the endpoints.
# Its token, made by an administrator of the control plane, and the CA are Secrets that this file does not make:
#   cpctl enrol eu-1 --driver kubernetes -o name > token
#   kubectl -n controlplane create secret generic joblet --from-file=token=token
#   kubectl -n controlplane create secret generic controlplane-ca --from-file=ca.crt=ca.crt
# Its rights are exactly what the driver asks for: tests/kubernetes/test_least_rights.py runs it with them.
""",
    "network.yaml": "# Made from deploy/chart by scripts/manifests. Edit: who else may call the replicas.\n",
}

Json = dict[str, Any]


class RenderingFailed(Exception):
    """What Helm says about values or templates."""


def render(*arguments: str) -> str:
    """The manifests as text; RenderingFailed with Helm's own words."""
    # The one beside this interpreter, from the wheel.
    helm = Path(sys.executable).parent / "helm"
    command = [str(helm), "template", "controlplane", str(CHART), "--namespace", NAMESPACE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RenderingFailed(done.stderr)
    return done.stdout


def documents(text: str) -> list[Json]:
    return [document for document in yaml.safe_load_all(text) if document is not None]


def plain_documents() -> list[Json]:
    return [document for name in FILES for document in documents((PLAIN / name).read_text())]


def plain_files() -> dict[str, str]:
    """The plain manifests by file name, with the comments of the templates."""
    parts: dict[str, list[str]] = {name: [] for name in FILES}
    for document in render(*PLAIN_VALUES).split("\n---\n"):
        body = document.removeprefix("---\n").strip()
        source = _SOURCE.search(f"{body}\n")
        if source is not None:
            parts[source[1]].append(_SOURCE.sub("", f"{body}\n"))
    return {name: _HEADERS[name] + "---\n".join(bodies) for name, bodies in parts.items()}


def stale() -> list[str]:
    """The files that are not what the chart makes, and files that nothing makes."""
    wanted = plain_files()
    there = {path.name: path.read_text() for path in PLAIN.iterdir()}
    return sorted(name for name in {*wanted, *there} if wanted.get(name) != there.get(name))


def main() -> int:
    if "--check" in sys.argv[1:]:
        for name in stale():
            sys.stderr.write(f"stale: deploy/kubernetes/{name}; run scripts/manifests\n")
        return 1 if stale() else 0
    for name, text in plain_files().items():
        (PLAIN / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
