"""Failpoints: only what is planned happens, and only while armed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from controlplane.aio.failpoint import Failpoints


def run(plan: str, *points: str) -> int:
    code = f"from controlplane.aio.failpoint import Failpoints\npoints = Failpoints({plan!r})\n"
    code += "".join(f"points.reach({point!r})\n" for point in points)
    return subprocess.run([sys.executable, "-c", code], timeout=60).returncode


def test_a_crash_point_kills_the_process_and_other_points_do_nothing() -> None:
    assert run("here=crash", "there") == 0
    assert run("here=crash", "there", "here") == -9


def test_an_armed_point_fires_once_and_only_while_its_file_exists(tmp_path: Path) -> None:
    file = tmp_path / "armed"
    plan = f"here=crash@{file}"
    assert run(plan, "here") == 0
    file.touch()
    assert run(plan, "here") == -9
    assert not file.exists()
    assert run(plan, "here") == 0


def test_a_block_point_holds_its_thread_for_that_time() -> None:
    points = Failpoints("here=block:0.05")
    before = time.monotonic()
    points.reach("here")
    assert time.monotonic() - before >= 0.05


@pytest.mark.parametrize("plan", ["here", "here=", "here=explode", "a=crash,b=block"])
def test_a_plan_that_means_nothing_is_refused(plan: str) -> None:
    with pytest.raises(ValueError, match="failpoint"):
        Failpoints(plan)
