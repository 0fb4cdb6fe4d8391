"""The lower bounds of the requirements are true: the unit tests pass on the oldest versions that are allowed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.architecture.locks import pins, requirements, text_of
from tests.architecture.source import ROOT
from tests.integration import environments

UNIT_TESTS_SECONDS = 1200


def oldest(folder: Path) -> dict[str, str]:
    """The oldest version of each requirement at run time, and of all else what fits."""
    wanted = folder / "runtime.in"
    wanted.write_text("\n".join(map(str, requirements("runtime"))))
    options = [
        "--resolution",
        "lowest-direct",
        "--no-build",
        "--no-header",
        "--no-annotate",
        "--python-version",
        "3.11",
    ]
    locked = folder / "runtime.txt"
    environments.uv("pip", "compile", *options, "--output-file", locked, wanted)
    return dict(line.split("==") for line in locked.read_text().split())


@pytest.mark.long
@pytest.mark.timeout(UNIT_TESTS_SECONDS + 300)
def test_the_unit_tests_pass_on_the_oldest_versions(tmp_path: Path) -> None:
    versions = oldest(tmp_path)
    for item in requirements("runtime"):
        lowest = next(part.version for part in item.specifier if part.operator == ">=")
        chosen = versions[canonicalize_name(item.name)]
        assert f"{chosen}.".startswith(f"{lowest}."), f"{item}: {lowest} fits nothing, the oldest that does is {chosen}"
    tools = [
        f"{pin.name}=={pin.version}"
        for pin in pins(text_of("dev"))
        if pin.is_for_this_python and pin.name not in versions
    ]
    python = environments.make(tmp_path / "environment")
    chosen_all = tmp_path / "all.txt"
    chosen_all.write_text("\n".join([*(f"{name}=={version}" for name, version in versions.items()), *tools]))
    environments.pip("install", "--no-deps", "--only-binary", ":all:", "-r", chosen_all, python=python)
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", "-n", "2", "tests/unit"],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=UNIT_TESTS_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-4000:]
