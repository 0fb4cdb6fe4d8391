"""The product's own source for the tests of the house rules: modules below `controlplane/`, without generated code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "controlplane"
GENERATED = PRODUCT / "wire" / "v1"
_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def modules() -> list[Path]:
    return sorted(path for path in PRODUCT.rglob("*.py") if GENERATED not in path.parents)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def docstrings(path: Path) -> Iterator[str]:
    """Those of the module, its classes and its functions."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, _WITH_DOCSTRINGS) and (text := ast.get_docstring(node)):
            yield text
