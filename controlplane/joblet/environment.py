"""The environment of a task, and its command with `$(NAME)` replaced from the environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from controlplane.model.fulfilment import Fulfilment, TaskRef

# A doubled dollar keeps the text behind it as it is.
_REFERENCE = re.compile(r"\$(\$?)\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


def environment_of(fulfilment: Fulfilment, task: TaskRef) -> dict[str, str]:
    """The variables of the job and its resources, then those that identify the task, which a job cannot override."""
    spec = fulfilment.jobs.get(task.job)
    return {
        **(spec.environment if spec is not None else {}),
        "CONTROLPLANE_ORDER": fulfilment.order,
        "CONTROLPLANE_JOB": task.job,
        "CONTROLPLANE_INDEX": str(task.index),
        "CONTROLPLANE_ATTEMPT": str(task.attempt),
        "CONTROLPLANE_TARGET": fulfilment.target,
    }


def expand(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command with names replaced; a name without a value stays as written."""
    values = {"INDEX": environment.get("CONTROLPLANE_INDEX", ""), **environment}

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return f"$({match[2]})"
        return values.get(match[2], match[0])

    return [_REFERENCE.sub(value, part) for part in command]
