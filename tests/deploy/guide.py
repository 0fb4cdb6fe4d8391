"""The fenced commands of `deploy/README.md`, which tests run as an operator would type them.

A fence that says where it runs is a step: `sh on=each`, `sh on=1`, and words after it. Fences without are shown only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.deploy.rendering import ROOT

GUIDE = ROOT / "deploy" / "README.md"
_FENCE = re.compile(r"^```sh (?P<words>[^\n]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
MACHINES = (1, 2, 3)


@dataclass(frozen=True)
class Fence:
    """`words` are those behind `sh`."""

    words: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Step:
    machine: int
    text: str


def fences() -> list[Fence]:
    return [Fence(tuple(found["words"].split()), found["text"]) for found in _FENCE.finditer(GUIDE.read_text())]


def installation() -> list[Step]:
    """The steps of the installation, in order; those that say `later` come after it."""
    steps = []
    for fence in fences():
        where = next((word.removeprefix("on=") for word in fence.words if word.startswith("on=")), "")
        if where and "later" not in fence.words:
            steps += [Step(machine, fence.text) for machine in (MACHINES if where == "each" else (int(where),))]
    return steps


def later(word: str) -> Step:
    """The step on the first machine whose commands hold the word."""
    (fence,) = [fence for fence in fences() if "later" in fence.words and word in fence.text]
    return Step(1, fence.text)


def etcd_users() -> str:
    (fence,) = [fence for fence in fences() if fence.words == ("etcd-users",)]
    return fence.text
