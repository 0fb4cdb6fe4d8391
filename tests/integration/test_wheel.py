"""The built wheel is complete: installed where nothing else is, it runs a control plane from an empty folder."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.integration import environments


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the files that a checkout has, in a copy: a build leaves files beside its source."""
    folder = tmp_path_factory.mktemp("wheel")
    files = environments.run(["git", "ls-files", "-z"], folder=ROOT).split("\0")
    for name in filter(None, files):
        if name.startswith(("controlplane/", "pyproject.toml", "README.md", "LICENSE")) and (ROOT / name).exists():
            copy = folder / "source" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / name).read_bytes())
    environments.pip("wheel", "--no-deps", "--no-build-isolation", "-w", folder / "dist", folder / "source")
    return next((folder / "dist").glob("*.whl"))


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    files = environments.run(["git", "ls-files", "-z", "controlplane"], folder=ROOT).split("\0")
    wanted = {name for name in files if name and not name.endswith("controlplane/README.md")}
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder of the programs of an environment with the locked packages and the wheel, and nothing else."""
    python = environments.make(tmp_path / "environment")
    lock = ROOT / "deploy" / "requirements" / "runtime.lock"
    environments.pip("install", "--no-deps", "--no-compile", "--require-hashes", "-r", lock, python=python)
    environments.pip("install", "--no-deps", "--no-compile", "--no-index", wheel, python=python)
    yield python.parent
    (tmp_path / "empty").mkdir(exist_ok=True)
    environments.run(
        [python.parent / "controlplane", "down", "--data-dir", tmp_path / "data"], folder=tmp_path / "empty"
    )


def test_the_wheel_runs_an_order_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    # Of the test's own environment only what finds etcd; nothing that could lead to its packages.
    rest = [part for part in os.environ["PATH"].split(":") if not (Path(part) / "python").exists()]
    environment = {"PATH": ":".join([str(installed), *rest]), "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}

    def call(program: str, *arguments: str) -> str:
        words: list[str | Path] = [installed / program, arguments[0], "--data-dir", tmp_path / "data", *arguments[1:]]
        return environments.run(words, folder=empty, environment=environment)

    place = environments.run(
        [installed / "python", "-c", "import controlplane; print(controlplane.__file__)"],
        folder=empty,
        environment=environment,
    )
    assert Path(place.strip()).is_relative_to(installed.parent)
    call("controlplane", "up", "--detach", "--replicas", "1", "--targets", "1")
    order = json.loads(call("cpctl", "run", "-o", "json", "--", "sh", "-c", "echo from the wheel"))
    assert order["status"]["phase"] == "Succeeded", order
    assert "from the wheel" in call("cpctl", "logs", order["id"])
    assert "Writing orders" in environments.run(
        [installed / "cpctl", "help", "orders"], folder=empty, environment=environment
    )
    call("controlplane", "down")
    assert list(empty.iterdir()) == []
