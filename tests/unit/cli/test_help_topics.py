"""`cpctl help`: the list of topics, pages as plain text, unknown topics, and how little it imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from controlplane.cli import help_topics
from controlplane.cli.help_topics import TOPICS, plain, text_of
from controlplane.model.errors import NotFound

HEAVY = ("grpc", "google.protobuf", "numpy", "typer", "rich", "kubernetes", "msgspec", "asyncio")


def cpctl(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "controlplane.cli.cpctl", *arguments],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "COLUMNS": "100"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_without_a_topic_every_page_has_a_line() -> None:
    code, out, err = cpctl("help")
    assert (code, err) == (0, "")
    listed = [line.split()[0] for line in out.splitlines() if line]
    assert listed == ["TOPIC", *TOPICS, "cpctl"]


def test_a_page_goes_to_stdout() -> None:
    code, out, err = cpctl("help", "promises")
    assert (code, err) == (0, "")
    assert out.startswith("Promises\n========\n")


def test_an_unknown_topic_is_refused_with_the_nearest_one() -> None:
    code, out, err = cpctl("help", "ordrs")
    assert (code, out) == (1, "")
    assert err.startswith("error: NotFound: topic: there is no page 'ordrs'; did you mean orders?")


def test_a_topic_that_is_near_to_none_is_refused_with_all_of_them() -> None:
    with pytest.raises(NotFound, match=", ".join(TOPICS)):
        text_of("xyzzy")


def test_help_is_listed_among_the_commands_and_helps_itself() -> None:
    assert "\n  help " in cpctl("--help")[1]
    assert "TOPIC" in cpctl("help", "--help")[1]


def test_help_imports_nothing_that_takes_a_while() -> None:
    program = "import sys; sys.argv[1:] = ['help', 'orders']\nfrom controlplane.cli import cpctl\n"
    program += "try:\n    cpctl.main()\nfinally:\n    print(*sys.modules, file=sys.stderr)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert set(HEAVY) & set(done.stderr.split()) == set()


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("width", [60, 120])
def test_every_page_is_plain_text_of_the_width(topic: str, width: int) -> None:
    markdown = help_topics.page(topic)
    code = {line.strip() for line in markdown.splitlines()}
    text = plain(markdown, width)
    assert "<!--" not in text
    assert "](" not in text
    # Code keeps its lines, and so does a word that is longer than its column.
    wide = [
        line for line in text.splitlines() if len(line) > width and line.strip() not in code and " " in line.strip()
    ]
    assert wide == []


def test_blocks_of_a_page() -> None:
    markdown = (
        "# Title\n\nOne line\nand **another**, see [Rules](rules.md#errors) and [CEL](https://cel.dev).\n\n"
        "- first\n  goes on\n- second\n\n```\n$ code  stays\n```\n\n"
        "<!-- mark -->\n| a | b |\n|---|---|\n| `x\\|y` | z |\n"
    )
    assert plain(markdown, 80) == (
        "Title\n=====\n\nOne line and another, see Rules (help rules) and CEL (https://cel.dev).\n\n"
        "- first goes on\n- second\n\n  $ code  stays\n\na      b\n`x|y`  z\n"
    )


def test_a_wide_table_is_wrapped_in_its_columns() -> None:
    markdown = f"| key | meaning |\n|---|---|\n| `a` | {'word ' * 10}|\n"
    assert plain(markdown, 30).splitlines() == [
        "key  meaning", "", "`a`  word word word word word", "     word word word word word",
    ]  # fmt: skip
