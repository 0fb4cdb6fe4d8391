"""The container file, read line by line: stages, user, what may be copied. It is not built here."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field

import yaml

from tests.deploy.rendering import CHART, ROOT

FILE = ROOT / "deploy" / "container" / "Containerfile"
IGNORED = ROOT / "deploy" / "container" / "Containerfile.dockerignore"


@dataclass
class Stage:
    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        return [rest for step, rest in self.steps if step == word]


def read(text: str) -> tuple[dict[str, str], list[Stage]]:
    """The arguments before the first stage, and the stages."""
    joined = re.sub(r"\\\n\s*", "", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line in filter(None, (line.strip() for line in joined.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "ARG" and not stages:
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(base, name))
        else:
            assert word.isupper(), line
            stages[-1].steps.append((word, rest))
    return arguments, stages


def test_the_last_stage_builds_nothing_and_runs_as_nobody_known() -> None:
    _, stages = read(FILE.read_text())
    build, run = stages
    assert (build.name, run.name) == ("build", "run")
    assert run.all("USER") == ["65532:65532"]
    installing = re.compile(r"pip3? install|apt-get|apk |gcc|make\b|curl|wget")
    assert not any(installing.search(step) for step in run.all("RUN"))
    # Everything that runs as root comes before the user changes.
    words = [word for word, _ in run.steps]
    assert "RUN" not in words[words.index("USER") :]
    assert run.all("COPY") == ["--from=build /opt/controlplane /opt/controlplane"]


def test_nothing_is_fetched_by_add_and_no_base_floats() -> None:
    arguments, stages = read(FILE.read_text())
    for stage in stages:
        assert stage.all("ADD") == []
        base = re.sub(r"\$\{(\w+)\}", lambda name: arguments[name[1]], stage.base)
        _, _, tag = base.rpartition("/")[2].partition(":")
        assert re.match(r"\d+\.\d+\.\d+-", tag), f"{base} must name a full version"


def test_the_image_has_both_commands_and_the_version_of_chart_and_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["scripts"]) == {"controlplane", "cpctl"}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == project["version"]
    assert f"controlplane:{project['version']}" in FILE.read_text()


def test_a_read_only_root_is_enough() -> None:
    _, (_, run) = read(FILE.read_text())
    environment = " ".join(run.all("ENV"))
    assert "PYTHONDONTWRITEBYTECODE=1" in environment
    assert "HOME=/tmp" in environment
    assert run.all("VOLUME") == ["/var/lib/controlplane"]


def test_only_what_is_built_reaches_the_builder() -> None:
    _, (build, _) = read(FILE.read_text())
    copied = {name.rstrip("/") for step in build.all("COPY") for name in step.split()[:-1]}
    lines = [line for line in IGNORED.read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)
