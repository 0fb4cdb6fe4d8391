"""The documents keep to the code: paths, commands, options, examples and generated tables that they show are real."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from controlplane.cli import command_groups, documents, help_topics
from controlplane.cli.controlplane import app
from controlplane.model import failure
from controlplane.store import keys
from controlplane.verify.promises import SENTENCES
from tests.architecture import reference_tables

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "controlplane" / "docs"
README, TOUR = ROOT / "README.md", ROOT / "controlplane" / "README.md"
PAGES = [DOCS / f"{topic}.md" for topic in help_topics.TOPICS]
ALL = [README, TOUR, ROOT / "deploy" / "README.md", ROOT / "tests" / "README.md", *PAGES]
MOST_LINES = 250
MOST_LETTERS = 80  # of the line that describes a page
FAULTS = 26

# Where a path that a document names may begin: at the root, in the package, in the tests or in the protocol's folder.
BASES = (ROOT, ROOT / "controlplane", ROOT / "tests", ROOT / "proto")
FILES = [path.as_posix() for folder in ("controlplane", "tests") for path in (ROOT / folder).rglob("*.py")]
CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"[\w.-]+(/[\w.-]+)*(\.py|/)")
MODULE = re.compile(r"(controlplane|tests)(\.[a-z_0-9]+)+")
CALL = re.compile(r"(?:^|[$(]|\|\| )\s*(cpctl|controlplane)((?: +[^#|<>;&)\n]+)?)", re.MULTILINE)
WORD = re.compile(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`")
PLACEHOLDER = re.compile(r"[A-Z]+")


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(text: str) -> str:
    return FENCED.sub("", text)


@pytest.mark.parametrize("path", ALL, ids=label)
def test_every_path_that_a_document_names_exists(path: Path) -> None:
    missing = [name for name in CODE.findall(prose(path.read_text())) if PATH.fullmatch(name) and not exists(name)]
    assert missing == []


def exists(name: str) -> bool:
    """A path from one of the bases, the end of the path of a Python file, or the front of keys in etcd."""
    if any((base / name).exists() for base in BASES):
        return True
    return any(path.endswith(f"/{name}") for path in FILES) or any(tree == name[:-1] for tree in keys.TREES)


@pytest.mark.parametrize("path", ALL, ids=label)
def test_every_module_that_a_document_names_exists(path: Path) -> None:
    names = (name for code in CODE.findall(path.read_text()) for name in code.split())
    modules = [name.replace(".", "/") for name in names if MODULE.fullmatch(name)]
    missing = [
        name for name in modules if not any((base / (name + end)).exists() for base in BASES for end in ("", ".py"))
    ]
    assert missing == []


@pytest.mark.parametrize("path", ALL, ids=label)
def test_every_link_leads_somewhere(path: Path) -> None:
    broken = []
    for link in LINK.findall(prose(path.read_text())):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def anchors(path: Path) -> set[str]:
    """The headings as a web page names them."""
    headings = re.findall(r"^#+ (.+)$", prose(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", ALL, ids=label)
def test_every_command_and_option_that_a_document_shows_exists(path: Path) -> None:
    text = path.read_text()
    shown = [*(block for _, block in FENCED.findall(text)), *CODE.findall(prose(text))]
    calls = [call for block in shown for call in CALL.findall(block.replace("\\|", "/"))]
    wrong = [(program, rest.strip()) for program, rest in calls if not is_known(program, rest)]
    assert wrong == []


def is_known(program: str, rest: str) -> bool:
    """Whether the command line is that of a command with these options; a word in capitals stands for anything."""
    command: Any = GROUPS[program]
    options: set[str] = set()
    for word in re.sub(r"[\[\],'\"]", " ", rest).split():
        if word == "--":
            break
        if word.startswith("-") and word != "-":
            options.add(word.partition("=")[0])
        elif hasattr(command, "commands") and not PLACEHOLDER.fullmatch(word):
            command = command.commands.get(word)
            if command is None:
                return False
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    return options <= known | {"--help", "-h"}


GROUPS = {"cpctl": typer.main.get_command(command_groups.application()), "controlplane": typer.main.get_command(app)}


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(text, id=label(path))
        for path in ALL
        for kind, text in FENCED.findall(path.read_text())
        if kind == "yaml"
    ],
)
def test_every_object_that_a_document_shows_is_read(block: str, tmp_path: Path) -> None:
    """A block without a kind shows fields of a job."""
    file = tmp_path / "shown.yaml"
    file.write_text(block if "kind:" in block else f"kind: Job\n{block}")
    assert documents.read(str(file))


def test_the_readme_is_short_and_links_every_page() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert {link.rpartition("/")[2].partition("#")[0] for link in LINK.findall(text)} >= {page.name for page in PAGES}


def test_every_page_is_a_topic_and_begins_with_a_title_and_a_line() -> None:
    assert {path.name for path in DOCS.iterdir()} == {path.name for path in PAGES}
    for path in PAGES:
        title, line, _ = path.read_text().split("\n\n", 2)
        assert re.fullmatch("# [A-Z].*", title)
        assert re.fullmatch(f"[A-Z].{{1,{MOST_LETTERS}}}[.]", line), f"{label(path)}: {line}"


def test_every_page_is_shipped_with_the_package() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "controlplane"
    ]
    assert all(any(fnmatch.fnmatch(f"docs/{page.name}", pattern) for pattern in patterns) for page in PAGES)


# Reference


def test_the_tables_of_the_reference_follow_from_the_code() -> None:
    page = reference_tables.REFERENCE.read_text()
    assert set(reference_tables.sections(page)) == set(reference_tables.SECTIONS)
    assert reference_tables.refreshed(page) == page, "stale: python -m tests.architecture.reference_tables"
    assert reference_tables.unexplained(page) == [], "write their meaning into the page"


def test_every_tree_of_keys_is_in_the_reference() -> None:
    shown = re.findall(r"^\| (`.*?`) \|", section("Keys"), re.MULTILINE)
    named = {key.partition("<")[0].rstrip("/") for cell in shown for key in CODE.findall(cell)}
    named |= {key.rpartition("/")[0] for key in named if key.count("/") == 1}
    assert set(keys.TREES) - named == set()


@pytest.mark.parametrize("title", ["Reasons", "Events", "Phases"])
def test_every_word_of_the_reference_is_a_word_of_the_code(title: str) -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "controlplane").rglob("*.py"))
    invented = {word for word in WORD.findall(section(title)) if f'"{word}"' not in code}
    assert invented == set()


def section(title: str) -> str:
    return reference_tables.REFERENCE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_reason_that_policies_know_is_explained() -> None:
    text = (DOCS / "failures.md").read_text()
    assert [reason for reason in failure.REASONS if f"| `{reason}` |" not in text] == []
    assert [action for action in failure.ACTIONS if f"| `{action}` |" not in text] == []


# Promises and faults


def test_the_promises_are_told_in_the_words_of_verify() -> None:
    rows = dict(
        re.findall(r"^\| (P\d+) \| ([A-Z].*?[.])(?: \(.*\))? \|$", (DOCS / "promises.md").read_text(), re.MULTILINE)
    )
    assert rows == SENTENCES


def test_every_promise_has_a_module_and_a_test() -> None:
    rows = dict(re.findall(r"^\| (P\d+) \| (`p.*) \|$", (DOCS / "promises.md").read_text(), re.MULTILINE))
    assert list(rows) == [promise for promise in SENTENCES if promise != "P11"]
    told = {name for row in rows.values() for name in re.findall(r"`(p\d+_\w+\.py)`", row)}
    assert told == {path.name for path in (ROOT / "controlplane" / "verify").glob("p[0-9]*.py")}


def test_every_fault_has_a_test() -> None:
    rows = dict(faults())
    assert list(rows) == [f"F{number}" for number in range(1, FAULTS + 1)]
    for fault, test in rows.items():
        assert test.startswith(f"test_f{int(fault[1:]):02}_")
        assert any((ROOT / "tests" / folder / test).exists() for folder in ("robustness", "kubernetes"))


def faults() -> Iterator[tuple[str, str]]:
    yield from re.findall(r"^\| (F\d+) \|.*\| `(\w+\.py)` \|$", (DOCS / "faults.md").read_text(), re.MULTILINE)
