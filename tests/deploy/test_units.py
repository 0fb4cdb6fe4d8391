"""The systemd units: systemd itself takes them, judges them hardened, and they give options that the commands have."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.rendering import ROOT
from tests.deploy.shown_options import options_in, options_of

UNITS = ROOT / "deploy" / "systemd"
# systemd's own exposure level, 0 to 10: what the units reach now, so that nothing is taken back unseen.
ETCD, REPLICA = "controlplane-etcd.service", "controlplane-replica.service"
JOBLET = "controlplane-joblet@eu-1.service"
THRESHOLDS = {ETCD: 1.1, REPLICA: 1.1, JOBLET: 3.1}
_ANALYZE = shutil.which("systemd-analyze")

needs_systemd = pytest.mark.skipif(_ANALYZE is None, reason="no systemd-analyze on this machine")


class Unit(dict[str, list[str]]):
    """Settings of all sections by name; each may be given several times."""

    def __init__(self, text: str) -> None:
        super().__init__()
        for line in text.splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                self.setdefault(name, []).append(value)


def unit(name: str) -> Unit:
    return Unit((UNITS / re.sub(r"@.*\.", "@.", name)).read_text())


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units with a program that exists, and an instance of the joblet's."""
    program = Path(sys.executable).parent
    for name in THRESHOLDS:
        text = (UNITS / re.sub(r"@.*\.", "@.", name)).read_text()
        (tmp_path / name).write_text(
            text.replace("/opt/controlplane/bin", str(program)).replace("/usr/bin/etcd", "/bin/true")
        )
    return tmp_path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert _ANALYZE is not None
    return subprocess.run([_ANALYZE, "--no-pager", *arguments], capture_output=True, text=True, timeout=60)


@needs_systemd
@pytest.mark.parametrize("name", THRESHOLDS)
def test_systemd_takes_the_unit(installed: Path, name: str) -> None:
    done = analyze("--man=no", "verify", str(installed / name))
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_systemd_refuses_a_unit_with_a_wrong_setting(installed: Path) -> None:
    wrong = installed / REPLICA
    wrong.write_text(wrong.read_text().replace("ProtectSystem=strict", "ProtectSystm=strict"))
    assert "ProtectSystm" in analyze("--man=no", "verify", str(wrong)).stderr


@needs_systemd
@pytest.mark.parametrize(("name", "threshold"), THRESHOLDS.items())
def test_systemd_judges_the_unit_hardened(installed: Path, name: str, threshold: float) -> None:
    done = analyze("security", "--offline=true", f"--threshold={round(threshold * 10)}", str(installed / name))
    assert done.returncode == 0, done.stdout


@needs_systemd
def test_a_unit_without_its_sandbox_is_judged_exposed(installed: Path) -> None:
    bare = installed / REPLICA
    bare.write_text(
        re.sub(r"^(Protect|Private|Restrict|SystemCall|Capability)\w+=.*$", "", bare.read_text(), flags=re.M)
    )
    assert analyze("security", "--offline=true", "--threshold=40", str(bare)).returncode != 0


def test_etcd_replica_joblet_and_tasks_are_four_users() -> None:
    users = [unit(name)["User"][0] for name in THRESHOLDS]
    (run_as,) = re.findall(r"--run-as (\S+)", unit(JOBLET)["ExecStart"][0])
    assert [*users, run_as] == ["controlplane-etcd", "controlplane", "controlplane-joblet", "controlplane-tasks"]
    made = re.findall(r"^u (\S+)", (UNITS / "controlplane.sysusers").read_text(), re.M)
    assert made == [*users, run_as]


@pytest.mark.parametrize(("name", "command"), [(REPLICA, "replica"), (JOBLET, "joblet")])
def test_a_unit_gives_options_that_the_command_has(name: str, command: str) -> None:
    given = options_in(unit(name)["ExecStart"][0])
    assert given <= options_of(command)
    assert "--insecure" not in given


@pytest.mark.parametrize(
    ("name", "environment"), [(ETCD, "etcd.env"), (REPLICA, "replica.env"), (JOBLET, "joblet.env")]
)
def test_every_variable_of_a_unit_is_in_its_file(name: str, environment: str) -> None:
    file = configparser.ConfigParser()
    file.optionxform = str  # type: ignore[assignment,method-assign]
    file.read_string("[env]\n" + (UNITS / environment).read_text())
    assert set(re.findall(r"\$\{(\w+)\}", unit(name)["ExecStart"][0])) == set(file["env"])


def test_keys_and_tokens_come_by_credentials_and_never_by_the_environment() -> None:
    for name in THRESHOLDS:
        start = unit(name)["ExecStart"][0]
        sources = {one.partition(":")[0] for one in unit(name).get("LoadCredential", ())}
        assert set(re.findall(r"%d/(\S+)", start)) == sources
        assert unit(name)["LimitCORE"] == ["0"]
    for file in UNITS.glob("*.env"):
        names = re.findall(r"^(\w+)=", file.read_text(), re.M)
        assert not {"TOKEN", "SECRET", "KEY", "PASSWORD"} & set(names)


def test_commands_outlive_their_joblet_and_keep_their_tmp() -> None:
    joblet = unit(JOBLET)
    assert joblet["KillMode"] == ["process"]
    assert "PrivateTmp" not in joblet
