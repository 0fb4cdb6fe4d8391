"""The tree keeps its own rules: who may import whom, docstrings, files of readable size, true pictures."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.pictures import PICTURES, TOUR, marked
from tests.architecture.source import ROOT, modules, shown, tree_of

TESTS = ROOT / "tests"
OURS = [*modules(), *sorted(TESTS.rglob("*.py"))]
MOST_LINES = 400
OF_PYTEST = re.compile(r"test_|conftest\.|__")
VAGUE = re.compile(r"(utils?|helpers?|common|base|managers?)\.py")


def test_imports_go_only_in_the_directions_of_the_contracts() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout


def test_every_package_is_named_in_the_layers() -> None:
    """A package outside of the layers could import anything."""
    layers = (ROOT / "pyproject.toml").read_text().split("layers = [")[1].split("]")[0]
    packages = {path.parent.name for path in (ROOT / "controlplane").glob("*/__init__.py")}
    assert packages - set(re.findall(r"controlplane\.(\w+)", layers)) == set()


@pytest.mark.parametrize("path", [path for path in OURS if path.name == "__init__.py"], ids=str)
def test_every_package_says_what_lives_in_it(path: Path) -> None:
    assert ast.get_docstring(tree_of(path))


def test_every_module_says_what_lives_in_it() -> None:
    silent = [shown(path) for path in OURS if ast.get_docstring(tree_of(path)) is None]
    assert silent == []


def test_no_file_is_too_long_to_read_in_one_sitting() -> None:
    lengths = {shown(path): len(path.read_text().splitlines()) for path in OURS}
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}


def test_every_logger_names_its_module() -> None:
    """A log line shows the name as its component."""
    unnamed = [shown(path) for path in modules() if "get_logger()" in path.read_text()]
    assert unnamed == []


def test_no_module_is_named_by_what_it_is_not() -> None:
    assert [shown(path) for path in OURS if VAGUE.fullmatch(path.name)] == []


def test_every_support_module_of_the_tests_has_its_line_in_their_readme() -> None:
    named = set(re.findall(r"(\w+\.py)", (TESTS / "README.md").read_text()))
    files = {path.name for path in TESTS.rglob("*.py")}
    silent = {shown(path) for path in TESTS.rglob("*.py") if not OF_PYTEST.match(path.name) and path.name not in named}
    assert (silent, named - files) == (set(), set())


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_in_the_tour_are_drawn_from_the_tables(name: str) -> None:
    found = marked(name).search(TOUR.read_text())
    assert found is not None, f"the tour has no picture of the {name}'s lifecycle"
    assert found[2] == PICTURES[name], "stale: python -m tests.architecture.pictures"
