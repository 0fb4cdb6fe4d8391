"""Plain English in the product's docstrings: sentences name things instead of pointing at them with pronouns."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.architecture.source import docstrings, modules, shown

POINTING = {
    "it", "its", "that", "what", "who", "whom", "whose", "one", "ones", "this", "those", "these", "nothing", "nobody",
    "somebody", "whoever", "whatever", "everything", "everybody", "something",
}  # fmt: skip
# How many of a hundred words in docstrings may point.
MOST_PERCENT = 7
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_NAMED = 15


def words_of(path: Path) -> Counter[bool]:
    """How many words in the docstrings of a module point (True), and how many do not."""
    return Counter(word in POINTING for text in docstrings(path) for word in _WORD.findall(text.lower()))


def test_docstrings_name_things() -> None:
    counted = {shown(path): words_of(path) for path in modules()}
    percent = 100 * sum(count[True] for count in counted.values()) / sum(count.total() for count in counted.values())
    most = sorted(counted, key=lambda name: counted[name][True], reverse=True)[:_NAMED]
    worst = "\n".join(f"{name}: {counted[name][True]} of {counted[name].total()}" for name in most)
    assert percent <= MOST_PERCENT, f"{percent:.2f} % of the words in docstrings are pronouns; most of them in\n{worst}"


def test_pronouns_are_found_in_docstrings_alone(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text('"""It is what it is."""\n\nit = "it"\n\n\ndef that():\n    """An order\'s tasks."""  # it\n')
    assert words_of(file) == {True: 3, False: 5}
