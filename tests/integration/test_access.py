"""Access as a user meets it: a submitter's token, what it may do and see, and its end; every command is a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.folder import SECONDS, Folder, eventually

# Of them one for the stream, the rest for the process on a busy machine.
ENDED_WITHIN_SECONDS = 3.0


class TokenUser:
    """A user of a folder's plane with a token in the environment, which counts before the token of the folder."""

    def __init__(self, folder: Folder, token: str) -> None:
        self._folder = folder
        self.environment = {**os.environ, "CONTROLPLANE_TOKEN": token}

    def argv(self, *arguments: str) -> list[str]:
        command, *rest = arguments
        words = (command, rest.pop(0)) if command in ("auth", "token") else (command,)
        return [
            sys.executable, "-m", "controlplane.cli.cpctl", *words, "--data-dir", str(self._folder.path), *rest
        ]  # fmt: skip

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            self.argv(*arguments), env=self.environment, capture_output=True, text=True, timeout=SECONDS
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def plane(folder: Folder) -> Folder:
    answer = folder.up()
    assert answer.returncode == 0, answer.stderr
    return folder


def made(admin: TokenUser, *options: str) -> dict[str, str]:
    code, out, err = admin("token", "create", *options, "-o", "json")
    assert code == 0, err
    token: dict[str, str] = json.loads(out)
    return token


def submitted(caller: TokenUser, file: Path) -> str:
    file.write_text(json.dumps({"kind": "Order", "packet": {"jobs": [{"job": {"command": ["sleep", "60"]}}]}}))
    code, out, err = caller("submit", "-f", str(file), "-o", "name")
    assert code == 0, err
    return out.strip()


def test_a_submitter_works_alone_until_the_token_is_revoked(plane: Folder, tmp_path: Path) -> None:
    admin = TokenUser(plane, (plane.path / "token").read_text().strip())
    token = made(admin, "--subject", "bob", "--role", "submitter", "--expires", "1d")
    bob = TokenUser(plane, token["token"])
    assert json.loads(bob("auth", "whoami", "-o", "json")[1])["name"] == "bob"

    # The token of a file counts before the token of the environment.
    file = tmp_path / "bob.token"
    file.write_text(f"{token['token']}\n")
    assert admin("auth", "whoami", "--token-file", str(file), "-o", "name") == (0, "bob\n", "")

    assert bob("auth", "can-i", "create", "order") == (0, "yes\n", "")
    code, out, _ = bob("auth", "can-i", "update", "target")
    assert (code, out) == (2, "no: 'bob' (submitter) may not update target\n")
    code, _, err = bob("cordon", "local-1")
    assert (code, err) == (1, "error: Forbidden: 'bob' (submitter) may not update target\n")

    own, foreign = submitted(bob, tmp_path / "bob.json"), submitted(admin, tmp_path / "admin.json")
    assert json.loads(bob("get", "order", own, "-o", "json")[1])["owner"] == "bob"
    assert bob("get", "orders", "-o", "name")[1].split() == [own]
    for command in (("get", "order"), ("describe", "order"), ("cancel",), ("explain",), ("logs",)):
        code, out, err = bob(*command, foreign)
        assert (code, out) == (1, ""), command
        assert err.startswith("error: NotFound: "), command

    watch = subprocess.Popen(
        bob.argv("get", "orders", "--watch", "-o", "name"), env=bob.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert watch.stdout is not None
        assert watch.stdout.readline().strip() == own
        assert admin("token", "revoke", token["id"])[0] == 0
        revoked = time.monotonic()
        _, err = watch.communicate(timeout=SECONDS)
        assert time.monotonic() - revoked < ENDED_WITHIN_SECONDS
    finally:
        watch.kill()
    assert (watch.returncode, err) == (1, "error: Unauthenticated: the token is unknown, or was revoked\n")

    assert bob("get", "orders")[0] == 1
    assert bob("get", "orders")[2].startswith("error: Unauthenticated: ")
    # The order goes on under its owner.
    order = json.loads(admin("get", "order", own, "-o", "json")[1])
    assert (order["owner"], order["status"]["phase"]) == ("bob", "Running")


def test_roles_come_and_go_with_bindings_but_one_administrator_stays(plane: Folder) -> None:
    admin = TokenUser(plane, (plane.path / "token").read_text().strip())
    bob = TokenUser(plane, made(admin, "--subject", "bob", "--role", "submitter", "--group", "editors")["token"])

    assert bob("get", "cycles")[2] == "error: Forbidden: 'bob' (submitter) may not read cycle\n"
    assert admin("grant", "viewer", "--group", "editors", "-o", "name") == (0, "viewer-group-editors\n", "")
    assert bob("get", "cycles")[0] == 0
    assert admin("auth", "bindings", "-o", "name") == (0, "viewer-group-editors\n", "")
    assert admin("ungrant", "viewer-group-editors")[0] == 0
    assert bob("get", "cycles")[0] == 1

    identity = json.loads(admin("auth", "whoami", "-o", "json")[1])["via"]
    code, _, err = admin("token", "revoke", identity)
    assert (code, err.partition(": the last administrator")[0]) == (1, "error: IllegalTransition")

    # No token goes to an address that is named: the folder's own is for the folder's replicas.
    address = plane.up_json()["replicas"][0]["grpc"]
    argv = [sys.executable, "-m", "controlplane.cli.cpctl", "get", "orders", "--endpoints", address]
    without = {name: value for name, value in os.environ.items() if name != "CONTROLPLANE_TOKEN"}
    refused = subprocess.run(argv, env=without, capture_output=True, text=True, timeout=SECONDS)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: Unauthenticated: credentials are missing")


def a_joblet(target: str, address: str, folder: Path) -> subprocess.Popen[bytes]:
    argv = [
        sys.executable, "-m", "controlplane.cli.controlplane", "joblet", "--target", target, "--endpoints", address,
        "--driver", "simulated", "--capacity", "cpu=1", "--token-file", str(folder / "edge.token"),
    ]  # fmt: skip
    with (folder / f"{target}.log").open("w") as log:
        return subprocess.Popen(argv, stdout=log, stderr=log)


def test_a_joblet_creates_the_target_of_its_token_and_no_other(plane: Folder, tmp_path: Path) -> None:
    admin = TokenUser(plane, (plane.path / "token").read_text().strip())
    token = made(admin, "--subject", "edge", "--role", "joblet", "--target", "edge-7", "--driver", "simulated")
    (tmp_path / "edge.token").write_text(f"{token['token']}\n")
    address = plane.up_json()["replicas"][0]["grpc"]
    joblets = [a_joblet(target, address, tmp_path) for target in ("edge-7", "edge-8")]
    try:
        eventually(lambda: admin("get", "target", "edge-7")[0] == 0)
        eventually(lambda: "a replica refused" in (tmp_path / "edge-8.log").read_text())
    finally:
        for joblet in joblets:
            joblet.terminate()
            joblet.wait(SECONDS)
    target = json.loads(admin("get", "target", "edge-7", "-o", "json")[1])
    assert (target["owner"], target["creator"]) == ("edge", "joblet")
    assert admin("get", "target", "edge-8")[0] == 1
