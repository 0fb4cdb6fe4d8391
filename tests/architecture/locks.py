"""The lock files, and the requirements of `pyproject.toml` that each of them is for.

`python -m tests.architecture.locks build|runtime|dev` prints the requirements, with a digest of them; `scripts/lock`
puts the digest into the lock file, so that a lock which is older than a requirement is told without a package index.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import ROOT

FOLDER = ROOT / "deploy" / "requirements"
NAMES = ("build", "runtime", "dev")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; (.*?))?((?: \\\n    --hash=sha256:[0-9a-f]{64})*)$", re.MULTILINE)


@dataclass(frozen=True)
class Pin:
    """One version of a package with the hashes of its files; `marker` says where the version is for."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    @property
    def is_for_this_python(self) -> bool:
        return not self.marker or Marker(self.marker).evaluate()


def project() -> Mapping[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements(name: str) -> list[Requirement]:
    """Of the project, by the lock that they belong to; those of development include those at run time."""
    content = project()
    runtime = content["project"]["dependencies"]
    texts = {
        "build": content["build-system"]["requires"],
        "runtime": runtime,
        "dev": [*runtime, *content["project"]["optional-dependencies"]["dev"]],
    }[name]
    return [Requirement(text) for text in texts]


def digest_line(name: str) -> str:
    text = "\n".join([project()["project"]["requires-python"], *sorted(map(str, requirements(name)))])
    return f"# for the requirements {hashlib.sha256(text.encode()).hexdigest()}"


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.lock").read_text()


def pins(text: str) -> list[Pin]:
    """Each line that is neither a comment nor a pin fails."""
    matches = list(_PIN.finditer(text))
    rest = _PIN.sub("", text)
    strange = [line for line in rest.splitlines() if line.strip() and not line.startswith("#")]
    assert strange == [], strange
    return [
        Pin(canonicalize_name(match[1]), match[2], match[3] or "", tuple(re.findall(r"[0-9a-f]{64}", match[4])))
        for match in matches
    ]


def main() -> None:
    name = sys.argv[1]
    sys.stdout.write("\n".join([digest_line(name), *map(str, requirements(name))]) + "\n")


if __name__ == "__main__":
    main()
