"""Progress of long work on stderr: a bar on a terminal, otherwise only lines. stdout stays for data."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from controlplane.model import texts


class ProgressBar:
    """A bar with lines above; rich itself honours NO_COLOR."""

    def __init__(self, title: str, total: int) -> None:
        self._console = Console(file=sys.stderr, highlight=False, markup=False)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        )
        self._task = self._progress.add_task(title, total=total)

    def at(self, done: int, total: int | None = None, title: str | None = None) -> None:
        self._progress.update(self._task, completed=done, total=total, description=title)

    def say(self, text: str) -> None:
        self._console.print(texts.escaped(text), soft_wrap=True)

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
