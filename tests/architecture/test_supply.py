"""What is installed is what was locked: bounds of requirements, lock files with hashes, licences."""

from __future__ import annotations

import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.licences import PAGE, is_allowed, licences, page
from tests.architecture.locks import NAMES, digest_line, pins, requirements, text_of
from tests.architecture.source import ROOT


@pytest.mark.parametrize("name", NAMES)
def test_every_requirement_has_a_lower_and_an_upper_bound(name: str) -> None:
    operators = {item.name: {part.operator for part in item.specifier} for item in requirements(name)}
    assert {package: said for package, said in operators.items() if said != {">=", "<"}} == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_lock_is_of_these_requirements(name: str) -> None:
    assert digest_line(name) in text_of(name).splitlines(), "stale: scripts/lock"
    locked = pins(text_of(name))
    for item in requirements(name):
        versions = [pin.version for pin in locked if pin.name == canonicalize_name(item.name)]
        assert versions, f"{item} is not locked: scripts/lock"
        assert all(item.specifier.contains(version) for version in versions), f"{item}, locked at {versions}"


@pytest.mark.parametrize("name", NAMES)
def test_every_locked_version_has_hashes(name: str) -> None:
    assert [pin.name for pin in pins(text_of(name)) if not pin.hashes] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_names_no_place_to_fetch_from(name: str) -> None:
    """The index is the machine's own choice; the hashes hold for every copy of the files."""
    assert re.findall(r"://|--(?:extra-)?index-url|--find-links| @ ", text_of(name)) == []


def test_development_runs_on_the_versions_of_the_runtime() -> None:
    assert set(pins(text_of("runtime"))) <= set(pins(text_of("dev")))


def test_every_need_of_a_locked_package_is_locked_and_satisfied() -> None:
    """Installed without a look at needs (`--no-deps`), so the lock has to name them all."""
    locked = {pin.name: pin.version for pin in pins(text_of("dev")) if pin.is_for_this_python}
    for package, version in locked.items():
        assert metadata.version(package) == version, f"{package} is not installed as locked: scripts/setup dev"
        for need in requirements_of(package):
            assert need.specifier.contains(locked.get(canonicalize_name(need.name), ""), prereleases=True), (
                package,
                str(need),
            )


def requirements_of(package: str) -> list[Requirement]:
    given = map(Requirement, metadata.requires(package) or ())
    return [need for need in given if need.marker is None or need.marker.evaluate({"extra": ""})]


def test_only_permissive_licences_and_the_mpl_are_shipped() -> None:
    assert {name: licence for name, (_, licence) in licences().items() if not is_allowed(licence)} == {}


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 AND MIT", True),
        ("MIT OR GPL-3.0-only", True),
        ("GPL-3.0-only", False),
        ("MIT AND LGPL-3.0-or-later", False),
        ("(MIT OR GPL-3.0-only) AND GPL-2.0-only", False),
        ("not said", False),
    ],
)
def test_a_licence_is_judged_by_its_parts(licence: str, allowed: bool) -> None:
    assert is_allowed(licence) is allowed


def test_the_licences_are_listed() -> None:
    assert PAGE.read_text() == page(), "stale: python -m tests.architecture.licences"


def test_setup_installs_from_the_locks_and_compares_hashes() -> None:
    command = next(
        line for line in (ROOT / "scripts" / "setup").read_text().splitlines() if "-r deploy/requirements/" in line
    )
    assert "--require-hashes" in command
    assert "--no-deps" in command
