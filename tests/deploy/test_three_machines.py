"""The guide's installation on three machines, followed command by command; then one machine is cut off."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy import guide
from tests.deploy.rendering import ROOT

_NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def _why_not() -> str:
    """The first reason why machines cannot be made here; empty when they can."""
    missing = [
        name for name in ("unshare", "nsenter", "ip", "setpriv", "systemd-sysusers") if shutil.which(name) is None
    ]
    if missing:
        return f"no {', '.join(missing)} on this machine"
    if os.geteuid() != 0 or subprocess.run([*_NAMESPACES, "true"], capture_output=True).returncode != 0:
        return "network namespaces cannot be made here: that needs root"
    return ""


def test_the_guide_has_steps_for_every_machine() -> None:
    steps = guide.installation()
    assert {step.machine for step in steps} == set(guide.MACHINES)
    assert [step.machine for step in steps if "controlplane-replica" in step.text] == [1, 2, 3]
    assert "controlplane reseal" in guide.later("reseal").text


@pytest.mark.long
@pytest.mark.timeout(900)
def test_three_machines_are_set_up_as_the_guide_says_and_one_may_be_cut_off(tmp_path: Path) -> None:
    if why := _why_not():
        pytest.skip(why)
    etcd = shutil.which("etcd")
    assert etcd is not None
    folder = tmp_path / "machines"
    folder.mkdir()
    done = subprocess.run(
        [*_NAMESPACES, sys.executable, "-m", "tests.deploy.three_machines", str(folder)],
        cwd=ROOT,
        env={**os.environ, "MACHINES_ETCD": os.path.realpath(etcd)},
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout + done.stderr
