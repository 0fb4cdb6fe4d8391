"""One name, one thing: no class and no module of the product shares its name with another."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping

from tests.architecture.source import modules, shown, tree_of

# Every package may have them.
_OF_A_PACKAGE = {"__init__", "__main__"}


def shared(places: Mapping[str, list[str]]) -> list[str]:
    """A sentence for each name that several things have."""
    return [f"{name} is the name of {', '.join(at)}" for name, at in sorted(places.items()) if len(at) > 1]


def test_no_class_has_the_name_of_another() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{shown(path)}:{node.lineno}")
    assert shared(places) == []


def test_no_module_has_the_name_of_another() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in modules():
        if path.stem not in _OF_A_PACKAGE:
            places[path.stem].append(shown(path))
    assert shared(places) == []


def test_a_name_that_two_things_have_is_told_with_both_places() -> None:
    assert shared({"Once": ["a"], "Twice": ["a", "b"]}) == ["Twice is the name of a, b"]
