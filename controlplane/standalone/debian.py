"""Debian packages: installed as root, or downloaded and unpacked into a folder without root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from controlplane.model.errors import Unavailable

_SECONDS = 600
# A package without a signature is never taken, whatever the machine's configuration allows.
_VERIFIED = ("-o", "Acquire::AllowInsecureRepositories=0", "-o", "APT::Get::AllowUnauthenticated=0")


def install(packages: list[str]) -> None:
    """apt-get install, which needs root; asks no questions."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *_VERIFIED, *packages]
    if _run(command, environment=environment) != 0:
        _must(["apt-get", "update", "-q"], environment=environment)
        _must(command, environment=environment)


def unpack(packages: list[str], target: Path, state: Path, *, release: str = "") -> None:
    """Unpacks packages below `target` without root; apt's lists and downloads are kept in `state`.

    With `release` (such as `trixie`) the packages are of that Debian release, from the machine's own mirror.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable("this is not Debian: no apt-get")
    options = _own_state(state)
    if release:
        options = _of_release(options, release, state.with_name(f"{state.name}-{release}"))
    with tempfile.TemporaryDirectory() as folder:
        command = ["apt-get", *options, "download", "-q", *packages]
        if _run(command, folder=folder) != 0:
            _must(["apt-get", *options, "update", "-q"], folder=folder)
            _must(command, folder=folder)
        fresh = target.with_name(target.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for archive in Path(folder).glob("*.deb"):
            _must(["dpkg", "-x", str(archive), str(fresh)])
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)


def _own_state(state: Path) -> list[str]:
    """apt options for own lists and downloads: those of the machine belong to root, and may be empty."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    return [
        "-o", f"Dir::State={state}", "-o", f"Dir::State::lists={state / 'lists'}",
        "-o", "Dir::State::status=/var/lib/dpkg/status", "-o", f"Dir::Cache={state / 'cache'}",
        "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=", *_VERIFIED,
    ]  # fmt: skip


def _of_release(options: list[str], release: str, state: Path) -> list[str]:
    """apt options for another release, apart from the machine's lists; apt checks the release by its Debian keys."""
    mirror = _mirror(options)
    if not mirror:
        _must(["apt-get", *options, "update", "-q"])
        mirror = _mirror(options)
    if not mirror:
        raise Unavailable("apt has no mirror of Debian set up")
    own = _own_state(state)
    sources = state / "sources.list"
    sources.write_text(f"deb {mirror} {release} main\n")
    return [*own, "-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=/dev/null"]


def _mirror(options: list[str]) -> str:
    """The URL of the machine's mirror of Debian main; empty while apt has no lists."""
    parts = ["Created-By: Packages", "Origin: Debian", "Component: main"]
    command = ["apt-get", *options, "indextargets", "--format", "$(REPO_URI) $(SUITE)", *parts]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_SECONDS)
    urls = [line.split()[0] for line in answer.stdout.splitlines() if "-" not in line.split()[-1]]
    return urls[0] if urls else ""


def _must(command: list[str], *, folder: str | None = None, environment: dict[str, str] | None = None) -> None:
    code = _run(command, folder=folder, environment=environment)
    if code != 0:
        raise Unavailable(f"`{' '.join(command)}` ended with {code}")


def _run(command: list[str], *, folder: str | None = None, environment: dict[str, str] | None = None) -> int:
    """Runs a tool with its output on stderr, which keeps stdout for data."""
    try:
        return subprocess.run(command, cwd=folder, env=environment, stdout=2, timeout=_SECONDS).returncode
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not there") from None
