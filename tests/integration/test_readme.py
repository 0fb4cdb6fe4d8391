"""The README's tour and the manual's examples are run, command by command, and what they show must be what comes out.

A step is a line that begins with `$ ` in a block of the language `console`; `...` in the shown output stands for
anything. The README's steps are those between its two `tour` marks, the manual's are those of all its pages. The data
folder is the test's own, and so is the shell.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from controlplane.cli import help_topics

ROOT = Path(__file__).parents[2]
TOUR = re.compile(r"<!-- tour -->(.*)<!-- /tour -->", re.DOTALL)
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
LEFT_BEHIND = ("film.yaml", "big.yaml", "run.out", "run.err")
MARK = "--- end of command, exit code "
_CHECKER = doctest.OutputChecker()


@dataclass(frozen=True)
class Step:
    command: str
    output: str


def tour_of(readme: str) -> str:
    tour = TOUR.search(readme)
    assert tour is not None
    return tour[1]


def steps_of(text: str) -> Iterator[Step]:
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            yield _step(part)


def _step(part: str) -> Step:
    """The command, with its here-document where it has one, then what it prints."""
    heredoc = re.match(r"[^\n]*<<'END'\n.*?\nEND\n", part, re.DOTALL)
    end = heredoc.end() if heredoc else part.index("\n") + 1
    return Step(part[:end], part[end:])


@contextmanager
def a_shell(tmp_path: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One bash for all steps: its variables and background jobs live on from command to command."""
    environment = {
        **os.environ,
        "CONTROLPLANE_DATA_DIR": str(tmp_path / "data"),
        "NO_COLOR": "1",
        "COLUMNS": "200",
        "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}",
    }
    bash = subprocess.Popen(
        ["bash"], cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield bash
    finally:
        bash.kill()
        bash.wait()
        assert bash.stdin is not None
        assert bash.stdout is not None
        bash.stdin.close()
        bash.stdout.close()
        subprocess.run(["controlplane", "down"], env=environment, check=False, capture_output=True)


def _run(bash: subprocess.Popen[str], command: str) -> tuple[str, int]:
    assert bash.stdin is not None
    assert bash.stdout is not None
    # Talk goes elsewhere: what is shown is data, except for the one refusal, which the command itself brings back.
    bash.stdin.write(
        f"{{ {command.rstrip()}\n}} 2>talk; code=$?; tail -n 3 talk | grep ^error: ; rm -f talk; echo '{MARK}'$code\n"
    )
    bash.stdin.flush()
    lines: list[str] = []
    for line in bash.stdout:
        if line.startswith(MARK):
            return "".join(lines), int(line.removeprefix(MARK))
        lines.append(line)
    raise AssertionError(f"the shell ended after {command!r}: {''.join(lines)}")


def _check(bash: subprocess.Popen[str], step: Step) -> None:
    printed, code = _run(bash, step.command)
    assert code == 0, f"$ {step.command}exit code {code}\n{printed}"
    wanted = "\n".join(sorted(step.output.splitlines())) if "error:" in step.output else step.output
    printed = "\n".join(sorted(printed.splitlines())) if "error:" in step.output else printed
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert _CHECKER.check_output(wanted, printed, flags), f"$ {step.command}showed\n{printed}\ninstead of\n{wanted}"


@pytest.mark.timeout(300)
def test_what_the_readme_shows_is_what_happens(tmp_path: Path) -> None:
    steps = list(steps_of(tour_of((ROOT / "README.md").read_text())))
    assert len(steps) > 10
    for name in LEFT_BEHIND:
        assert not (ROOT / name).exists(), f"{name} is in the way of the tour"
    try:
        with a_shell(tmp_path, ROOT) as bash:
            for step in steps:
                _check(bash, step)
    finally:
        for name in LEFT_BEHIND:
            (ROOT / name).unlink(missing_ok=True)


@pytest.mark.timeout(300)
def test_what_the_manual_shows_is_what_happens(tmp_path: Path) -> None:
    steps = [step for topic in help_topics.TOPICS for step in steps_of(help_topics.page(topic))]
    assert len(steps) > 10
    with a_shell(tmp_path, tmp_path) as bash:
        _check(bash, Step("controlplane up --detach\n", "...\n"))
        for step in steps:
            _check(bash, step)
