"""Help for every option of every command, and the component in every log line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog
import typer

from controlplane.cli import controlplane as runner
from controlplane.cli import log_setup


def options() -> list[Any]:
    command: Any = typer.main.get_command(runner.app)
    return [
        pytest.param(option, id=f"{name} {option.name}")
        for name, part in command.commands.items()
        for option in part.params
        if not option.hidden
    ]


@pytest.mark.parametrize("option", options())
def test_every_option_of_controlplane_has_help(option: Any) -> None:
    assert option.help


def test_a_log_line_names_the_component_that_spoke(tmp_path: Path) -> None:
    before = structlog.get_config()
    path = tmp_path / "log"
    with path.open("w") as file:
        log_setup.log_to(file.fileno())
        try:
            structlog.get_logger("controlplane.scheduler.cycle").info("placed", tasks=3)
        finally:
            structlog.configure(**before)
    assert "level=info component=scheduler.cycle event=placed tasks=3\n" in path.read_text()
