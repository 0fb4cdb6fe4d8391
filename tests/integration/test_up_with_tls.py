"""`controlplane up --tls` as a user meets it: orders, a killed leader, etcdctl, backup and restore, the next start."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.integration.folder import SECONDS, Folder, eventually


def up(folder: Folder, *options: str) -> subprocess.CompletedProcess[str]:
    return folder.call("controlplane", "up", "--detach", "--replicas", "2", "--targets", "1", *options)


def etcdctl(folder: Folder, environment: str) -> subprocess.CompletedProcess[str]:
    command = f". {environment}; etcdctl get --prefix /controlplane/terms/ --keys-only"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.timeout(400)
def test_a_folder_with_tls_is_encrypted_everywhere(folder: Folder, tmp_path: Path) -> None:
    started = up(folder, "--tls")
    assert started.returncode == 0, started.stderr
    assert "every local user" not in started.stderr
    plane = folder.up_json()
    addresses = [*plane["etcd"], *(replica["http"] for replica in plane["replicas"])]
    assert all(address.startswith("https://") for address in addresses), addresses
    trusted = ssl.create_default_context(cafile=plane["tls"]["ca"])
    with urllib.request.urlopen(f"{plane['replicas'][0]['http']}/livez", context=trusted, timeout=10) as answer:
        assert answer.status == 200
    order = folder.submit("echo", "hello")
    eventually(lambda: folder.task(order)["phase"] == "Succeeded")
    # Over each replica: the one without the joblet asks its peer.
    for replica in plane["replicas"]:
        assert asked(folder, replica["grpc"], "logs", order).stdout == "hello\n"

    # etcd asks for the certificate that etcd.env names.
    assert "/controlplane/terms/" in etcdctl(folder, str(folder.path / "etcd.env")).stdout
    lines = [line for line in (folder.path / "etcd.env").read_text().splitlines() if "CERT=" not in line]
    (tmp_path / "without.env").write_text("\n".join(line for line in lines if "KEY=" not in line))
    assert etcdctl(folder, str(tmp_path / "without.env")).returncode != 0

    leader = folder.cpctl("leader")
    pids = {replica["id"]: replica["pid"] for replica in plane["replicas"]}
    os.kill(pids[leader["id"]], signal.SIGKILL)
    eventually(lambda: led(folder) > leader["epoch"])
    later = folder.submit("true")
    eventually(lambda: folder.task(later)["phase"] == "Succeeded")
    leader = folder.cpctl("leader")
    standby = next(replica for replica in folder.up_json()["replicas"] if replica["id"] != leader["id"])
    eventually(lambda: asked(folder, standby["grpc"], "step-down").returncode == 0)
    eventually(lambda: led(folder) > leader["epoch"])

    copy = str(tmp_path / "copy")
    assert folder.cpctl("backup", copy)["bytes"] > 0
    judged = folder.cpctl("verify")["promises"]
    assert [promise for promise in judged if promise["ok"] is False] == []
    assert {promise["promise"]: promise["ok"] for promise in judged}["P8"], "verify asked etcd and every replica"
    folder.call("controlplane", "down")
    assert Path(folder.cpctl("restore", copy, "--force")["aside"]).is_dir()

    # The next start needs no option, and says what the folder is.
    again = up(folder)
    assert again.returncode == 0, again.stderr
    assert "begun with --tls" in again.stderr
    assert folder.task(later)["phase"] == "Succeeded"
    assert folder.up_json()["tls"] == plane["tls"]


def led(folder: Folder) -> int:
    """The epoch of the leader, 0 while there is none."""
    answer = folder.call("cpctl", "leader", "-o", "json")
    return int(json.loads(answer.stdout)["epoch"]) if answer.returncode == 0 else 0


def asked(folder: Folder, address: str, *command: str) -> subprocess.CompletedProcess[str]:
    """cpctl with the address of one replica, as on another machine."""
    options = ("--endpoints", address, "--ca-file", folder.up_json()["tls"]["ca"])
    return folder.call("cpctl", command[0], *options, "--token-file", str(folder.path / "token"), *command[1:])


@pytest.mark.timeout(400)
def test_a_folder_without_tls_says_so_and_stays_so(folder: Folder) -> None:
    started = folder.up()
    assert started.returncode == 0, started.stderr
    assert "every local user can reach this etcd" in started.stderr
    assert folder.up_json()["tls"] is None
    folder.call("controlplane", "down")
    refused = up(folder, "--tls")
    assert refused.returncode == 1
    assert "was begun without TLS" in refused.stderr
    eventually(lambda: folder.alive() == [])
