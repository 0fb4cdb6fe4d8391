"""Enrolment as an operator meets it: a real joblet joins, works, renews across failovers, and is revoked."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.folder import SECONDS, Folder, eventually
from tests.integration.test_access import TokenUser

LIFETIME_SECONDS = 14
TARGET = "host-7"


@pytest.fixture
def plane(folder: Folder) -> Folder:
    answer = folder.up()
    assert answer.returncode == 0, answer.stderr
    return folder


@pytest.fixture
def admin(plane: Folder) -> TokenUser:
    return TokenUser(plane, (plane.path / "token").read_text().strip())


def shown(admin: TokenUser, *arguments: str) -> Any:
    code, out, err = admin(*arguments, "-o", "json")
    assert code == 0, err
    return json.loads(out)


def endpoints(plane: Folder) -> str:
    return ",".join(replica["grpc"] for replica in plane.up_json()["replicas"])


class Joblet:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def said(self, words: str) -> bool:
        return words in self._log.read_text()


@contextmanager
def a_joblet(
    plane: Folder, folder: Path, *options: str, target: str = TARGET, driver: str = "process", token: str = ""
) -> Iterator[Joblet]:
    argv = [
        sys.executable, "-m", "controlplane.cli.controlplane", "joblet", "--target", target,
        "--endpoints", endpoints(plane), "--driver", driver, "--capacity", "cpu=4", "--data-dir", str(folder), *options,
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "CONTROLPLANE_TOKEN"}
    # No token of a person is found by itself.
    environment |= {"CONTROLPLANE_DATA_DIR": str(folder.parent / "nowhere")}
    environment |= {"CONTROLPLANE_TOKEN": token} if token else {}
    log = folder.parent / f"{folder.name}.log"
    with log.open("a") as file:
        process = subprocess.Popen(argv, stdout=file, stderr=file, env=environment)
    try:
        yield Joblet(process, log)
    finally:
        process.terminate()
        process.wait(SECONDS)


def is_ready(admin: TokenUser, target: str = TARGET) -> bool:
    code, out, _ = admin("get", "target", target, "-o", "json")
    return code == 0 and (json.loads(out).get("status") or {}).get("phase") == "Ready"


def credential(admin: TokenUser, identity: str) -> dict[str, Any]:
    return next(item for item in shown(admin, "token", "list")["items"] if item["id"] == identity)


def is_renewed(admin: TokenUser, identity: str, since: str) -> bool:
    return bool(credential(admin, identity)["renewed"] > since)


def test_a_joblet_enrols_works_renews_through_failovers_and_ends_when_revoked(
    plane: Folder, admin: TokenUser, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"kind: Settings\njoblet_credential: {LIFETIME_SECONDS}\n")
    assert admin("apply", "-f", str(settings))[0] == 0
    enrolment = shown(admin, "enrol", TARGET, "--driver", "process")
    assert (enrolment["targets"], enrolment["driver"]) == ([TARGET], "process")
    home = tmp_path / "joblet"
    with a_joblet(plane, home, "--enrol", enrolment["token"]) as joblet:
        eventually(lambda: is_ready(admin))
        # The token is hidden from the list of processes.
        command_line = Path(f"/proc/{joblet.process.pid}/cmdline").read_text()
        assert enrolment["token"] not in command_line
        assert TARGET in command_line
        kept = home / "credential"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        code, _, err = admin("run", "--target", TARGET, "--", "true")
        assert code == 0, err

        # Renewals go on while the leader is killed.
        since = credential(admin, enrolment["id"])["renewed"]
        leader = shown(admin, "leader")["id"]
        pid = next(item["pid"] for item in shown(admin, "status")["replicas"] if item["id"] == leader)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: is_renewed(admin, enrolment["id"], since))
        assert is_ready(admin)

    # The next joblet of the folder needs no token; a token that is used up does no harm.
    text = json.loads(kept.read_text())["token"]
    with a_joblet(plane, home, "--enrol", enrolment["token"]) as joblet:
        eventually(lambda: is_ready(admin) and joblet.said("connected"))
        since = credential(admin, enrolment["id"])["renewed"]
        eventually(lambda: is_renewed(admin, enrolment["id"], since))
        assert json.loads(kept.read_text())["token"] != text

        assert admin("token", "revoke", enrolment["id"])[0] == 0
        eventually(lambda: joblet.said("was revoked, or has expired"))
        assert joblet.process.poll() is None
        eventually(lambda: not is_ready(admin))

    # Revoked, and without a new token: an error that names the next command.
    with a_joblet(plane, home) as joblet:
        assert joblet.process.wait(SECONDS) == 1
        assert joblet.said(f"`cpctl enrol {TARGET}`")
    again = shown(admin, "enrol", TARGET)
    with a_joblet(plane, home, "--enrol", again["token"]):
        eventually(lambda: is_ready(admin))


def test_a_used_up_token_enrols_no_second_joblet(plane: Folder, admin: TokenUser, tmp_path: Path) -> None:
    token = shown(admin, "enrol", TARGET)["token"]
    with a_joblet(plane, tmp_path / "first", "--enrol", token, driver="simulated"):
        eventually(lambda: is_ready(admin))
        with a_joblet(plane, tmp_path / "second", "--enrol", token, driver="simulated") as second:
            assert second.process.wait(SECONDS) == 1
            assert second.said("used up")
            assert second.said(f"cpctl enrol {TARGET}")


def test_a_joblet_with_the_token_of_an_operator_enrols_by_itself(
    plane: Folder, admin: TokenUser, tmp_path: Path
) -> None:
    token = shown(admin, "token", "create", "--subject", "olga", "--role", "operator")["token"]
    options = ("--count", "3")
    with a_joblet(plane, tmp_path / "many", *options, target="sim", driver="simulated", token=token):
        eventually(lambda: all(is_ready(admin, f"sim-{number}") for number in range(3)))
    target = shown(admin, "get", "target", "sim-1")
    assert (target["owner"], target["creator"]) == ("olga", "joblet")
    (record,) = (item for item in shown(admin, "token", "list")["items"] if item["enrolled"])
    assert (record["roles"], record["targets"]) == (["joblet"], ["sim-0", "sim-1", "sim-2"])
