"""`cpctl help TOPIC`: the pages of the manual that belong to this version, as plain text.

A page is a Markdown file in `controlplane/docs`, shipped with the package. Its title and its first paragraph, which is
one line, describe the page in the list of topics. Nothing here imports more than the standard library and the errors
of the model, so that help is there at once.
"""

from __future__ import annotations

import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib.resources import files

from controlplane.model.errors import NotFound

# The pages in the order in which a newcomer reads them; a page's topic is the name of its file.
TOPICS = (
    "orders", "placement", "changing", "failures", "recurring", "rules", "targets", "kubernetes", "scaling",
    "observing", "cpctl", "access", "transport", "operating", "reference", "promises", "faults", "glossary",
)  # fmt: skip
_WIDEST, _NARROWEST, _GAP = 120, 60, 2
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_PAGE = re.compile(r"([a-z]+)\.md(#.*)?")
_RULE = re.compile(r"[|:\- ]+")
_FENCE = "```"
_HEADING = re.compile(r"(#+) (.+)")
_ITEM = re.compile(r"- |\d+\. ")
_BEGINS = re.compile(r"```|#+ |- |\d+\. ")


def main(arguments: Sequence[str]) -> int:
    """The whole of `cpctl help`, for a process that has imported nothing else."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        sys.stdout.write(text_of(*arguments))
    except NotFound as error:
        print(f"error: NotFound: {error}", file=sys.stderr)
        return 1
    return 0


def text_of(topic: str = "") -> str:
    """The page as plain text, the list of pages without a topic; NotFound for an unknown one."""
    if not topic:
        return _contents()
    if topic not in TOPICS:
        close = get_close_matches(topic.lower(), TOPICS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the topics are {', '.join(TOPICS)}"
        raise NotFound(f"topic: there is no page {topic!r}; {hint} (for a command: cpctl COMMAND --help)")
    return plain(page(topic), max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size((100, 24)).columns)))


def page(topic: str) -> str:
    """The page's Markdown."""
    return (files("controlplane") / "docs" / f"{topic}.md").read_text(encoding="utf-8")


def _contents() -> str:
    rows = [("TOPIC", "PAGE"), *((topic, page(topic).split("\n\n")[1]) for topic in TOPICS)]
    return "".join(f"{topic:12}{line}\n" for topic, line in rows) + "\ncpctl help TOPIC shows a page.\n"


def plain(markdown: str, width: int) -> str:
    """Headings are underlined, tables are aligned within the width, paragraphs are wrapped, code stays as it is."""
    lines: list[str] = []
    for block in _blocks(_COMMENT.sub("", markdown)):
        if not block:
            lines.append("")
        elif block[0].startswith(_FENCE):
            lines.extend(f"  {line}".rstrip() for line in block[1:-1])
        elif block[0].startswith("|"):
            rows = [[_inline(cell.strip()) for cell in _cells(line)] for line in block if not _RULE.fullmatch(line)]
            lines.extend(_columns(rows, width))
        elif heading := _HEADING.fullmatch(block[0]):
            title = _inline(heading[2])
            lines.extend((title, ("=" if heading[1] == "#" else "-") * len(title)))
        else:
            item = _ITEM.match(block[0])
            text = _inline(" ".join(line.strip() for line in block))
            indent = " " * len(item[0]) if item else ""
            lines.extend(textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False))
    return "\n".join(lines).strip("\n") + "\n"


def _blocks(markdown: str) -> Iterator[list[str]]:
    """Fenced code, tables, headings, items of lists and paragraphs, each as its lines; an empty line is a block too."""
    block: list[str] = []
    for line in markdown.splitlines():
        if block and block[0].startswith(_FENCE):
            block.append(line)
            if line.startswith(_FENCE):
                yield block
                block = []
            continue
        same = block and bool(line) and not _BEGINS.match(line) and block[0].startswith("|") == line.startswith("|")
        if block and not same:
            yield block
            block = []
        if line:
            block.append(line)
        else:
            yield []
    if block:
        yield block


def _cells(line: str) -> list[str]:
    return [cell.replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def _inline(text: str) -> str:
    """Without the marks of links and of bold; a link to another page names its topic."""
    return _LINK.sub(_linked, text).replace("**", "")


def _linked(link: re.Match[str]) -> str:
    to_page = _PAGE.fullmatch(link[2])
    if to_page is not None:
        return f"{link[1]} (help {to_page[1]})"
    return f"{link[1]} ({link[2]})" if link[2].startswith("http") else link[1]


def _columns(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """The rows with their cells wrapped; a column that is wider than its share gets what the others leave."""
    wanted = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    widths = _shares(wanted, width - _GAP * (len(wanted) - 1))
    tall = any(need > got for need, got in zip(wanted, widths, strict=True))
    for row in rows:
        cells = [textwrap.wrap(cell, got, break_on_hyphens=False) for cell, got in zip(row, widths, strict=True)]
        for at in range(max(1, *map(len, cells))):
            parts = (cell[at] if at < len(cell) else "" for cell in cells)
            yield (" " * _GAP).join(f"{part:{got}}" for part, got in zip(parts, widths, strict=True)).rstrip()
        if tall and row is not rows[-1]:
            yield ""


def _shares(wanted: Sequence[int], room: int) -> list[int]:
    """What each column gets: narrow ones all that they want, the others an equal part of the rest."""
    given = [0] * len(wanted)
    for left, at in enumerate(sorted(range(len(wanted)), key=lambda at: wanted[at])):
        given[at] = min(wanted[at], max(8, room // (len(wanted) - left)))
        room -= given[at]
    return given
