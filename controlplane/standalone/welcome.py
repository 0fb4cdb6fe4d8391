"""The text that `up` prints when the control plane is ready: addresses, and three commands to try."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from controlplane.standalone.endpoints import default_data_dir
from controlplane.standalone.layout import Layout
from controlplane.standalone.process_plan import ProcessPlan


def welcome(layout: Layout, plan: ProcessPlan) -> str:
    where = "" if layout.folder == default_data_dir().resolve() else f" --data-dir {layout.folder}"

    rows = {
        "grpc": ", ".join(part.grpc for part in plan.replicas),
        "http": ", ".join(f"{plan.scheme}://{part.http}" for part in plan.replicas),
        "etcd": plan.etcd_url,
        "targets": ", ".join(part.name for part in plan.joblets) or "none",
        "folder": str(layout.folder),
        "stop": f"{_command('controlplane')} down{where}",
    }
    tries = (
        f"{_command('cpctl')} run{where} --count 3 -- sh -c 'echo hello from $CONTROLPLANE_TARGET'",
        f"{_command('cpctl')} leader --watch{where}",
        _look(layout, plan),
    )
    lines = ["The control plane is up.", *(f"  {name:<8} {text}" for name, text in rows.items()), "Try:"]
    return "\n".join([*lines, *(f"  {text}" for text in tries)])


def _look(layout: Layout, plan: ProcessPlan) -> str:
    """A look into etcd. With TLS the variables of `etcd.env` name the certificates."""
    if plan.tls is None:
        return f"{_etcdctl(plan)} --endpoints {plan.etcd_url} get --prefix /controlplane/ --keys-only"
    return f"(. {layout.etcd_env}; {_etcdctl(plan)} get --prefix /controlplane/ --keys-only)"


def _etcdctl(plan: ProcessPlan) -> str:
    """etcdctl from PATH; else the etcdctl beside the etcd binary in use."""
    beside = Path(plan.etcd.argv[0]).with_name("etcdctl")
    return str(beside) if beside.exists() and not shutil.which("etcdctl") else "etcdctl"


def _command(name: str) -> str:
    """The command as a person types it here: the bare name where the shell finds the command."""
    return name if shutil.which(name) else str(Path(sys.executable).parent / name)
